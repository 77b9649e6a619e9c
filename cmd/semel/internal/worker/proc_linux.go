package worker

import "syscall"

// processAttr puts a handler into a process group of its own and has the kernel kill it when its worker dies.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
