package crew

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// Worker is a worker process, seen from the one that started it.
type Worker struct {
	*process.Process
	Task   Task
	stderr process.Output

	mu     sync.Mutex
	last   Report
	frozen bool
}

// Spawn starts a worker: this program again, which has to call MainIfWorker.
func Spawn(t Task) (*Worker, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("write a worker's task: %w", err)
	}
	w := &Worker{Task: t, stderr: process.Output{Keep: 4096}}
	cmd := process.Self(environment + "=" + string(text))
	cmd.Stdout, cmd.Stderr = &process.Output{Keep: 1, Each: w.reported}, &w.stderr
	if _, err := cmd.StdinPipe(); err != nil { // it closes when this process dies
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if w.Process, err = process.Start(cmd); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return w, nil
}

func (w *Worker) reported(line string) {
	var r Report
	if json.Unmarshal([]byte(line), &r) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = r
}

// Report is what it said last.
func (w *Worker) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Err is why the process ended; nil while it runs and after an orderly end.
func (w *Worker) Err() error {
	if w.Running() || w.Wait() == nil {
		return nil
	}
	return fmt.Errorf("worker %d (%s) ended with %w: %s", w.Pid(), w.Task.Mode, w.Wait(), strings.TrimSpace(w.stderr.String()))
}

// Freeze stops it with SIGSTOP: no timer runs, no connection breaks.
func (w *Worker) Freeze() error { return w.setFrozen(true, w.Process.Freeze) }

// Thaw lets a frozen worker continue.
func (w *Worker) Thaw() error { return w.setFrozen(false, w.Process.Thaw) }

// Frozen reports whether it is frozen.
func (w *Worker) Frozen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frozen
}

func (w *Worker) setFrozen(frozen bool, signal func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = frozen
	return signal()
}

// Stop asks it to drain and waits. An error says that it ended otherwise than orderly; after two minutes it is killed.
func (w *Worker) Stop() error {
	if err := w.Process.Stop(2 * time.Minute); err != nil {
		return fmt.Errorf("stop worker %d (%s): %w: %s", w.Pid(), w.Task.Mode, err, strings.TrimSpace(w.stderr.String()))
	}
	return nil
}
