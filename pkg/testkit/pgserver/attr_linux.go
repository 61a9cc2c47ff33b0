package pgserver

import "syscall"

// sysProcAttr ends the server with the tests, even if those are killed.
func sysProcAttr(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
