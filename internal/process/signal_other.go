//go:build !unix

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// HasSignals reports whether this system can freeze and thaw processes, and ask them to end.
const HasSignals = false

// No system call takes these here: SignalGroup refuses them.
const (
	sigstop = syscall.Signal(0x13)
	sigcont = syscall.Signal(0x12)
)

// Continue is the signal that lets a stopped process continue.
const Continue = sigcont

// StopSelf returns an error: no process can be stopped here.
func StopSelf() error { return errors.ErrUnsupported }

// SignalGroup ends the process at SIGTERM and SIGKILL: there are neither groups nor milder signals here.
func SignalGroup(pid int, s syscall.Signal) error {
	if s != syscall.SIGTERM && s != syscall.SIGKILL {
		return fmt.Errorf("send signal %d to process %d: %w", s, pid, errors.ErrUnsupported)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return os.ErrProcessDone
	}
	return p.Kill()
}

// killed: TerminateProcess, which Kill uses, leaves exit code 1 like any failure.
func killed(s *os.ProcessState) bool { return s.ExitCode() == 1 }

// Detach does nothing: a process outlives its parent here.
func Detach(*exec.Cmd) {}

func own(*exec.Cmd) {}

// As does nothing: the command runs as the user of this process.
func As(*exec.Cmd, int, int) {}

// Freeze returns an error: no process can be stopped here.
func (p *Process) Freeze() error { return p.Signal(sigstop) }

// KillTree kills the process and waits for its end; children are not found here.
func (p *Process) KillTree() error {
	p.Kill()
	return nil
}

// Gone reports whether a process has ended.
func Gone(pid int) bool {
	p, err := os.FindProcess(pid)
	return err != nil || p.Release() != nil
}

// Children are not found here.
func Children(int) ([]int, error) { return nil, errors.ErrUnsupported }
