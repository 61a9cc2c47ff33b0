package sandbox

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Versions of the Landlock interface that brought what is used here.
const (
	abiFiles    = 1
	abiRefer    = 2
	abiTruncate = 3
	abiTCP      = 4
	abiIoctl    = 5
	abiScope    = 6
)

const (
	fsRead     = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fsReadExec = fsRead | unix.LANDLOCK_ACCESS_FS_EXECUTE
	// fsChange leaves out devices: nobody makes those.
	fsChange = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	fsAll = fsReadExec | fsChange | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// fsOfFile are the rights that a single file can have.
	fsOfFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// rule allows access to a path and what is beneath it.
type rule struct {
	path   string
	access uint64
}

// policy is what is left to a thread.
type policy struct {
	rules []rule
	// scoped forbids signals and abstract sockets to processes outside. Not for one thread of a Go program: some kernels
	// then keep it from signalling the other threads.
	scoped bool
}

func operationPolicy(dir string, writes bool) policy {
	access := uint64(fsRead)
	if writes {
		access |= fsChange
	}
	return policy{rules: []rule{{dir, access}}}
}

// commandPolicy lets a shell use the programs of the system and the workspace. /proc is closed but for a few files about
// the machine: the processes of others, and the server's, are none of its business.
func commandPolicy(dir string) policy {
	rules := []rule{{dir, fsReadExec | fsChange}}
	for _, p := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		rules = append(rules, rule{p, fsReadExec})
	}
	for _, p := range []string{"/dev/null", "/dev/full"} {
		rules = append(rules, rule{p, fsRead | fsChange})
	}
	for _, p := range []string{
		"/dev/zero", "/dev/random", "/dev/urandom",
		"/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
		"/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/protocols", "/etc/services",
		"/etc/ssl", "/etc/terminfo", "/etc/timezone",
		"/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime",
		"/proc/version", "/sys/devices/system/cpu",
	} {
		rules = append(rules, rule{p, fsRead})
	}
	return policy{rules: rules, scoped: true}
}

// landlockABI returns the version that the kernel offers, 0 if it has none or it is off.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// handled returns what a kernel of this version can restrict.
func handled(abi int) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: fsAll}
	for _, right := range []struct {
		since int
		bits  uint64
	}{
		{abiRefer, unix.LANDLOCK_ACCESS_FS_REFER},
		{abiTruncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{abiIoctl, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
	} {
		if abi < right.since {
			attr.Handled_access_fs &^= right.bits
		}
	}
	if abi >= abiTCP {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= abiScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return attr
}

// restrict leaves the calling thread, and what it starts, only the access that the policy gives, and no TCP. On a kernel
// without Landlock it does nothing, which the report says.
func restrict(p policy) error {
	abi := landlockABI()
	if abi < abiFiles {
		return nil
	}
	attr := handled(abi)
	if !p.scoped {
		attr.Scoped = 0
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock ruleset: %w", errno)
	}
	defer unix.Close(int(fd)) //nolint:errcheck // nothing was written through it
	for _, r := range p.rules {
		if err := addRule(int(fd), r, attr.Handled_access_fs); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// addRule skips what this system does not have.
func addRule(ruleset int, r rule, handled uint64) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", r.path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written through it
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("stat %s: %w", r.path, err)
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: r.access & handled, Parent_fd: int32(fd)}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		attr.Allowed_access &= fsOfFile
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock rule for %s: %w", r.path, errno)
	}
	return nil
}
