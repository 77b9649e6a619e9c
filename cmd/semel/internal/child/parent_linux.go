package child

import "syscall"

// DieWithParent makes the kernel kill the child when the thread that started it ends: the starter has to be locked to it.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
