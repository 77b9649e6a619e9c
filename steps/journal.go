package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// This file is how a run reads and writes its journal: calls without a response are repeated, a loser stops.

// grace is how long a write goes on after its context ended for another reason than a lost lease: effects that happened
// should be recorded.
const grace = 3 * time.Second

// load reads the journal.
func (r *Run) load(ctx context.Context) error {
	var rows []driver.Step
	err := r.ask(ctx, "read the journal of steps", func(ctx context.Context) (bool, error) {
		var err error
		rows, err = r.store.Steps(ctx, r.a.Hold())
		return err == nil, err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal, r.rows = rows, make(map[string]driver.Step, len(rows))
	for _, s := range rows {
		r.rows[s.Name] = s
		if s.State == driver.RunCompensating {
			r.backwards, r.reason = true, s.Reason
		}
	}
	return nil
}

const (
	// maxRefusals is how many times in a row a store that can write may refuse effects, without naming them as the cause,
	// before that is the run's failure.
	maxRefusals = 8
	// lockPause is the delay of a run whose effects wait for another's lock.
	lockPause = 2 * time.Second
)

// write writes to the journal, and stops the run when it is no longer ours (law 2). Refused effects return an error and do
// not stop the run: nothing was written. Effects that wait for a lock stop the run until later, without a failure.
func (r *Run) write(ctx context.Context, w ...driver.StepWrite) error {
	effects := slices.ContainsFunc(w, func(w driver.StepWrite) bool { return w.Effects != nil })
	refusals := 0
	return r.ask(ctx, "write the journal of steps", func(ctx context.Context) (bool, error) {
		o, err := r.store.WriteSteps(ctx, r.a.Hold(), w...)
		var refused *driver.ItemError
		named := errors.As(err, &refused)
		if refusals++; !(named && refused.Transient) && (!errors.Is(err, driver.ErrNotCommitted) || errors.Is(err, driver.ErrOutage)) {
			refusals = 0
		}
		switch {
		case named && errors.Is(err, driver.ErrBlocked):
			return true, r.halt(r.later(fmt.Errorf("effects were not written: %w", refused.Err), lockPause))
		case named && !refused.Transient:
			return true, semel.NotApplied(fmt.Errorf("effects were refused: %w", refused.Err))
		case effects && refusals >= maxRefusals && !errors.Is(err, driver.ErrBlocked):
			return true, semel.NotApplied(fmt.Errorf("effects were refused %d times: %w", refusals, err))
		case err != nil, o == driver.Unknown:
			return false, err
		case o == driver.Lost:
			return true, r.halt(fmt.Errorf("write the journal of steps: %w", semel.ErrFenced))
		}
		return true, nil
	})
}

// ask repeats a call until it returns a result (law 4), the lease is lost, or ctx has ended and the grace period with it.
// Then the run is halted, because the state of the journal is unknown. That spends no attempt.
func (r *Run) ask(ctx context.Context, what string, call func(ctx context.Context) (bool, error)) error {
	if err := r.stopped(); err != nil {
		return err
	}
	late := false
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if errors.Is(context.Cause(ctx), semel.ErrFenced) {
			return r.halt(fmt.Errorf("%s: %w", what, semel.ErrFenced))
		}
		if ctx.Err() != nil && !late {
			late = true
			until := time.Now().Add(grace)
			if lease := r.a.LeaseUntil(); !lease.IsZero() && lease.Before(until) {
				until = lease
			}
			detached, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
			defer cancel()
			ctx = detached
		}
		done, err := call(ctx)
		switch {
		case done:
			return err
		case errors.Is(err, driver.ErrUnsupported):
			return r.halt(semel.Permanent(fmt.Errorf("%s: %w", what, err)))
		case !r.cfg.sleep(ctx, pause) && late:
			// Not a failure: in the last attempt it would dead-letter the message, and leave the run's effects in place.
			return r.halt(r.later(fmt.Errorf("%s: %w", what, errors.Join(semel.ErrNoResponse, err)), time.Second))
		}
	}
}

// maxReason bounds what a journal keeps of an error, in bytes: every later attempt reads it again, and an error may quote
// a whole response.
const maxReason = 8 << 10

// reasonOf is an error as the journal keeps it.
func reasonOf(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// halt stops the run: no step and no compensation is called after it. The first reason stays.
func (r *Run) halt(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.halted == nil {
		r.halted = err
	}
	return r.halted
}

func (r *Run) stopped() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.halted
}

// note keeps what a write made of a step.
func (r *Run) note(name string, change func(s *driver.Step)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.rows[name]
	s.Name = name
	change(&s)
	r.rows[name] = s
}
