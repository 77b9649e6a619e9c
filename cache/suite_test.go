package cache_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// clock is a clock that the test moves, for the store and the cache.
type clock struct {
	at atomic.Int64
	db *memory.DB
}

func (c *clock) now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

func (c *clock) advance(d time.Duration) {
	c.at.Add(int64(d))
	c.db.Wake()
}

func openDB() (*memory.DB, *clock) {
	c := &clock{}
	c.at.Store(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano())
	c.db = memory.Open(memory.WithClock(c.now))
	return c.db, c
}

// TestStoreSuite runs the conformance suite over a cache: no field of a grant differs from the decision table's.
// The largest one keeps everything the suite does for a year; the clock is the store's own, and steps back where it does.
func TestStoreSuite(t *testing.T) {
	for name, o := range map[string]cache.Options{
		"size 1":    {Size: 1},
		"size 1000": {Size: 1000},
		"for years": {Size: 1 << 20, MaxAge: 10 * 365 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			var hits atomic.Int64
			semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
				db, clock := openDB()
				mine := o // cells run at once, each with a clock of its own
				mine.Now = clock.now
				s := cache.New(db.Store(), mine)
				t.Cleanup(func() { hits.Add(as[driver.Cached](s).CacheStats().Hits) })
				setup := semeltest.StoreSetup{Store: s, Advance: clock.advance, Queue: db.Queue("orders"), Ledger: memledger.Of(db.Store())}
				if o.MaxAge == 0 {
					setup.Sample = semeltest.Sampled(11)
				}
				return setup
			})
			t.Cleanup(func() {
				t.Logf("%d hits", hits.Load())
				if o.Size > 1 && hits.Load() < 100 {
					t.Errorf("%d hits: the suite hardly hit the cache", hits.Load())
				}
			})
		})
	}
}

// TestPairSuite runs whole consumers on a queue and a cache: their effects, acks and dead letters are those of the store alone.
func TestPairSuite(t *testing.T) {
	effects := func(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler {
		return semel.InTx(func(ctx context.Context, e *memory.Effects, a *semel.Attempt) error {
			return fn(ctx, func(id string) error { e.Append("ledger", id); return nil }, a)
		})
	}
	open := func(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler {
		return semel.InTx(func(ctx context.Context, tx *memory.Tx, a *semel.Attempt) error {
			return fn(ctx, func(id string) error { return tx.Append("ledger", id) }, a)
		})
	}
	type handler = func(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler
	for name, tx := range map[string]handler{"collected": effects, "open": open} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, failure := range semeltest.CheckPair(t, func(testing.TB) semeltest.PairSetup {
					db := memory.Open(memory.WithVisibility(time.Second))
					s := cache.New(db.Store(), cache.Options{Size: 1000, Strangers: true})
					return semeltest.PairSetup{
						Queue: db.Queue("orders"), Store: s, Visibility: time.Second, Ledger: memledger.Of(db.Store()), Tx: tx,
					}
				}) {
					t.Error(failure)
				}
			})
		})
	}
}
