//go:build unix && !linux

package play

import (
	"os"
	"syscall"
)

// dieWithParent has no help from the kernel here: a child notices the end of its standard input.
func dieWithParent() *syscall.SysProcAttr { return nil }

func wasKilled(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}
