//go:build unix

package attack

import (
	"os"
	"syscall"
)

// canFreeze: this system can stop a process and let it go on.
const canFreeze = true

func terminate(p *os.Process) { _ = p.Signal(syscall.SIGTERM) }

func freeze(pid int) { _ = syscall.Kill(pid, syscall.SIGSTOP) }

func thaw(pid int) { _ = syscall.Kill(pid, syscall.SIGCONT) }

// thawGroup lets a process group go on, killGroup ends it at once.
func thawGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGCONT) }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
