package crew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
)

// strikes are the faults that need the parent: those from outside, and the end of what lasts.
type strikes struct {
	r *runner
	// outside are not yet done; frozen are those that a worker does to itself and the parent ends.
	outside []plan.Strike
	frozen  []*frozen
	down    bool
	up      time.Time // when the database is back
}

// frozen is a process that is stopped, or will be.
type frozen struct {
	plan.Strike
	pid   int // 0 = not yet
	until time.Time
}

func newStrikes(r *runner) strikes {
	s := strikes{r: r}
	for _, k := range r.Plan.Strikes {
		switch {
		case k.Step == plan.Outside:
			s.outside = append(s.outside, k)
		case k.Do == plan.Freeze:
			s.frozen = append(s.frozen, &frozen{Strike: k})
		}
	}
	return s
}

// look does what is due.
func (s *strikes) look(ctx context.Context, effects int, now time.Time) error {
	keep := s.outside[:0]
	for _, k := range s.outside {
		done := false
		if effects >= k.AtEffects {
			var err error
			if done, err = s.strike(ctx, k, now); err != nil {
				return err
			}
		}
		if !done {
			keep = append(keep, k)
		}
	}
	s.outside = keep
	for _, f := range s.frozen {
		if err := s.thaw(ctx, f, now); err != nil {
			return err
		}
	}
	if s.down && now.After(s.up) {
		return s.restore()
	}
	return nil
}

// strike returns false if there is no process to strike yet.
func (s *strikes) strike(ctx context.Context, k plan.Strike, now time.Time) (bool, error) {
	switch k.Do {
	case plan.Kill:
		return s.r.fleet.kill(k.Worker, now), nil
	case plan.Deploy:
		return s.r.fleet.replace(k.Worker, now), nil
	case plan.Freeze:
		pid := 0
		err := s.r.place.WithWriteLock(ctx, func() { pid = s.r.fleet.freeze(k.Worker, now) })
		if pid == 0 {
			return false, err
		}
		s.frozen = append(s.frozen, &frozen{Strike: k, pid: pid, until: now.Add(k.For)})
		return true, err
	case plan.Outage:
		if err := os.WriteFile(s.r.path(worker.DownFile), nil, 0o600); err != nil {
			return false, fmt.Errorf("put the database out of reach: %w", err)
		}
		s.r.log.Add(eventlog.Entry{Kind: eventlog.Down})
		s.down, s.up = true, now.Add(k.For)
		return true, nil
	}
	return false, fmt.Errorf("unknown action %q", k.Do)
}

// thaw lets a process go on when its time has passed. A process that waits at its step to be frozen is found by its marker.
func (s *strikes) thaw(ctx context.Context, f *frozen, now time.Time) error {
	if f.pid == 0 {
		pid := s.waiting(f.ID)
		if pid == 0 {
			return nil
		}
		var stopped error
		if err := s.r.place.WithWriteLock(ctx, func() { stopped = s.r.fleet.hold(pid) }); err != nil {
			return err
		}
		f.pid = pid
		switch {
		case errors.Is(stopped, os.ErrProcessDone): // something else killed it at its step
		case stopped != nil:
			return fmt.Errorf("freeze process %d: %w", pid, stopped)
		default:
			f.until = now.Add(f.For)
		}
	}
	if f.until.IsZero() || now.Before(f.until) {
		return nil
	}
	f.until = time.Time{}
	s.r.fleet.thaw(f.pid)
	return nil
}

// waiting is the process that waits at its step to be frozen; 0 when none is there yet, or its number is not written yet.
func (s *strikes) waiting(id int) int {
	b, err := os.ReadFile(worker.Marker(s.r.Dir, id))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// lasting reports whether a fault is still on: a frozen process must wake up before the run ends.
func (s *strikes) lasting() bool {
	for _, f := range s.frozen {
		if !f.until.IsZero() {
			return true
		}
	}
	return s.down
}

// end takes back what the workers of another run must not see.
func (s *strikes) end() error {
	if !s.down {
		return nil
	}
	return s.restore()
}

func (s *strikes) restore() error {
	s.down = false
	if err := os.Remove(s.r.path(worker.DownFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("bring the database back: %w", err)
	}
	s.r.log.Add(eventlog.Entry{Kind: eventlog.Up})
	return nil
}
