// Package keymigrationtest makes a store that claims two keys look like one that claims one, for conformance suites.
// Whatever a suite does to a key happens to its new key too, and every result has to be that of one record.
package keymigrationtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/keymigration"
)

const suffix = " (new)"

// NewKey is the new key of a key.
func NewKey(k driver.Key) driver.Key {
	k.Consumer += suffix
	return k
}

// Migrating wraps a store. It is a driver.Committer, a driver.Transactor and a driver.RecordInspector if inner is one. It
// passes nothing else that writes: sweeps and operators see each record by itself.
func Migrating(inner driver.Store) driver.Store {
	s := &store{inner: keymigration.New(inner, keymigration.Options{Keep: 24 * time.Hour, Lease: time.Hour}), held: map[driver.Hold]driver.Hold{}}
	s.shows, _ = driver.As[driver.RecordInspector](inner)
	s.com, _ = driver.As[driver.Committer](s.inner)
	s.tx, _ = driver.As[driver.Transactor](s.inner)
	return s
}

type store struct {
	inner driver.Store
	shows driver.RecordInspector
	com   driver.Committer
	tx    driver.Transactor

	mu   sync.Mutex
	held map[driver.Hold]driver.Hold // by that of the previous key
}

// Unwrap returns the store that claims two keys.
func (s *store) Unwrap() any { return s.inner }

func (s *store) Features() driver.StoreFeatures { return s.inner.Features() }

func (s *store) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	return s.shows.Record(ctx, k)
}

// Records leaves the new keys out.
func (s *store) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	limit := f.Limit
	f.Limit = 0
	all, err := s.shows.Records(ctx, f)
	all = slices.DeleteFunc(all, func(r driver.Record) bool { return strings.HasSuffix(r.Key.Consumer, suffix) })
	if limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	return all, err
}

func migrating(c []driver.Claim) []driver.Claim {
	out := make([]driver.Claim, len(c))
	for i := range c {
		if out[i] = c[i]; c[i].Version == "" {
			out[i].NewKey = NewKey(c[i].Key)
		}
	}
	return out
}

// keep remembers the new keys of grants, and hides them.
func (s *store) keep(g []driver.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range g {
		if m := g[i].Hold.NewKey; m != nil {
			g[i].Hold.NewKey = nil
			s.held[g[i].Hold] = *m
		}
	}
}

// hold is the hold with its new key.
func (s *store) hold(h driver.Hold) driver.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, yes := s.held[h]; yes {
		h.NewKey = &m
	}
	return h
}

func (s *store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	g, err := s.inner.Claim(ctx, migrating(c)...)
	s.keep(g)
	return g, err
}

func (s *store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	all := make([]driver.Hold, len(h))
	for i := range h {
		all[i] = s.hold(h[i])
	}
	return s.inner.Extend(ctx, lease, all...)
}

func (s *store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	all := make([]driver.Finish, len(f))
	for i := range f {
		all[i] = f[i]
		all[i].Hold = s.hold(f[i].Hold)
	}
	return s.inner.Finish(ctx, all...)
}

func (s *store) works(w []driver.Work) []driver.Work {
	all := make([]driver.Work, len(w))
	for i := range w {
		all[i] = w[i]
		all[i].Finish.Hold = s.hold(w[i].Finish.Hold)
	}
	return all
}

func (s *store) Offers(effects any) bool   { return s.com.Offers(effects) }
func (s *store) OffersTx(handle any) bool  { return s.tx.OffersTx(handle) }
func (s *store) Joins(q driver.Queue) bool { return s.com.Joins(q) }

func (s *store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	return s.com.Commit(ctx, s.works(w)...)
}

func (s *store) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	x, g, err := s.tx.Begin(ctx, migrating(c)...)
	s.keep(g)
	if x != nil {
		x = &open{x, s}
	}
	return x, g, err
}

type open struct {
	driver.Tx
	s *store
}

func (o *open) Commit(ctx context.Context, w ...driver.Work) error {
	return o.Tx.Commit(ctx, o.s.works(w)...)
}

// Unwrap returns the transaction that holds two keys.
func (o *open) Unwrap() any { return o.Tx }
