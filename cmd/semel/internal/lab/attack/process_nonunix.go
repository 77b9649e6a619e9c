//go:build !unix

package attack

import (
	"os"
	"syscall"
)

// canFreeze: processes cannot be stopped here.
const canFreeze = false

func ownGroup() *syscall.SysProcAttr { return nil }

func alive(pid int) error {
	if _, err := os.FindProcess(pid); err != nil {
		return errGone
	}
	return nil
}

func terminate(p *os.Process) { _ = p.Kill() }

func freeze(int) {}

func thaw(int) {}

func thawGroup(int) {}

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
