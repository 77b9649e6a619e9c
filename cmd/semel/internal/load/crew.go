package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	ended chan *member // every member, at its end
}

// member is one worker process.
type member struct {
	*process.Process

	n   int
	log *os.File
	out process.Output // its log
}

func newCrew(b *bench) *crew { return &crew{b: b, ended: make(chan *member, b.Workers)} }

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
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	for _, m := range c.all {
		if _, err := m.Await(ctx, &m.out, process.Contains("guarantee: ")); err != nil {
			return fmt.Errorf("worker %d is not ready: %w", m.n, err)
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
	m := &member{n: n}
	if m.log, err = os.Create(c.file("log", n)); err != nil {
		return fmt.Errorf("start worker %d: %w", n, err)
	}
	argv := append(slices.Clone(c.b.Command), c.arguments(n)...)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the crew ends its processes, and waits for them
	cmd.Env, cmd.Stderr = c.environ(), io.MultiWriter(m.log, &m.out)
	if m.Process, err = process.Start(cmd); err != nil {
		return errors.Join(fmt.Errorf("start worker %d: %w", n, err), m.log.Close())
	}
	c.all = append(c.all, m)
	go func() {
		<-m.Done()
		_ = m.log.Close()
		c.ended <- m
	}()
	return nil
}

// errors are the ERROR lines of the log of a member that has ended.
func (m *member) errors() (lines []string) {
	for line := range strings.Lines(m.out.String()) {
		var l struct{ Level string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Level == "ERROR" {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// wait waits, and finds out when a worker leaves meanwhile.
func (c *crew) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case m := <-c.ended:
		return m.left()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return ctx.Err()
	}
}

// left is the error of a worker that ended by itself.
func (m *member) left() error {
	lines := strings.Split(strings.TrimSpace(m.out.String()), "\n")
	return fmt.Errorf("worker %d ended by itself (%v): %s", m.n, m.State(), lines[len(lines)-1])
}

// stop asks the workers to drain, once, and waits for them.
func (c *crew) stop() error {
	errs := make([]error, len(c.all))
	var g sync.WaitGroup
	for i, m := range c.all {
		g.Go(func() { errs[i] = m.Stop(ending) })
	}
	g.Wait()
	for i, m := range c.all {
		err := errs[i]
		switch {
		case err == nil || !process.HasSignals && m.Killed():
		case m.Killed():
			return fmt.Errorf("worker %d: %w", m.n, err)
		default:
			return m.left()
		}
	}
	return nil
}

// abandon kills what still runs, and waits for it: no process is left after it.
func (c *crew) abandon() {
	for _, m := range c.all {
		m.Kill()
	}
}
