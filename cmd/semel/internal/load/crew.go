package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/internal/process"
)

// starting is how long a worker may take until it consumes.
const starting = time.Minute

// ending is how long a worker may take to drain when there is nothing left to do.
const ending = 30 * time.Second

// crew is the worker processes. It belongs to one goroutine.
type crew struct {
	b     *bench
	all   []*member
	exits chan *member
}

// member is one worker process.
type member struct {
	*process.Process
	n       int
	running bool
	ready   chan struct{} // closed when it consumes
	begins  sync.Once     // closes it

	log    *os.File
	errors []string // its ERROR lines; complete when it has ended, as last is
	last   string
}

func newCrew(b *bench) *crew { return &crew{b: b, exits: make(chan *member, b.Workers)} }

func (c *crew) file(kind string, n int) string {
	return filepath.Join(c.b.dir, fmt.Sprintf("%s-%d", kind, n))
}

func (c *crew) ledger() string { return filepath.Join(c.b.dir, "effects.jsonl") }

// start starts n workers, and waits until all of them consume.
func (c *crew) start(ctx context.Context, n int) error {
	for i := range n {
		if err := c.hire(i + 1); err != nil {
			return err
		}
	}
	late := time.NewTimer(starting)
	defer late.Stop()
	for _, m := range c.all {
		select {
		case <-m.ready:
		case gone := <-c.exits:
			return c.left(gone)
		case <-late.C:
			return fmt.Errorf("worker %d was not ready within %s", m.n, starting)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// arguments of `semel work`. What may have a password is in the environment.
func (c *crew) arguments(n int) []string {
	took := c.b.HandlerTime.String()
	return []string{
		"work", "--consumer", "bench", "--simulate=sleep-min=" + took + ",sleep-max=" + took + ",ledger=" + escape(c.ledger()),
		"--events", c.file("events", n), "--concurrency", strconv.Itoa(c.b.Concurrency), "--visibility", c.b.Visibility.String(),
		"--log-level", "warn", "--log-format", "json", "-o", "json",
	}
}

// escape writes a path into the list of knobs.
func escape(s string) string { return strings.NewReplacer("%", "%25", ",", "%2C").Replace(s) }

func (c *crew) environ() []string {
	aliases := config.Aliases()
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "SEMEL_OPT_") ||
			slices.ContainsFunc(aliases, func(a config.Alias) bool { return a.Var == name })
	})
	if c.b.urls.Fakes != "" { // they take any
		env = append(env, "AWS_ACCESS_KEY_ID=semel", "AWS_SECRET_ACCESS_KEY=semel", "AWS_PROFILE=", "AWS_SESSION_TOKEN=")
	}
	return append(append(env, "SEMEL_OPT_QUEUE="+c.b.urls.Queue, "SEMEL_OPT_STORE="+c.b.urls.Store), c.b.Env...)
}

func (c *crew) hire(n int) (err error) {
	m := &member{n: n, ready: make(chan struct{})}
	if m.log, err = os.Create(c.file("log", n)); err != nil {
		return fmt.Errorf("start worker %d: %w", n, err)
	}
	argv := append(slices.Clone(c.b.Command), c.arguments(n)...)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the crew ends its processes, and waits for them
	cmd.Env, cmd.Stderr = c.environ(), &process.Output{Keep: 1, Each: m.logged}
	if m.Process, err = process.Start(cmd); err != nil {
		return errors.Join(fmt.Errorf("start worker %d: %w", n, err), m.log.Close())
	}
	m.running = true
	c.all = append(c.all, m)
	go func() {
		<-m.Done()
		_ = m.log.Close()
		c.exits <- m
	}()
	return nil
}

// logged takes a line of the worker's log: when it is ready, and what went wrong.
func (m *member) logged(line string) {
	_, _ = fmt.Fprintln(m.log, line)
	if strings.HasPrefix(line, "guarantee: ") {
		m.begins.Do(func() { close(m.ready) })
	}
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	m.last = line
	var l struct{ Level string }
	if json.Unmarshal([]byte(line), &l) == nil && l.Level == "ERROR" {
		m.errors = append(m.errors, line)
	}
}

// wait waits, and finds out when a worker leaves meanwhile.
func (c *crew) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case m := <-c.exits:
		return c.left(m)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return ctx.Err()
	}
}

// left is the error of a worker that ended by itself.
func (c *crew) left(m *member) error {
	m.running = false
	if m.Wait() == nil {
		return fmt.Errorf("worker %d ended although it was not asked to: %s", m.n, m.last)
	}
	return fmt.Errorf("worker %d ended by itself: %w: %s", m.n, m.Wait(), m.last)
}

// stop asks the workers to drain, and waits for them.
func (c *crew) stop() error {
	for _, m := range c.all {
		if m.running {
			_ = m.Terminate()
		}
	}
	late := time.NewTimer(ending)
	defer late.Stop()
	for c.working() > 0 {
		select {
		case m := <-c.exits:
			m.running = false
			if m.Wait() != nil && (process.HasSignals || !m.Killed()) {
				return c.left(m)
			}
		case <-late.C:
			n := c.working()
			c.abandon()
			return fmt.Errorf("%d workers did not end within %s", n, ending)
		}
	}
	return nil
}

// abandon kills what still runs, and waits for it: no process is left after it.
func (c *crew) abandon() {
	for _, m := range c.all {
		if m.running {
			_ = m.Signal(syscall.SIGKILL)
		}
	}
	for c.working() > 0 {
		(<-c.exits).running = false
	}
}

func (c *crew) working() (n int) {
	for _, m := range c.all {
		if m.running {
			n++
		}
	}
	return n
}
