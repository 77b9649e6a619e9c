package sim

import (
	"context"
	"math"

	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
)

// This file puts package cache, as it runs in production, before the model's store. Each worker has a cache of its own,
// which dies with it. It does not see what other workers, operators and sweeps do to a record.

// cacheMaxAge is for how long a cache repeats a result.
const cacheMaxAge = 4 * lease

// shop is the store behind a worker's cache. It returns the outcome of the worker's request.
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

// Claim decides the claim in flight.
func (s *shop) Claim(context.Context, ...driver.Claim) ([]driver.Grant, error) {
	s.asked = true
	return []driver.Grant{s.claim()}, nil
}

// Finish returns the outcome of the write in flight.
func (s *shop) Finish(context.Context, ...driver.Finish) ([]driver.Outcome, error) {
	return []driver.Outcome{s.outcome}, nil
}

// cached reports whether the workers have caches, without a draw of its own: other seeds keep their histories.
func (w *simulation) cached() bool { return w.Seed%3 == 1 || w.mut.ofCache() }

// openCache gives a starting worker a cache, small or large.
func (k *worker) openCache() {
	w := k.w
	k.cache = nil
	if !w.cached() {
		return
	}
	o := cache.Options{
		Size: 1, MaxAge: cacheMaxAge, Strangers: w.Seed%5 < 3, Now: w.Time,
	}
	if w.Seed%2 == 0 || w.mut.ofCache() {
		o.Size = 8 * maxKeys // no entry is evicted: the history does not depend on the order of evictions
	}
	if w.mut == mutCacheForever {
		o.MaxAge = math.MaxInt64 / 4
	}
	k.cache = cache.New(&k.shop, o)
}

// claimAt decides a claim by the worker's cache, or by decide if the cache has no entry.
func (w *simulation) claimAt(r *request, c *driver.Claim, decide func() driver.Grant) driver.Grant {
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
	if w.Trace != nil {
		w.log(w.business(row), "cache of worker %d: claim %s: %v, token %d", r.worker, c.Key.Raw, g.Verdict, g.Hold.Token)
	}
	if g.Verdict == driver.Replay && !(c.Version != "" && c.Version < rec.Watermark.Applied) {
		w.onClaim(rec, rec, c, &g)
	}
	return g
}

// finishedAt reports the outcome of an attempt's end to the worker's cache.
func (w *simulation) finishedAt(r *request, f *driver.Finish, o driver.Outcome) {
	k := &w.workers[r.worker]
	if k.cache == nil || r.late || k.inc != r.inc {
		return
	}
	seen := *f
	switch {
	case w.mut == mutCacheFailed && f.Final == driver.Fail:
		seen.Final = driver.Complete
	case w.mut == mutCacheUnknown && o == driver.Unknown:
		o = driver.Applied
	case w.mut == mutCacheForever:
		seen.Keep = math.MaxInt64 / 4
	}
	k.shop.outcome = o
	_, _ = k.cache.Finish(context.Background(), seen)
}

// ofCache reports that a mutant is a mistake of caches.
func (m mutant) ofCache() bool { return m >= mutCacheFailed && m <= mutCacheVersion }
