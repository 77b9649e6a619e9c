package memory_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// fakeClock is a clock that the test moves.
type fakeClock struct {
	at atomic.Int64
	db *memory.DB
}

func openFake() (*memory.DB, *fakeClock) {
	c := &fakeClock{}
	c.at.Store(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano())
	c.db = memory.Open(memory.WithClock(func() time.Time { return time.Unix(0, c.at.Load()).UTC() }))
	return c.db, c
}

func (c *fakeClock) advance(d time.Duration) {
	c.at.Add(int64(d))
	c.db.Wake()
}

func TestStoreSuite(t *testing.T) {
	semeltest.RunStore(t, func(testing.TB) semeltest.StoreSetup {
		db, clock := openFake()
		return semeltest.StoreSetup{Store: db.Store(), Advance: clock.advance, Queue: db.Queue("orders"), Ledger: memledger.Of(db.Store())}
	})
}

// inBubble runs a suite that waits, in virtual time.
func inBubble(t *testing.T, check func(t testing.TB) []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range check(t) {
			t.Error(failure)
		}
	})
}

// TestStoreSuiteWaits runs the suite as a real database runs it: its clock cannot be moved, so the suite waits.
func TestStoreSuiteWaits(t *testing.T) {
	inBubble(t, func(t testing.TB) []string {
		return semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
			db := memory.Open()
			return semeltest.StoreSetup{Store: db.Store(), Queue: db.Queue("orders"), Ledger: memledger.Of(db.Store())}
		})
	})
}

// TestStoreSuiteAlone runs it on a store without a database around it.
func TestStoreSuiteAlone(t *testing.T) {
	inBubble(t, func(t testing.TB) []string {
		return semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
			s := memory.NewStore()
			return semeltest.StoreSetup{Store: s, Ledger: memledger.Of(s)}
		})
	})
}

func TestQueueSuite(t *testing.T) {
	inBubble(t, func(t testing.TB) []string {
		return semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
			db, clock := openFake()
			return semeltest.QueueSetup{
				Queue: db.Queue("orders"), Advance: clock.advance, MaxBody: 30 << 20,
				Restart: func(testing.TB) driver.Queue { return db.Queue("orders") },
			}
		})
	})
}

func TestQueueSuiteWaits(t *testing.T) {
	inBubble(t, func(t testing.TB) []string {
		return semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
			db := memory.Open()
			return semeltest.QueueSetup{
				Queue: db.Queue("orders"), Restart: func(testing.TB) driver.Queue { return db.Queue("orders") },
			}
		})
	})
}

func txHandler(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler {
	return semel.InTx(func(ctx context.Context, e *memory.Effects, a *semel.Attempt) error {
		return fn(ctx, func(id string) error { e.Append("ledger", id); return nil }, a)
	})
}

// openHandler is the same in an open transaction (modes B and C).
func openHandler(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *memory.Tx, a *semel.Attempt) error {
		return fn(ctx, func(id string) error { return tx.Append("ledger", id) }, a)
	})
}

// batchHandler queues the effects of a whole batch; openBatch writes them in the open transaction.
func batchHandler(fn func(ctx context.Context, add func(string) error, batch []*semel.Attempt) error) semel.Handler {
	return semel.InTxBatch(func(ctx context.Context, e *memory.Effects, batch []*semel.Attempt) error {
		return fn(ctx, func(id string) error { e.Append("ledger", id); return nil }, batch)
	})
}

func openBatch(fn func(ctx context.Context, add func(string) error, batch []*semel.Attempt) error) semel.Handler {
	return semel.InTxBatch(func(ctx context.Context, tx *memory.Tx, batch []*semel.Attempt) error {
		return fn(ctx, func(id string) error { return tx.Append("ledger", id) }, batch)
	})
}

func TestPairSuite(t *testing.T) {
	testPair(t, func() semeltest.PairSetup {
		db := memory.Open(memory.WithVisibility(time.Second))
		return semeltest.PairSetup{Queue: db.Queue("orders"), Store: db.Store(), Ledger: memledger.Of(db.Store()), Tx: txHandler, Batch: batchHandler}
	})
}

// TestPairSuiteApart runs queue and store that do not join.
func TestPairSuiteApart(t *testing.T) {
	testPair(t, func() semeltest.PairSetup {
		q, s := memory.NewQueue("orders", memory.WithVisibility(time.Second)), memory.NewStore()
		return semeltest.PairSetup{Queue: q, Store: s, Ledger: memledger.Of(s), Tx: txHandler, Batch: batchHandler}
	})
}

func TestPairSuiteOpen(t *testing.T) {
	testPair(t, func() semeltest.PairSetup {
		db := memory.Open(memory.WithVisibility(time.Second))
		return semeltest.PairSetup{Queue: db.Queue("orders"), Store: db.Store(), Ledger: memledger.Of(db.Store()), Tx: openHandler, Batch: openBatch}
	})
}

func testPair(t *testing.T, open func() semeltest.PairSetup) {
	t.Helper()
	inBubble(t, func(t testing.TB) []string {
		return semeltest.CheckPair(t, func(testing.TB) semeltest.PairSetup {
			s := open()
			s.Visibility = time.Second
			return s
		})
	})
}
