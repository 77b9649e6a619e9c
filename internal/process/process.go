// Package process starts, kills, freezes and finds processes, for programs that run workers as processes and for tests
// that kill them. A started process has a process group of its own, which signals reach as a whole, and on Linux it
// dies with the process that started it.
package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a process that was started by [Start]. Its methods may be called from several goroutines.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of cmd.Wait
}

// starter runs functions on one thread that never ends: the kernel sends the parent-death signal when the thread that
// forked ends, not when the process does (prctl(2)).
var starter = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// Start starts a command and waits for it in the background. Do not use StdoutPipe or StderrPipe of the command, whose
// readers would race with that; give it an [Output]. The error is that of [exec.Cmd.Start]. A command that went through [Detach] outlives this process.
func Start(cmd *exec.Cmd) (*Process, error) {
	own(cmd)
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err // it names the program
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// TB is the part of testing.TB that [StartTest] needs.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// StartTest starts a command for a test, which fails if that is impossible, and kills it when the test has ended.
func StartTest(t TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// Self is a command that runs this program again, without arguments and with variables in addition to its environment.
func Self(variables ...string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), variables...)
	return cmd
}

// Pid is the process ID, and that of the group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and its output has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the end. The error is nil if the exit status is 0, as of [exec.Cmd.Wait].
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// State waits for the end and returns the exit status.
func (p *Process) State() *os.ProcessState {
	<-p.done
	return p.cmd.ProcessState
}

// Killed waits for the end and reports whether SIGKILL was the reason.
func (p *Process) Killed() bool { return killed(p.State()) }

// Signal sends a signal to the process group. The error is [os.ErrProcessDone] if the process has ended. Where processes
// have no groups, SIGTERM and SIGKILL end the process alone, and other signals are [errors.ErrUnsupported].
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Running() {
		return os.ErrProcessDone
	}
	return SignalGroup(p.Pid(), s)
}

// Kill sends SIGKILL and waits for the end. It kills a frozen process too, and does nothing after the end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Terminate asks the process to end, with SIGTERM, and does not wait. A frozen process ends once it is thawed.
func (p *Process) Terminate() error { return p.Signal(syscall.SIGTERM) }

// Stop terminates the process and waits for the end. The error is that of Wait; a process that has not ended after the
// grace is killed, and an error too.
func (p *Process) Stop(grace time.Duration) error {
	_ = p.Terminate() // Wait has the result, also if the process has ended
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.done:
		return p.err
	case <-late.C:
		p.Kill()
		return fmt.Errorf("process %d did not end within %s and was killed", p.Pid(), grace)
	}
}

// Thaw lets a frozen process continue.
func (p *Process) Thaw() error { return p.Signal(sigcont) }

// ThawGroup lets a frozen process group continue, without a Process at hand. The error is [os.ErrProcessDone] if there is
// none.
func ThawGroup(pid int) error { return SignalGroup(pid, sigcont) }

// Await waits until a line of the output matches and returns that line. Lines that were written before count. The error
// has the output if the process or ctx ends before.
func (p *Process) Await(ctx context.Context, o *Output, match func(line string) bool) (string, error) {
	for at := 0; ; {
		running := p.Running()
		line, next, more := o.find(at, match)
		if line != "" {
			return line, nil
		}
		if at = next; !running {
			return "", fmt.Errorf("process %d ended (%v) without the awaited line:\n%s", p.Pid(), p.State(), o)
		}
		select {
		case <-more:
		case <-p.done:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for a line of process %d: %w; it wrote:\n%s", p.Pid(), context.Cause(ctx), o)
		}
	}
}

// Contains matches lines with a text in them, for [Process.Await].
func Contains(text string) func(line string) bool {
	return func(line string) bool { return strings.Contains(line, text) }
}

// KillSelf ends this process with SIGKILL: no deferred function runs, nothing is flushed. It never returns.
func KillSelf() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		os.Exit(137)
	}
	select {}
}
