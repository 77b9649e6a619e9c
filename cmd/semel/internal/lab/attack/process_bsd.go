//go:build unix && !linux

package attack

import (
	"errors"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func alive(pid int) error {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return errGone
	}
	return nil
}
