//go:build unix

package sandbox

import (
	"errors"
	"os"
	"syscall"
)

// ownSession detaches a process from the terminal and the process group of its parent.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// exists asks without a signal.
func exists(p *os.Process) bool {
	err := p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, syscall.EPERM)
}
