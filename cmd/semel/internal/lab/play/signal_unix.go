//go:build unix

package play

import (
	"os"
	"syscall"
)

// terminate asks a process to end, as a deployment does.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// stop stops a process where it is, goOn lets it go on.
func stop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

func goOn(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
