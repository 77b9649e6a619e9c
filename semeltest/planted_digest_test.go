package semeltest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// digester is a store whose long-term tier can be made wrong.
type digester struct {
	*memory.Store
	clock    *clock
	remember func(keep time.Duration) (time.Duration, bool)
	look     func(d *driver.Digest)
	hurried  bool // announced and gone in one sweep
	blind    bool // nothing is recent
	unbound  bool
}

func (s *digester) Remember(ctx context.Context, consumer string, keep time.Duration) error {
	if s.remember != nil {
		var ok bool
		if keep, ok = s.remember(keep); !ok {
			return nil
		}
	}
	return s.Store.Remember(ctx, consumer, keep)
}

func (s *digester) Remembered(ctx context.Context, k ...driver.Key) ([]driver.Digest, error) {
	d, err := s.Store.Remembered(ctx, k...)
	for i := range d {
		if s.look != nil {
			s.look(&d[i])
		}
	}
	return d, err
}

func (s *digester) ScanDigests(ctx context.Context, recent bool, each func(driver.DigestHash, time.Time) error) error {
	if recent && s.blind {
		return nil
	}
	return s.Store.ScanDigests(ctx, recent, each)
}

func (s *digester) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	if s.unbound {
		limit = 0
	}
	sum, more, err := s.Store.Sweep(ctx, horizon, limit, consumers...)
	if s.hurried && err == nil && sum.Announced > 0 {
		s.clock.advance(driver.DigestOverlap + time.Second)
		var next driver.Swept
		next, more, err = s.Store.Sweep(ctx, horizon, limit, consumers...)
		sum.Purged += next.Purged
	}
	return sum, more, err
}

// TestPlantedDigestBugs plants one bug at a time into a right tier: the suite has to notice each.
func TestPlantedDigestBugs(t *testing.T) {
	const leave, announced = "FM41 records leave digests", "FM71 digests are announced before their record goes"
	for _, b := range []struct {
		name, in string
		make     func(*digester)
	}{
		{"none", "", func(*digester) {}},
		{"nothing is remembered", leave, func(s *digester) { s.look = func(d *driver.Digest) { *d = driver.Digest{} } }},
		{"the state is forgotten", leave, func(s *digester) {
			s.look = func(d *driver.Digest) {
				if d.Found {
					d.State = driver.Completed
				}
			}
		}},
		{"all is remembered", leave, func(s *digester) { s.look = func(d *driver.Digest) { d.Found, d.State = true, driver.Completed } }},
		{"no key is unknown but these", "FM71 no key is unknown at roll-over", func(s *digester) {
			var n atomic.Int64
			s.look = func(d *driver.Digest) {
				if n.Add(1)%20 == 0 {
					*d = driver.Digest{}
				}
			}
		}},
		{"a registration is not kept", leave, func(s *digester) { s.remember = func(time.Duration) (time.Duration, bool) { return 0, false } }},
		{"a registration does not end", "registrations of digests", func(s *digester) {
			s.remember = func(keep time.Duration) (time.Duration, bool) { return keep, keep > 0 }
		}},
		{"a digest is kept for too long", leave, func(s *digester) {
			s.remember = func(keep time.Duration) (time.Duration, bool) { return 2 * keep, true }
		}},
		{"records go with their announcement", announced, func(s *digester) { s.hurried = true }},
		{"announcements are not shown", announced, func(s *digester) { s.blind = true }},
		{"announcing has no bound", "digests are bounded per sweep", func(s *digester) { s.unbound = true }},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			open := func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := &digester{Store: db.Store(), clock: clock}
				b.make(s)
				return semeltest.StoreSetup{Store: s, Advance: clock.advance, Ledger: memledger.Of(db.Store()), Sample: 50}
			}
			if b.in == "" {
				for _, f := range semeltest.CheckStore(t, open) {
					t.Errorf("the suite fails a right store: %s", f)
				}
				return
			}
			caught(t, semeltest.CheckStore(t, open, b.in))
		})
	}
}
