package keymigration_test

import (
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/keymigration/keymigrationtest"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// clock is a store's clock that moves only by advance.
type clock struct {
	at atomic.Int64
	db *memory.DB
}

func (c *clock) advance(d time.Duration) {
	c.at.Add(int64(d))
	c.db.Wake()
}

func openDB() (*memory.DB, *clock) {
	c := &clock{}
	c.at.Store(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano())
	c.db = memory.Open(memory.WithClock(func() time.Time { return time.Unix(0, c.at.Load()).UTC() }))
	return c.db, c
}

// stepped is the one result that differs: a parked key was completed after all, its new key had been returned, and then the
// clock stepped back to before that. The new key is not due until the clock is where it was, and the duplicate waits for it.
var stepped = regexp.MustCompile(`^FM43 .*: (taken over|taken over, expired|taken over by once|uncertain), under \w+: ` +
	`complete, my token, own nonce true: Claim: |^FM43 [^:]*: and (\d+) more$`)

// TestStoreSuite runs the conformance suite with a new key behind every key: two records behave as one.
func TestStoreSuite(t *testing.T) {
	failures := semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
		db, clock := openDB()
		return semeltest.StoreSetup{
			Store: keymigrationtest.Migrating(db.Store()), Advance: clock.advance, Queue: db.Queue("orders"), Ledger: memledger.Of(db.Store()),
		}
	})
	for _, f := range failures {
		m := stepped.FindStringSubmatch(f)
		if m == nil {
			t.Error(f)
			continue
		}
		if n, _ := strconv.Atoi(m[2]); n > 60 {
			t.Errorf("%s: these are too many for the one result that differs", f)
		}
	}
}
