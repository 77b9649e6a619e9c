//go:build unix

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// HasSignals reports whether this system can freeze and thaw processes, and ask them to end.
const HasSignals = true

const (
	sigstop = syscall.SIGSTOP
	sigcont = syscall.SIGCONT
)

// Continue is the signal that lets a stopped process continue.
const Continue = sigcont

// StopSelf stops this process until it gets [Continue].
func StopSelf() error { return send(os.Getpid(), sigstop) }

// SignalGroup sends a signal to a process group. The error is [os.ErrProcessDone] if there is none.
func SignalGroup(pid int, s syscall.Signal) error { return send(-pid, s) }

func send(pid int, s syscall.Signal) error {
	err := syscall.Kill(pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("send %v to process %d: %w", s, max(pid, -pid), err)
	}
	return nil
}

func killed(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}

// Detach makes a command outlive this process, in a session of its own: no signal of the terminal reaches it.
func Detach(cmd *exec.Cmd) { attributes(cmd).Setsid = true }

// own gives a command a process group of its own.
func own(cmd *exec.Cmd) {
	if a := attributes(cmd); !a.Setsid {
		a.Setpgid = true
		dieWithParent(a)
	}
}

// As makes a command run as another user.
func As(cmd *exec.Cmd, uid, gid int) {
	attributes(cmd).Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func attributes(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}
