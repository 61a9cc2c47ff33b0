package sandbox

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCommand_ReturnsOutputAndExitCode(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		out, exit := shell(t, box, t.TempDir(), "echo one; echo two >&2; exit 3")
		require.Equal(t, "one\ntwo\n", out)
		require.Equal(t, Exit{Code: 3}, exit)
	})
}

func TestCommand_NamesTheSignalThatKilledIt(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		_, exit := shell(t, box, t.TempDir(), "kill -SEGV $$")
		require.Equal(t, Exit{Code: 139, Signal: "SIGSEGV"}, exit)
	})
}

func TestCommand_HasNothingOfTheServersEnvironment(t *testing.T) {
	t.Setenv("HERMES_TEST_SECRET", "hunter2")
	dir := t.TempDir()
	out, exit := shell(t, detect(t), dir, "/usr/bin/env | sort; cat")
	require.Equal(t, Exit{}, exit)
	require.Equal(t, []string{
		"HOME=" + dir, "LANG=C.UTF-8", "PATH=" + searchPath, "PWD=" + dir, "TMPDIR=" + filepath.Join(dir, TempDir),
	}, strings.Fields(out))
}

func TestCommand_RunsInItsWorkspaceWithATemporaryFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, exit := shell(t, detect(t), dir, `pwd; echo x > "$TMPDIR/f" && echo y > f && cat f`)
	require.Equal(t, Exit{}, exit)
	require.Equal(t, dir+"\ny\n", out)
	require.FileExists(t, filepath.Join(dir, TempDir, "f"))
}

func TestCommand_CannotReadOutsideOfItsWorkspace(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		secret := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(secret, []byte("hunter2"), 0o644))
		out, exit := shell(t, box, t.TempDir(), "cat "+secret)
		if box.Report().Limit(LimitFiles).Enforced() {
			require.Equal(t, 1, exit.Code)
			require.Contains(t, out, "Permission denied")
			require.NotContains(t, out, "hunter2")
		} else {
			require.Equal(t, "hunter2", out)
		}
	})
}

func TestCommand_CannotReadTheServersEnvironment(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		out, exit := shell(t, box, t.TempDir(), "cat /proc/"+strconv.Itoa(os.Getpid())+"/environ")
		require.Equal(t, !box.Report().Limit(LimitFiles).Enforced(), exit.Code == 0, out)
	})
}

func TestCommand_CannotWriteOutsideOfItsWorkspace(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		other := t.TempDir()
		shell(t, box, t.TempDir(), "echo f > f; echo x > "+other+"/x; mv f "+other+"/y; mkdir "+other+"/z; exit 0")
		entries, err := os.ReadDir(other)
		require.NoError(t, err)
		require.Equal(t, box.Report().Limit(LimitFiles).Enforced(), len(entries) == 0)
	})
}

func TestCommand_HasNoNetwork(t *testing.T) {
	t.Parallel()
	require.FileExists(t, "/usr/bin/python3", "the test connects with it")
	everyWay(t, func(t *testing.T, box *Sandbox) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		out, exit := shell(t, box, t.TempDir(), `python3 -c 'import socket; socket.create_connection(("127.0.0.1", `+port+`), 5)'`)
		require.Equal(t, box.Report().Limit(LimitNetwork).Enforced(), exit.Code != 0, out)
	})
}

func TestCommand_CannotSignalTheServer(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		out, exit := shell(t, box, t.TempDir(), "kill -0 "+strconv.Itoa(os.Getpid()))
		require.Equal(t, box.Report().Limit(LimitSignals).Enforced(), exit.Code != 0, out)
	})
}

func TestCommand_HasNoCapabilitiesAndCannotGainAny(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		out, exit := shell(t, box, t.TempDir(), "chroot . /bin/true")
		require.NotZero(t, exit.Code)
		require.Contains(t, out, "Operation not permitted")
		out, exit = shell(t, box, t.TempDir(), "mount -t tmpfs none .")
		require.NotZero(t, exit.Code)
		require.Regexp(t, "permission denied|must be superuser", out)
	})
}

func TestCommand_IsBoundedInMemory(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		out, _ := shell(t, box, t.TempDir(), "ulimit -d; ulimit -v")
		require.Equal(t, "524288\n1048576\n", out, "in KiB")
		small := *box
		small.limits.Memory, small.limits.AddressSpace = 128<<20, 512<<20
		out, exit := shell(t, &small, t.TempDir(), `python3 -c 'print(len(bytearray(64 << 20)))'`)
		require.Equal(t, Exit{}, exit, out)
		out, exit = shell(t, &small, t.TempDir(), `python3 -c 'print(len(bytearray(192 << 20)))'`)
		require.Equal(t, 1, exit.Code)
		require.Contains(t, out, "MemoryError")
		out, exit = shell(t, &small, t.TempDir(), `python3 -c 'import mmap; mmap.mmap(-1, 600 << 20)'`)
		require.Equal(t, 1, exit.Code)
		require.Contains(t, out, "Cannot allocate memory")
	})
}

func TestCommand_IsBoundedInProcessorTime(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		short := *box
		short.limits.CPU = time.Second
		_, exit := shell(t, &short, t.TempDir(), "while :; do :; done")
		require.Equal(t, Exit{Code: 152, Signal: "SIGXCPU"}, exit)
	})
}

func TestCommand_IsBoundedInFiles(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		dir := t.TempDir()
		out, exit := shell(t, box, dir, "ulimit -n; head -c 2000000 /dev/zero > big; stat -c %s big; exit 5")
		require.Equal(t, 5, exit.Code)
		require.True(t, strings.HasPrefix(out, "256\n"), out)
		require.True(t, strings.HasSuffix(out, "1048576\n"), out)
	})
}

func TestCommand_IsBoundedInProcesses(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		few := *box
		few.limits.Processes = 20
		out, exit := shell(t, &few, t.TempDir(), "i=0; while [ $i -lt 40 ]; do sleep 100 & i=$((i+1)); done")
		require.Equal(t, few.Report().Limit(LimitProcesses).Enforced(), exit.Code != 0, out)
	})
}

func TestCommand_InheritsNoOpenFile(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		out, exit := shell(t, box, t.TempDir(),
			`for fd in 1 3 4 5 6 7 8 9; do (eval ": >&$fd") 2>/dev/null && echo $fd; done; exit 0`)
		require.Equal(t, Exit{}, exit)
		require.Equal(t, "1\n", out)
	})
}

// sleeper starts processes in every way that tries to escape, and says in files that they run.
const sleeper = `
sleep 1000 & echo $! > child
(setsid sleep 1001 & echo $! > daemon) &
trap "" TERM
while [ ! -s child ] || [ ! -s daemon ]; do sleep 0.01; done
echo > started
`

// sleeping finds the processes of sleeper by their command lines, seen from outside of every namespace.
func sleeping(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		cwd, err := os.Readlink("/proc/" + e.Name() + "/cwd")
		if err == nil && cwd == dir {
			n++
		}
	}
	return n
}

func TestCommand_DeadlineKillsDescendantsThatHideAndRefuse(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := box.Command(ctx, dir, sleeper+"while :; do sleep 1; done", &bytes.Buffer{})
			done <- err
		}()
		require.Eventually(t, func() bool { return exists(dir, "started") }, 20*time.Second, 10*time.Millisecond)
		require.GreaterOrEqual(t, sleeping(t, dir), 3)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Zero(t, sleeping(t, dir))
	})
}

func TestCommand_LeavesNoBackgroundProcess(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		dir := t.TempDir()
		out, exit := shell(t, box, dir, sleeper)
		require.Equal(t, Exit{}, exit, out)
		require.Zero(t, sleeping(t, dir))
	})
}

func TestCommand_EndsWithTheServerThatStartedIt(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		dir := t.TempDir()
		statusR, statusW, err := os.Pipe()
		require.NoError(t, err)
		defer statusR.Close()
		// The server's death closes its end of the control pipe; Wait would do that too, later.
		cmd, _, err := box.start(t.Context(), job{
			Mode: modeCommand, Dir: dir, Command: sleeper + "sleep 1000", Limits: box.limits, Namespaces: box.namespaces,
		}, &bytes.Buffer{}, statusW)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return exists(dir, "started") }, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, cmd.Cancel())
		require.NoError(t, cmd.Wait())
		require.Zero(t, sleeping(t, dir))
	})
}

func TestCommand_DeadlineIsPoliteFirst(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, box *Sandbox) {
		dir := t.TempDir()
		patient := *box
		patient.limits.Grace = 20 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		var out bytes.Buffer
		go func() {
			_, err := patient.Command(ctx, dir,
				`trap 'echo bye > bye; exit 0' TERM; echo > started; while :; do sleep 0.05; done`, &out)
			done <- err
		}()
		require.Eventually(t, func() bool { return exists(dir, "started") }, 20*time.Second, 10*time.Millisecond)
		begin := time.Now()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Less(t, time.Since(begin), 10*time.Second)
		require.FileExists(t, filepath.Join(dir, "bye"))
	})
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
