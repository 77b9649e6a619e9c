package attack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	osprocess "github.com/semel-dev/semel/internal/process"
)

// canFreeze: this system can stop a process and let it go on.
const canFreeze = osprocess.HasSignals

// process is one worker process of a trial.
type process struct {
	*osprocess.Process
	frozen bool
	errs   osprocess.Output
}

// start starts semel with arguments.
func (r *runner) start(args []string) (p *process, err error) {
	p = &process{errs: osprocess.Output{Keep: 4096}}
	cmd := exec.Command(r.semel, args...) //nolint:noctx // ended and waited for by the trial
	cmd.Env = append(r.environ(), r.Variables...)
	cmd.Stderr = &p.errs
	if p.Process, err = osprocess.Start(cmd); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
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

// failed reports whether the worker has ended with an error.
func (p *process) failed() bool { return !p.Running() && p.State().ExitCode() != 0 }

// class is that of a worker's exit status.
func (p *process) class() output.Code {
	if p.State().ExitCode() == output.CodeUsage.Exit() {
		return output.CodeUsage
	}
	return output.CodeFailed
}

// drain asks it to end; after the grace it is killed.
func (p *process) drain(grace time.Duration) {
	if p.frozen {
		_ = p.Thaw()
		p.frozen = false
	}
	_ = p.Stop(grace) // of a worker that failed its output says why
}

// lastLine is the last error that a worker printed: its own, without the advice that follows.
func (p *process) lastLine() string {
	last := "without an error message"
	for line := range strings.Lines(p.errs.String()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "semel: "); ok {
			last = text
		}
	}
	return last
}

// leftover is a process that a handler left behind.
type leftover struct {
	pid  int
	name string
}

// leftovers finds the processes that carry the mark of this attack and are no workers.
func leftovers(mark string, workers map[int]bool) (out []leftover) {
	mark = markVariable + "=" + mark
	for _, pid := range osprocess.WithVariable(func(v string) bool { return v == mark }) {
		if !workers[pid] {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			name = bytes.ReplaceAll(name, []byte{0}, []byte{' '})
			out = append(out, leftover{pid: pid, name: string(bytes.TrimSpace(name))})
		}
	}
	return out
}

// dead reports whether a process has ended.
func dead(pid int) bool { return osprocess.Gone(pid) }

// thawGroup lets a handler's process group continue, killGroup ends it at once.
func thawGroup(pid int) { _ = osprocess.ThawGroup(pid) }

func killGroup(pid int) { _ = osprocess.SignalGroup(pid, syscall.SIGKILL) }
