//go:build unix && !linux

package pgserver

import "syscall"

func sysProcAttr(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true}
}
