package attack

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// process is one worker process of a trial.
type process struct {
	cmd    *exec.Cmd
	frozen bool
	done   chan struct{}
	ended  int // exit status, when done
	errs   tail
}

// start starts semel with arguments. It belongs to the goroutine that Run locked to its thread: on Linux the process
// dies with the thread that started it.
func (r *runner) start(args []string) (*process, error) {
	p := &process{done: make(chan struct{})}
	command := append(append([]string{}, r.Command...), args...)
	p.cmd = exec.Command(command[0], command[1:]...) //nolint:noctx // ended and waited for by the trial
	p.cmd.Env = append(r.environ(), r.Variables...)
	p.cmd.Stderr = &p.errs
	p.cmd.SysProcAttr = ownGroup()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		p.ended = p.cmd.ProcessState.ExitCode()
	}()
	return p, nil
}

// environ is what workers, and with that handlers, find in their environment: the user's, without settings of semel.
func (r *runner) environ() []string {
	var out []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SEMEL_OPT_") {
			out = append(out, kv)
		}
	}
	return append(out, markVariable+"="+r.nonce)
}

// markVariable names the attack that a process belongs to: whatever a handler leaves behind is found by it.
const markVariable = "ATTACK_RUN"

// class is that of a worker's exit status.
func (p *process) class() output.Code {
	if p.ended == output.CodeUsage.Exit() {
		return output.CodeUsage
	}
	return output.CodeFailed
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends it at once, and waits.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// drain asks it to end; after the grace it is killed.
func (p *process) drain(grace time.Duration) {
	if p.frozen {
		thaw(p.pid())
		p.frozen = false
	}
	terminate(p.cmd.Process)
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.done:
	case <-late.C:
		p.kill()
	}
}

// tail keeps the last bytes that a worker wrote to standard error.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - 4096; over > 0 {
		t.b = t.b[over:]
	}
	return len(p), nil
}

// lastLine is the last error that a worker printed: its own, without the advice that follows.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := "without an error message"
	for line := range strings.Lines(string(t.b)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "semel: "); ok {
			last = text
		}
	}
	return last
}
