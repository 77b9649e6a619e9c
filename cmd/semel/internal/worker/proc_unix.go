//go:build unix

package worker

import "syscall"

// signalGroup signals a process group; one that is gone is no error.
func signalGroup(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }

// ownSession detaches a process from the terminal and the group of its worker.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
