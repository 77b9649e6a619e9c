package sim

import (
	"context"
	"math"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/front"
)

// This file puts package front, as it runs in production, before the model's store: each worker has one of its own, which
// dies with it. What other workers, people and sweeps do to a record it does not see.

// frontMaxAge is for how long a front repeats an answer.
const frontMaxAge = 4 * lease

// shop is the store that a worker's front stands before: it answers what its worker's request comes to.
type shop struct {
	driver.Store
	claim   func() driver.Grant
	outcome driver.Outcome
	asked   bool
}

// stand is a worker's front, nil in seeds that have none, and what is behind it.
type stand struct {
	front driver.Store
	shop  shop
}

// Claim decides the one claim that is under way.
func (s *shop) Claim(context.Context, ...driver.Claim) ([]driver.Grant, error) {
	s.asked = true
	return []driver.Grant{s.claim()}, nil
}

// Finish answers what became of the one that is under way.
func (s *shop) Finish(context.Context, ...driver.Finish) ([]driver.Outcome, error) {
	return []driver.Outcome{s.outcome}, nil
}

// fronted tells whether the workers have fronts, without a draw of its own: other seeds keep their histories.
func (w *world) fronted() bool { return w.seed%3 == 1 || w.mut.ofFront() }

// openFront gives a worker that starts a front, small or large.
func (k *worker) openFront() {
	w := k.world
	k.front = nil
	if !w.fronted() {
		return
	}
	o := front.Options{
		Size: 1, MaxAge: frontMaxAge, Strangers: w.seed%5 < 3, Now: func() time.Time { return epoch.Add(w.now) },
	}
	if w.seed%2 == 0 || w.mut.ofFront() {
		o.Size = 8 * maxKeys // no entry has to go: the history does not hang on what is let go first
	}
	if w.mut == mutFrontForever {
		o.MaxAge = math.MaxInt64 / 4
	}
	k.front = front.New(&k.shop, o)
}

// claimAt decides a claim by the worker's front and, where that has no answer, by decide.
func (w *world) claimAt(r *request, c *driver.Claim, decide func() driver.Grant) driver.Grant {
	k := &w.workers[r.worker]
	if k.front == nil || r.late || k.inc != r.inc {
		return decide()
	}
	k.shop.claim, k.shop.asked = decide, false
	q := *c
	switch w.mut {
	case mutFrontVersion:
		q.Version = ""
	case mutFrontPayload:
		q.Fingerprint = ""
	}
	grants, _ := k.front.Claim(context.Background(), q)
	g := grants[0]
	if k.shop.asked {
		return g
	}
	row := w.row(c.Key.Raw)
	rec := &w.st.recs[row]
	w.stats.Hits++
	if w.tr != nil {
		w.tr.add(w, w.business(row), "front of worker %d: claim %s: %v, token %d", r.worker, c.Key.Raw, g.Verdict, g.Hold.Token)
	}
	if g.Verdict == driver.Replay && !(c.Version != "" && c.Version < rec.Watermark.Applied) {
		w.onClaim(rec, rec, c, &g)
	}
	return g
}

// finishedAt tells the worker's front what became of the end of an attempt.
func (w *world) finishedAt(r *request, f *driver.Finish, o driver.Outcome) {
	k := &w.workers[r.worker]
	if k.front == nil || r.late || k.inc != r.inc {
		return
	}
	told := *f
	switch {
	case w.mut == mutFrontFailed && f.Final == driver.Fail:
		told.Final = driver.Complete
	case w.mut == mutFrontUnknown && o == driver.Unknown:
		o = driver.Applied
	case w.mut == mutFrontForever:
		told.Keep = math.MaxInt64 / 4
	}
	k.shop.outcome = o
	_, _ = k.front.Finish(context.Background(), told)
}

// ofFront reports that a mutant is a mistake of fronts.
func (m mutant) ofFront() bool { return m >= mutFrontFailed && m <= mutFrontVersion }
