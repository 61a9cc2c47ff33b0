package sandbox

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport_NamesWhatEnforcesEachLimit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		namespaces bool
		abi, uid   int
		want       map[string]string
	}{
		{"everything", true, 7, 1000, map[string]string{
			LimitFiles: "Landlock (ABI 7)", LimitNetwork: "network namespace", LimitProcesses: "RLIMIT_NPROC",
			LimitProcessTree: "PID namespace", LimitSignals: "PID namespace",
		}},
		{"root", true, 7, 0, map[string]string{LimitProcesses: "nothing"}},
		{"container", false, 6, 1000, map[string]string{
			LimitNetwork: "Landlock (ABI 6), TCP only", LimitProcesses: "nothing",
			LimitProcessTree: "supervisor as reaper of orphans", LimitSignals: "Landlock (ABI 6)",
		}},
		{"older kernel", false, 3, 1000, map[string]string{
			LimitFiles: "Landlock (ABI 3)", LimitNetwork: "nothing", LimitSignals: "nothing",
		}},
		{"no Landlock", false, 0, 1000, map[string]string{
			LimitFiles: "nothing", LimitNetwork: "nothing", LimitSignals: "nothing", LimitMemory: "RLIMIT_DATA and RLIMIT_AS",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := report(DefaultLimits(), tc.namespaces, tc.abi, tc.uid)
			for name, by := range tc.want {
				require.Equal(t, by, r.Limit(name).EnforcedBy, name)
				require.Equal(t, by != "nothing", r.Limit(name).Enforced(), name)
			}
		})
	}
}

func TestReport_UnknownLimitIsNotEnforced(t *testing.T) {
	t.Parallel()
	require.False(t, Report{}.Limit("seccomp").Enforced())
}

func TestReport_MatchesWhatTheKernelOffers(t *testing.T) {
	t.Parallel()
	files := detect(t).Report().Limit(LimitFiles)
	require.Equal(t, landlockABI() >= abiFiles, files.Enforced(), files)
}

func TestReport_LogsOneAttributePerLimit(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, nil))
	logger.Info("sandbox", "limits", report(DefaultLimits(), false, 0, 1000))
	require.Contains(t, out.String(), `"network":"none: nothing"`)
	require.Contains(t, out.String(), `"memory":"512 MiB private, 1024 MiB mapped, per process: RLIMIT_DATA and RLIMIT_AS"`)
}

func TestHandled_AsksOldKernelsForNothingNew(t *testing.T) {
	t.Parallel()
	first := handled(1)
	require.EqualValues(t, 0x1fff, first.Handled_access_fs)
	require.Zero(t, first.Handled_access_net)
	require.Zero(t, first.Scoped)
	latest := handled(6)
	require.EqualValues(t, 0xffff, latest.Handled_access_fs)
	require.EqualValues(t, 3, latest.Handled_access_net)
	require.EqualValues(t, 3, latest.Scoped)
}

func TestIsChild_LooksAtTheFirstArgument(t *testing.T) {
	t.Parallel()
	require.True(t, IsChild([]string{"hermes", "tool-child"}))
	require.False(t, IsChild([]string{"hermes", "dev", "tool-child"}))
	require.False(t, IsChild([]string{"hermes"}))
}

func TestDescendants_FindsTheWholeTree(t *testing.T) {
	t.Parallel()
	parent, ok := parentOf("self")
	require.True(t, ok)
	require.Equal(t, os.Getppid(), parent)
	require.Contains(t, descendants(parent), os.Getpid())
	require.NotContains(t, descendants(os.Getpid()), os.Getpid())
	_, ok = parentOf("0")
	require.False(t, ok)
}
