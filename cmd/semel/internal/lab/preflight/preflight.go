// Package preflight finds out whether scenarios can run here: it tries what they need, in the way in which they
// need it, and takes away what it made.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Options say what is tried.
type Options struct {
	// Where is where scenarios are to run.
	Where place.Where
	// Command starts a worker process: the own program with the hidden command of the lab. Env is added to its environment.
	Command, Env []string
	// Progress gets short lines for a person. nil = none.
	Progress func(string)
}

// Line is one thing that was tried.
type Line struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Hint is how to fix it.
	Hint string `json:"hint,omitempty"`
}

// The names of what is tried, in their order.
const (
	Folder   = "folder"
	Loopback = "loopback"
	Place    = "place"
	Worker   = "worker"
	Signals  = "signals"
)

// Run tries everything, and returns a line for each. A check that needs a failed one is not tried. The error
// is that of ctx, or of usage.
func Run(ctx context.Context, o Options) ([]Line, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if err := o.Where.Check(); err != nil {
		return nil, err
	}
	c := &checks{Options: o}
	defer func() { _ = os.RemoveAll(c.dir) }()
	c.try(ctx, Folder, c.folder)
	c.try(ctx, Loopback, c.loopback)
	c.try(ctx, Place, c.place, Folder)
	c.try(ctx, Worker, c.worker, Folder, Place)
	c.try(ctx, Signals, c.signals, Folder, Place, Worker)
	return c.lines, context.Cause(ctx)
}

type checks struct {
	Options
	dir   string
	lines []Line
}

// try carries out one check, unless one that it needs failed.
func (c *checks) try(ctx context.Context, name string, check func(context.Context) (string, error), needs ...string) {
	if ctx.Err() != nil {
		return
	}
	for _, l := range c.lines {
		for _, need := range needs {
			if l.Name == need && !l.OK {
				c.lines = append(c.lines, Line{Name: name, Detail: "not tried: it needs " + need})
				return
			}
		}
	}
	c.Progress("trying: " + name)
	detail, err := check(ctx)
	line := Line{Name: name, OK: err == nil, Detail: detail}
	if err != nil {
		e := output.As(err)
		line.Detail, line.Hint = e.Error(), e.Hint
	}
	c.lines = append(c.lines, line)
}

// folder: runs keep their databases and events in the folder for temporary files.
func (c *checks) folder(context.Context) (string, error) {
	var err error
	if c.dir, err = os.MkdirTemp("", "semel-validate-"); err == nil {
		err = os.WriteFile(filepath.Join(c.dir, "file"), []byte("written"), 0o600)
	}
	if err != nil {
		return "", output.Failed("%w", err).WithHint("TMPDIR with a folder that can be written")
	}
	return os.TempDir() + " can be written", nil
}

// loopback: fakes, the live view and semel lab up listen there.
func (c *checks) loopback(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = l.Close() }()
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = conn.Write([]byte("hello"))
			err = errors.Join(err, conn.Close())
		}
		accepted <- err
	}()
	conn, err := (&net.Dialer{Timeout: loopbackTimeout}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return "", fmt.Errorf("connect to a port of this machine: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(loopbackTimeout))
	b, err := io.ReadAll(conn)
	if err = errors.Join(err, <-accepted); err != nil || string(b) != "hello" {
		return "", fmt.Errorf("talk over a port of this machine: got %q: %w", b, err)
	}
	return "127.0.0.1 can be listened on and reached", nil
}

// loopbackTimeout is far more than a connection to this machine takes.
const loopbackTimeout = 10 * time.Second

// place: queue and store can be reached, and things can be made in them.
func (c *checks) place(ctx context.Context) (detail string, err error) {
	setup, err := place.NewSetup(c.Where, 1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, setup.Remove(ctx), setup.Close()) }()
	p, err := setup.Make(ctx, "place", c.dir, max(time.Second, setup.MinVisibility()))
	if err != nil {
		return "", err
	}
	r, err := place.Open(ctx, p, time.Second)
	if err != nil {
		return "", err
	}
	_, err = r.Queue.Stats(ctx)
	if _, aside := r.Aside(ctx); err == nil {
		err = aside
	}
	return setup.String() + ": made, opened, looked at and removed", errors.Join(err, r.Close())
}

// orders are few: it is not the scenario that is tried.
const orders = 3

// run runs a little of the simplest scenario, with the guard on.
func (c *checks) run(ctx context.Context, faults ...plan.Fault) (verdict.RunTimeline, error) {
	s, ok := scenarios.Find("happy")
	if !ok {
		return verdict.RunTimeline{}, errors.New("there is no scenario happy")
	}
	s, _, err := s.Resize(orders, 0)
	if err != nil {
		return verdict.RunTimeline{}, err
	}
	s.Workers.Count, s.Workers.Concurrency, s.Faults, s.Expect = 1, 1, faults, nil
	v, err := lab.Run(ctx, s, lab.Options{
		Guards: []plan.Guard{plan.GuardOn}, Seed: 1, Where: c.Where, Exact: true, Command: c.Command, Env: c.Env,
	}, c.Progress)
	if err != nil {
		return verdict.RunTimeline{}, err
	}
	t := v.Timeline.Runs[0]
	if t.Run.Effects != orders {
		err = fmt.Errorf("%d orders left %d effects", orders, t.Run.Effects)
	}
	return t, err
}

// worker: this program can start itself as a worker, and be stopped.
func (c *checks) worker(ctx context.Context) (string, error) {
	t, err := c.run(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("a worker process did %d orders and ended, in %s", t.Run.Effects, verdict.Seconds(float64(t.Run.ElapsedMS))), nil
}

// signals: a worker can be killed and frozen, and goes on afterwards.
func (c *checks) signals(ctx context.Context) (string, error) {
	t, err := c.run(ctx,
		plan.Fault{Do: plan.Freeze, Step: plan.AfterEffect, Count: 1, For: 100 * time.Millisecond},
		plan.Fault{Do: plan.Kill, Step: plan.AfterReceive, Count: 1})
	if err != nil {
		return "", output.Failed("%w", err).WithHint("scenarios without kills and freezes can run: happy, producer-retry, poison, …")
	}
	thawed := 0
	for _, p := range t.Lanes[0].Processes {
		for _, f := range p.Frozen {
			if f.To >= 0 {
				thawed++
			}
		}
	}
	if t.Run.Kills != 1 || thawed != 1 {
		return "", fmt.Errorf("of one SIGKILL and one SIGSTOP %d and %d arrived", t.Run.Kills, thawed)
	}
	return "SIGKILL ends a worker, SIGSTOP freezes it, SIGCONT lets it go on", nil
}
