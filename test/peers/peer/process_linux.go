package peer

import "syscall"

// deathPact has the kernel kill a peer when the thread ends that started it.
func deathPact() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
