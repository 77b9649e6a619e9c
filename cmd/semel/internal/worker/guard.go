package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// GuardArg is the hidden argument that makes this program a guard (see [Guard]).
const GuardArg = "__guard"

// Guard ends handlers whose worker died: a small process of its own that knows which process groups run, and kills them
// when its worker goes without a word. It closes what the parent-death signal leaves open: that one reaches the handler
// process alone, not what the handler started (the command of a shell, say), and exists on Linux only.
//
// The nil Guard does nothing.
type Guard struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.WriteCloser
}

// StartGuard starts the guard of this process. argv is the program that calls [ServeGuard].
func StartGuard(argv ...string) (*Guard, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = ownSession()
	cmd.Env = []string{}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	// It answers when it is ready: from then on it ignores the signals that may reach it.
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = in.Close()
		return nil, errors.Join(fmt.Errorf("start guard: no answer: %w", err), cmd.Wait())
	}
	return &Guard{cmd: cmd, in: in}, nil
}

func (g *Guard) started(pid int) { g.tell('+', pid) }
func (g *Guard) ended(pid int)   { g.tell('-', pid) }

func (g *Guard) tell(what byte, pid int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// One short write is one whole message in a pipe. A guard that is gone cannot be told; the parent-death signal stays.
	_, _ = fmt.Fprintf(g.in, "%c%d\n", what, pid)
}

// Close ends the guard; handlers that still run are killed.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	err := g.in.Close()
	g.mu.Unlock()
	return errors.Join(err, g.cmd.Wait())
}

// ServeGuard is the guard process: it reads +PID and -PID from in, one a line, and at its end kills the process groups
// that are left. The worker's death closes in.
func ServeGuard(in io.Reader, ready io.Writer) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := fmt.Fprintln(ready, "ready"); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	running := map[int]bool{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		pid, err := strconv.Atoi(strings.TrimLeft(line, "+-"))
		if err != nil || pid <= 1 {
			continue
		}
		if strings.HasPrefix(line, "+") {
			running[pid] = true
		} else {
			delete(running, pid)
		}
	}
	for pid := range running {
		signalGroup(pid, syscall.SIGKILL)
	}
	return lines.Err()
}

// GuardArgv is how this program is started as a guard.
func GuardArgv() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{self, GuardArg}, nil
}
