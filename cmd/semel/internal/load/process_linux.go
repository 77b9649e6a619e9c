package load

import "syscall"

// dieWithParent makes the kernel kill the worker when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
