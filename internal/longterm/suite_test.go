package longterm_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/front"
	"github.com/semel-dev/semel/internal/longterm"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// filters are the states that a filter can be in. None of them changes an answer.
var filters = map[string]func(t testing.TB, s *memory.Store, now func() time.Time) driver.Store{
	"ready": func(t testing.TB, s *memory.Store, _ func() time.Time) driver.Store {
		tier := longterm.NewTier(s, longterm.Options{Keep: time.Hour, Retention: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tier.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		for !tier.Stats().Ready {
			time.Sleep(time.Millisecond) // the pause between two looks
		}
		return longterm.New(s, tier)
	},
	"perhaps to everything": func(_ testing.TB, s *memory.Store, _ func() time.Time) driver.Store {
		return longterm.New(s, longterm.NewTier(s, longterm.Options{Keep: time.Hour, Retention: time.Hour, Perhaps: true}))
	},
	"never filled": func(_ testing.TB, s *memory.Store, _ func() time.Time) driver.Store {
		return longterm.New(s, longterm.NewTier(s, longterm.Options{Keep: time.Hour, Retention: time.Hour}))
	},
	"before a cache of one": func(_ testing.TB, s *memory.Store, now func() time.Time) driver.Store {
		c := front.New(s, front.Options{Size: 1, Now: now})
		return longterm.New(c, longterm.NewTier(s, longterm.Options{Keep: time.Hour, Retention: time.Hour}))
	},
}

// TestStoreSuite runs the conformance suite over a tier: not one answer differs from the decision table's where nothing is
// remembered, whatever the filter's state.
func TestStoreSuite(t *testing.T) {
	for name, wrap := range filters {
		t.Run(name, func(t *testing.T) {
			semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
				var at atomic.Int64
				at.Store(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano())
				now := func() time.Time { return time.Unix(0, at.Load()).UTC() }
				db := memory.Open(memory.WithClock(now))
				return semeltest.StoreSetup{
					Store: wrap(t, db.Store(), now), Queue: db.Queue("orders"), Ledger: memledger.Of(db.Store()),
					Sample:  semeltest.Sampled(11),
					Advance: func(d time.Duration) { at.Add(int64(d)); db.Wake() },
				}
			})
		})
	}
}

type addFunc = func(ctx context.Context, add func(string) error, a *semel.Attempt) error

// TestPairSuite runs whole consumers over a tier.
func TestPairSuite(t *testing.T) {
	handlers := map[string]func(fn addFunc) semel.Handler{
		"collected": func(fn addFunc) semel.Handler {
			return semel.InTx(func(ctx context.Context, e *memory.Effects, a *semel.Attempt) error {
				return fn(ctx, func(id string) error { e.Append("ledger", id); return nil }, a)
			})
		},
		"open": func(fn addFunc) semel.Handler {
			return semel.InTx(func(ctx context.Context, tx *memory.Tx, a *semel.Attempt) error {
				return fn(ctx, func(id string) error { return tx.Append("ledger", id) }, a)
			})
		},
	}
	for filter, wrap := range filters {
		if filter != "never filled" && !semeltest.Nightly() {
			continue
		}
		for name, tx := range handlers {
			t.Run(filter+"/"+name, func(t *testing.T) {
				semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
					db := memory.Open(memory.WithVisibility(time.Second))
					return semeltest.PairSetup{
						Queue: db.Queue("orders"), Store: wrap(t, db.Store(), time.Now), Visibility: time.Second,
						Ledger: memledger.Of(db.Store()), Tx: tx,
					}
				})
			})
		}
	}
}
