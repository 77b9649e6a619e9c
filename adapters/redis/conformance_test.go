package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

var (
	_ driver.Store           = (*Store)(nil)
	_ driver.RecordInspector = (*Store)(nil)
	_ driver.RecordScanner   = (*Store)(nil)
	_ driver.Operator        = (*Store)(nil)
	_ driver.AuditLog        = (*Store)(nil)
	_ driver.Sweeper         = (*Store)(nil)
	_ driver.StepStore       = (*Store)(nil)
	_ driver.DuplicateLog    = (*Store)(nil)
	_ driver.Historian       = (*Store)(nil)
	_ driver.LongTerm        = (*Store)(nil)
	_ driver.WorkerLog       = (*Store)(nil)
	_ driver.CaseLister      = (*Store)(nil)
	_ driver.Committer       = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
)

// TestStoreSuite compares the store with the decision table, on a clock that the suite moves, also back.
func TestStoreSuite(t *testing.T) {
	testStore(t, shared, 3)
}

// TestS1_45_StoreSuiteOnValkey is the same on a Valkey.
func TestS1_45_StoreSuiteOnValkey(t *testing.T) {
	testStore(t, func(t testing.TB) *goredis.Client { return connect(t, server.Shared(t, "valkey")) }, 11)
}

func testStore(t *testing.T, client func(t testing.TB) *goredis.Client, sample int) {
	c := client(t)
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		s := openFor(t, c, Options{clock: testClock})
		k := newClock(t, s)
		return semeltest.StoreSetup{
			Store: s, Queue: queueOf(t, s, time.Minute), Advance: func(d time.Duration) { k.advance(t, d) }, Damage: damage(s),
			Sample: semeltest.Sampled(sample),
		}
	})
}

// TestStoreSuiteShards has the server's own clock, and records in several shards.
func TestStoreSuiteShards(t *testing.T) {
	c := shared(t)
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		s := openFor(t, c, Options{Shards: 3})
		return semeltest.StoreSetup{Store: s, Queue: queueOf(t, s, time.Minute), Damage: damage(s), Sample: semeltest.Sampled(11)}
	})
}

// TestPairSuiteJoined runs consumers whose acknowledgements commit with their records.
func TestPairSuiteJoined(t *testing.T) {
	c := shared(t)
	semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
		s, visible := openFor(t, c, Options{}), semeltest.Longer(t, 2*time.Second)
		return semeltest.PairSetup{Queue: queueOf(t, s, visible), Store: s, Visibility: visible}
	})
}

// TestPairSuite runs consumers with a queue elsewhere.
func TestPairSuite(t *testing.T) {
	testPair(t, shared)
}

func TestS1_45_PairSuiteOnValkey(t *testing.T) {
	testPair(t, func(t testing.TB) *goredis.Client { return connect(t, server.Shared(t, "valkey")) })
}

func testPair(t *testing.T, client func(t testing.TB) *goredis.Client) {
	c := client(t)
	semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
		visible := semeltest.Longer(t, 2*time.Second)
		q := memory.NewQueue("orders", memory.WithVisibility(visible))
		return semeltest.PairSetup{Queue: q, Store: openFor(t, c, Options{}), Visibility: visible}
	})
}
