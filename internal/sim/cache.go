package sim

import (
	"context"
	"math"
	"time"

	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
)

// This file puts package cache, as it runs in production, before the model's store: each worker has one of its own, which
// dies with it. What other workers, people and sweeps do to a record it does not see.

// cacheMaxAge is for how long a cache repeats an answer.
const cacheMaxAge = 4 * lease

// shop is the store that a worker's cache stands before: it answers what its worker's request comes to.
type shop struct {
	driver.Store
	claim   func() driver.Grant
	outcome driver.Outcome
	asked   bool
}

// stand is a worker's cache, nil in seeds that have none, and what is behind it.
type stand struct {
	cache driver.Store
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

// cached tells whether the workers have caches, without a draw of its own: other seeds keep their histories.
func (w *world) cached() bool { return w.seed%3 == 1 || w.mut.ofCache() }

// openFront gives a worker that starts a cache, small or large.
func (k *worker) openFront() {
	w := k.world
	k.cache = nil
	if !w.cached() {
		return
	}
	o := cache.Options{
		Size: 1, MaxAge: cacheMaxAge, Strangers: w.seed%5 < 3, Now: func() time.Time { return epoch.Add(w.now) },
	}
	if w.seed%2 == 0 || w.mut.ofCache() {
		o.Size = 8 * maxKeys // no entry has to go: the history does not hang on what is let go first
	}
	if w.mut == mutCacheForever {
		o.MaxAge = math.MaxInt64 / 4
	}
	k.cache = cache.New(&k.shop, o)
}

// claimAt decides a claim by the worker's cache and, where that has no answer, by decide.
func (w *world) claimAt(r *request, c *driver.Claim, decide func() driver.Grant) driver.Grant {
	k := &w.workers[r.worker]
	if k.cache == nil || r.late || k.inc != r.inc {
		return decide()
	}
	k.shop.claim, k.shop.asked = decide, false
	q := *c
	switch w.mut {
	case mutCacheVersion:
		q.Version = ""
	case mutCachePayload:
		q.Fingerprint = ""
	}
	grants, _ := k.cache.Claim(context.Background(), q)
	g := grants[0]
	if k.shop.asked {
		return g
	}
	row := w.row(c.Key.Raw)
	rec := &w.st.recs[row]
	w.stats.Hits++
	if w.tr != nil {
		w.tr.add(w, w.business(row), "cache of worker %d: claim %s: %v, token %d", r.worker, c.Key.Raw, g.Verdict, g.Hold.Token)
	}
	if g.Verdict == driver.Replay && !(c.Version != "" && c.Version < rec.Watermark.Applied) {
		w.onClaim(rec, rec, c, &g)
	}
	return g
}

// finishedAt tells the worker's cache what became of the end of an attempt.
func (w *world) finishedAt(r *request, f *driver.Finish, o driver.Outcome) {
	k := &w.workers[r.worker]
	if k.cache == nil || r.late || k.inc != r.inc {
		return
	}
	told := *f
	switch {
	case w.mut == mutCacheFailed && f.Final == driver.Fail:
		told.Final = driver.Complete
	case w.mut == mutCacheUnknown && o == driver.Unknown:
		o = driver.Applied
	case w.mut == mutCacheForever:
		told.Keep = math.MaxInt64 / 4
	}
	k.shop.outcome = o
	_, _ = k.cache.Finish(context.Background(), told)
}

// ofCache reports that a mutant is a mistake of caches.
func (m mutant) ofCache() bool { return m >= mutCacheFailed && m <= mutCacheVersion }
