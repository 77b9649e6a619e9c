package worker

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// GuardArg is the hidden argument that makes this program a guard (see [Guard]).
const GuardArg = "__guard"

// Guard ends handlers whose worker died: a small process of its own that knows which handlers run, and kills them when
// its worker crashes. The parent-death signal alone does not suffice: it reaches only the handler process, not what the
// handler started (the command of a shell, say), and exists on Linux only.
//
// The worker sends the guard the name of a run before it forks the handler. The handler and all its children carry that name in
// their environment, so the guard knows every handler that runs. Where processes cannot be found by their environment, the worker
// sends the process group right after the fork.
//
// The nil Guard does nothing.
type Guard struct {
	proc *process.Process
	name string
	last atomic.Uint64
	mu   sync.Mutex
	in   io.WriteCloser
}

// runVariable names the run that a process belongs to.
const runVariable = "SEMEL_RUN"

// StartGuard starts the guard of this process. argv is the program that calls [ServeGuard].
func StartGuard(argv ...string) (*Guard, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	process.Detach(cmd)
	var out process.Output
	cmd.Env, cmd.Stdout = []string{}, &out
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	p, err := process.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	// It writes a line when it is ready: from then on it ignores the signals that may reach it.
	if _, err := p.Await(context.Background(), &out, process.Contains("ready")); err != nil {
		return nil, fmt.Errorf("start guard: no response: %w", err)
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return &Guard{proc: p, in: in, name: hex.EncodeToString(b[:])}, nil
}

// starting announces a run and returns its name, for the environment; "" for the nil Guard.
func (g *Guard) starting() string {
	if g == nil {
		return ""
	}
	run := fmt.Sprintf("%s.%d", g.name, g.last.Add(1))
	g.tell("+ %s 0\n", run)
	return run
}

// started adds the process group of a run; ended forgets the run.
func (g *Guard) started(run string, pid int) { g.tell("+ %s %d\n", run, pid) }
func (g *Guard) ended(run string)            { g.tell("- %s 0\n", run) }

func (g *Guard) tell(format string, args ...any) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// One short write is one whole message in a pipe. If the guard is gone, the parent-death signal remains.
	_, _ = fmt.Fprintf(g.in, format, args...)
}

// Close ends the guard; handlers that still run are killed.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	err := g.in.Close()
	g.mu.Unlock()
	return errors.Join(err, g.proc.Wait())
}

// ServeGuard is the guard process: it reads "+ RUN GROUP" and "- RUN 0", one a line, and at the end of in kills what is
// left. The worker's death closes in.
func ServeGuard(in io.Reader, ready io.Writer) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := fmt.Fprintln(ready, "ready"); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	running := map[string]int{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var what, run string
		var group int
		if _, err := fmt.Sscan(lines.Text(), &what, &run, &group); err != nil {
			continue // the last line may be cut off
		}
		switch what {
		case "+":
			running[run] = group
		case "-":
			delete(running, run)
		}
	}
	if len(running) > 0 {
		killRuns(running)
	}
	return lines.Err()
}

// killRuns kills the groups, then every process that carries the name of one of the runs, until there is none left: a
// process may fork while its siblings are killed.
func killRuns(running map[string]int) {
	for _, group := range running {
		if group > 1 {
			_ = process.SignalGroup(group, syscall.SIGKILL) // it may be gone
		}
	}
	for quiet := 0; quiet < 3; time.Sleep(2 * time.Millisecond) {
		pids := process.WithVariable(func(v string) bool {
			run, ok := strings.CutPrefix(v, runVariable+"=")
			_, ours := running[run]
			return ok && ours
		})
		if len(pids) > 0 {
			quiet = 0
		} else {
			quiet++
		}
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}
}

// GuardArgv is how this program is started as a guard.
func GuardArgv() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{self, GuardArg}, nil
}
