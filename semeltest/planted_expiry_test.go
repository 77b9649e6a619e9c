package semeltest_test

import (
	"context"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// expirer is a store with bugs in its EXPIRED records; nil is correct.
type expirer struct {
	*memory.Store
	clock      *clock
	claim      func(s *expirer, ctx context.Context, c *driver.Claim, g *driver.Grant)
	operate    func(s *expirer, ctx context.Context, op *driver.Operation)
	record     func(s *expirer, r *driver.Record)
	register   func(period time.Duration) (time.Duration, bool)
	sweep      func(s *expirer, ctx context.Context, limit int) (driver.Swept, bool, error)
	journal    bool // journals stay
	audit      bool // audit entries stay
	duplicates bool // duplicates stay

	payloads map[driver.Key]driver.Fingerprint
	steps    map[driver.Key][]driver.Step
}

func (s *expirer) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	gs, err := s.Store.Claim(ctx, c...)
	for i := range gs {
		if gs[i].Verdict == driver.Acquired && c[i].Fingerprint != "" {
			s.payloads[c[i].Key] = c[i].Fingerprint
		}
		if gs[i].Verdict == driver.Late && s.claim != nil {
			s.claim(s, ctx, &c[i], &gs[i])
		}
	}
	return gs, err
}

func (s *expirer) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	tx, gs, err := s.Store.Begin(ctx, c...)
	for i := range gs {
		if gs[i].Verdict == driver.Late && s.claim != nil {
			s.claim(s, ctx, &c[i], &gs[i])
		}
	}
	return tx, gs, err
}

func (s *expirer) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	if r, _, err := s.Store.Record(ctx, op.Key); err == nil && r.State == driver.Expired && s.operate != nil {
		s.operate(s, ctx, &op)
	}
	return s.Store.Operate(ctx, op)
}

func (s *expirer) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	r, ok, err := s.Store.Record(ctx, k)
	if r.State == driver.Expired && s.record != nil {
		s.record(s, &r)
	}
	return r, ok, err
}

func (s *expirer) SetLongTerm(ctx context.Context, consumer string, period time.Duration) error {
	if s.register != nil {
		var ok bool
		if period, ok = s.register(period); !ok {
			return nil
		}
	}
	return s.Store.SetLongTerm(ctx, consumer, period)
}

func (s *expirer) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	if s.sweep != nil {
		return s.sweep(s, ctx, limit)
	}
	return s.Store.Sweep(ctx, horizon, limit, consumers...)
}

func (s *expirer) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	rows, err := s.Store.Steps(ctx, h)
	if s.journal && len(rows) == 0 {
		return s.steps[h.Key], err
	}
	return rows, err
}

func (s *expirer) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	o, err := s.Store.WriteSteps(ctx, h, w...)
	if rows, rerr := s.Store.Steps(ctx, h); rerr == nil {
		s.steps[h.Key] = rows
	}
	return o, err
}

func (s *expirer) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	es, err := s.Store.Audit(ctx, f)
	if s.audit && len(es) == 0 {
		return make([]driver.AuditEntry, 1), err
	}
	return es, err
}

func (s *expirer) Duplicates(ctx context.Context, k driver.Key) (int64, []driver.Duplicate, error) {
	n, ds, err := s.Store.Duplicates(ctx, k)
	if s.duplicates && n == 0 {
		n = 1
	}
	return n, ds, err
}

// seen makes a record with a doubt look as if it had been purged, and counts it so.
func (s *expirer) purgeDoubts(ctx context.Context, got *driver.Swept) error {
	rs, err := s.Store.Records(ctx, driver.RecordFilter{State: driver.Expired})
	for _, r := range rs {
		if r.Ended != driver.Released {
			continue
		}
		if _, _, err := s.Store.Operate(ctx, driver.Operation{Kind: driver.Erase, Key: r.Key}); err != nil {
			return err
		}
		got.Expired--
		got.Purged++
	}
	return err
}

// blindExpiry looks for failed records that are past their retention, and ends those that were redriven meanwhile.
func blindExpiry(s *expirer, ctx context.Context, limit int) (driver.Swept, bool, error) {
	seen, err := s.Store.Records(ctx, driver.RecordFilter{State: driver.FailedState})
	if err != nil {
		return driver.Swept{}, false, err
	}
	time.Sleep(5 * time.Millisecond) // it looks, and writes later
	for i := range seen {
		r, _, err := s.Store.Record(ctx, seen[i].Key)
		if err != nil {
			return driver.Swept{}, false, err
		}
		if r.State == driver.Released && r.Generation > seen[i].Generation {
			s.clock.advance(48 * time.Hour)
			defer s.clock.advance(-48 * time.Hour)
			limit = 0 // that one, too
			break
		}
	}
	return s.Store.Sweep(ctx, 0, limit)
}

// expiryBugs are mistakes of stores with EXPIRED records.
func expiryBugs() []struct {
	name, in string
	make     func(*expirer)
} {
	type ctx = context.Context
	const cells, purged = "FM41 expired cells", "FM41 expired records are purged"
	return []struct {
		name, in string
		make     func(*expirer)
	}{
		{"none", "", func(*expirer) {}},
		{"an expired record is purged early", purged, func(s *expirer) {
			s.sweep = func(s *expirer, ctx ctx, limit int) (driver.Swept, bool, error) {
				const hour = 2 * time.Hour
				s.clock.advance(hour)
				defer s.clock.advance(-hour)
				return s.Store.Sweep(ctx, 0, limit)
			}
		}},
		{"an expired record is never purged", purged, func(s *expirer) {
			s.register = func(d time.Duration) (time.Duration, bool) { return 2 * d, true }
		}},
		{"a claim of an expired key is granted", cells, func(s *expirer) {
			s.claim = func(s *expirer, ctx ctx, c *driver.Claim, g *driver.Grant) {
				if _, o, _ := s.Store.Operate(ctx, driver.Operation{Kind: driver.Erase, Key: c.Key}); o == driver.Applied {
					gs, _ := s.Store.Claim(ctx, *c)
					*g = gs[0]
				}
			}
		}},
		{"a transaction grants an expired key", "FM41 expiry in transactions", func(s *expirer) {
			s.claim = func(_ *expirer, _ ctx, _ *driver.Claim, g *driver.Grant) { g.Verdict = driver.Acquired }
		}},
		{"the fingerprint is compared first", cells, func(s *expirer) {
			s.claim = func(s *expirer, _ ctx, c *driver.Claim, g *driver.Grant) {
				if s.payloads[c.Key].Differs(c.Fingerprint) {
					g.Verdict = driver.Mismatch
				}
			}
		}},
		{"a late duplicate is replayed", cells, func(s *expirer) {
			s.claim = func(_ *expirer, _ ctx, _ *driver.Claim, g *driver.Grant) { g.Verdict = driver.Replay }
		}},
		{"the expiry does not look again", "FM41 expiry while records are redriven", func(s *expirer) { s.sweep = blindExpiry }},
		{"a released record with a doubt is purged", cells, func(s *expirer) {
			s.sweep = func(s *expirer, ctx ctx, limit int) (driver.Swept, bool, error) {
				got, more, err := s.Store.Sweep(ctx, 0, limit)
				if err == nil {
					err = s.purgeDoubts(ctx, &got)
				}
				return got, more, err
			}
		}},
		{"the token is reset by the expiry", cells, func(s *expirer) {
			s.claim = func(_ *expirer, _ ctx, _ *driver.Claim, g *driver.Grant) { g.Hold.Token = 0 }
		}},
		{"the generation is reset by the expiry", cells, func(s *expirer) {
			s.record = func(_ *expirer, r *driver.Record) { r.Generation = 1 }
		}},
		{"the state before the expiry is forgotten", cells, func(s *expirer) {
			s.record = func(_ *expirer, r *driver.Record) { r.Ended = driver.Completed }
		}},
		{"the payload stays", cells, func(s *expirer) {
			s.record = func(s *expirer, r *driver.Record) { r.Fingerprint = s.payloads[r.Key] }
		}},
		{"a redrive reopens a completed one by itself", cells, func(s *expirer) {
			s.operate = func(_ *expirer, _ ctx, op *driver.Operation) {
				op.NewGeneration = op.NewGeneration || op.Kind == driver.Redrive
			}
		}},
		{"a redrive does not compare the token", cells, func(s *expirer) {
			s.operate = func(_ *expirer, _ ctx, op *driver.Operation) {
				if op.Kind == driver.Redrive {
					op.Token = 0
				}
			}
		}},
		{"a period is not kept", "FM41 long-term periods", func(s *expirer) {
			s.register = func(time.Duration) (time.Duration, bool) { return 0, false }
		}},
		{"a period does not end", "FM41 long-term periods", func(s *expirer) {
			s.register = func(d time.Duration) (time.Duration, bool) { return d, d > 0 }
		}},
		{"the journal stays", "expiry takes what belongs", func(s *expirer) { s.journal = true }},
		{"the audit entries stay", "expiry takes what belongs", func(s *expirer) { s.audit = true }},
		{"the duplicates stay", "expiry takes what belongs", func(s *expirer) { s.duplicates = true }},
		{"expiring has no bound", "FM41 long-term periods", func(s *expirer) {
			s.sweep = func(s *expirer, ctx ctx, _ int) (driver.Swept, bool, error) { return s.Store.Sweep(ctx, 0, 0) }
		}},
	}
}

// TestPlantedExpiryBugs plants one bug at a time into a correct store: the case that each names has to find it.
func TestPlantedExpiryBugs(t *testing.T) {
	for _, b := range expiryBugs() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			open := func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := &expirer{
					Store: db.Store(), clock: clock, payloads: map[driver.Key]driver.Fingerprint{},
					steps: map[driver.Key][]driver.Step{},
				}
				b.make(s)
				return semeltest.StoreSetup{Store: s, Advance: clock.advance, Ledger: memledger.Of(db.Store()), Sample: 10}
			}
			if b.in == "" {
				for _, f := range semeltest.CheckStore(t, open, "FM41 exp", "FM41 long-term", "expiry takes") {
					t.Errorf("the suite fails a right store: %s", f)
				}
				return
			}
			caught(t, semeltest.CheckStore(t, open, b.in))
		})
	}
}
