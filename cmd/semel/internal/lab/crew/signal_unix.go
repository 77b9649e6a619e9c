//go:build unix

package crew

import (
	"errors"
	"os"
	"syscall"
)

// stop stops a process where it is; os.ErrProcessDone when there is none. goOn lets it go on.
func stop(pid int) error {
	err := syscall.Kill(pid, syscall.SIGSTOP)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func goOn(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
