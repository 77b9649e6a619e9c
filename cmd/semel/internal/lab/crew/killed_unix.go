//go:build unix

package crew

import (
	"os"
	"syscall"
)

func wasKilled(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}
