package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// This file is the journal of durable steps (package steps) as one process sees it.

// Steps reads a journal.
func (s *shell) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	return s.steps.Steps(ctx, h)
}

// WriteSteps writes a journal. A dead process has none.
func (s *shell) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	if s.dead() {
		return driver.Lost, nil
	}
	o, err := s.steps.WriteSteps(ctx, h, s.carriedSteps(w)...)
	if err == nil && o == driver.Applied {
		s.p.w.journal(s.p, h, w)
	}
	return o, err
}

// carriedSteps takes out the statements that the inner store cannot carry out: see Offers.
func (s *shell) carriedSteps(w []driver.StepWrite) []driver.StepWrite {
	if s.committer == nil || s.sql() {
		return w
	}
	w = slices.Clone(w)
	for i := range w {
		if _, ok := w[i].Effects.(*semel.Statements); ok {
			w[i].Effects = nil
		}
	}
	return w
}

// journal records what committed with a step, once for each: a repeated write is no second effect.
func (w *execution) journal(p *Process, h driver.Hold, writes []driver.StepWrite) {
	w.update(func() {
		for i := range writes {
			b, ok := writes[i].Effects.(*semel.Statements)
			id := fmt.Sprint(h.Key, h.Epoch, h.Version, writes[i].Kind, writes[i].Name)
			if !ok || b == nil || w.journalled[id] {
				continue
			}
			w.journalled[id] = true
			w.queued(p, b)
		}
	})
}

// queued records statements that committed. The lock is held.
func (w *execution) queued(p *Process, b *semel.Statements) {
	for _, s := range b.List {
		w.effects = append(w.effects, Effect{
			Name: oneLine(s.SQL), Process: p.number, Run: p.runs, Queued: true, kind: queued, content: fmt.Sprint(s.Args...),
		})
	}
}
