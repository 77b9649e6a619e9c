package crew

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Worker is a worker process, seen from the one that started it.
type Worker struct {
	Task Task
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{} // closed when the process has ended and err is set

	mu     sync.Mutex
	last   Report
	frozen bool
	err    error
	stderr tailBuffer
}

// Spawn starts a worker: this program again, which has to call MainIfWorker.
func Spawn(t Task) (*Worker, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("write a worker's task: %w", err)
	}
	w := &Worker{Task: t, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), environment+"="+string(text))
	w.cmd.Stderr = &w.stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	go w.listen(out)
	return w, nil
}

func (w *Worker) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r Report
		if json.Unmarshal(lines.Bytes(), &r) == nil { // a killed worker's last line may be a part of one
			w.mu.Lock()
			w.last = r
			w.mu.Unlock()
		}
	}
	err := w.cmd.Wait()
	w.mu.Lock()
	if err != nil {
		w.err = fmt.Errorf("worker %d (%s) ended with %w: %s", w.Pid(), w.Task.Mode, err, strings.TrimSpace(w.stderr.String()))
	}
	w.mu.Unlock()
	close(w.done)
}

// Pid is its process id.
func (w *Worker) Pid() int { return w.cmd.Process.Pid }

// Report is what it said last.
func (w *Worker) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Done is closed when the process has ended.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Err is why the process ended; nil while it runs and after an orderly end.
func (w *Worker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Kill ends it with SIGKILL and waits until it is gone. A frozen one dies too.
func (w *Worker) Kill() {
	_ = w.cmd.Process.Kill() // fails when it is gone already
	<-w.done
}

// Freeze stops it with SIGSTOP: no timer runs, no connection breaks.
func (w *Worker) Freeze() error { return w.signal(syscall.SIGSTOP, true) }

// Thaw lets a frozen worker go on.
func (w *Worker) Thaw() error { return w.signal(syscall.SIGCONT, false) }

// Frozen reports whether it is frozen.
func (w *Worker) Frozen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frozen
}

func (w *Worker) signal(s syscall.Signal, frozen bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = frozen
	if err := w.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to worker %d: %w", s, w.Pid(), err)
	}
	return nil
}

// Stop asks it to drain and waits. An error says that it ended otherwise than orderly; after two minutes it is killed.
func (w *Worker) Stop() error {
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop worker %d: %w", w.Pid(), err)
	}
	select {
	case <-w.done:
		return w.Err()
	case <-time.After(2 * time.Minute):
		w.Kill()
		return fmt.Errorf("worker %d (%s) did not drain in two minutes", w.Pid(), w.Task.Mode)
	}
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b); n > 4096 {
		t.b = append(t.b[:0], t.b[n-4096:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// Sleep waits, or returns when ctx is done.
func Sleep(ctx context.Context, d time.Duration) { sleep(ctx, d) }
