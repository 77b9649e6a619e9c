package semeltest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// plantedSteps is memory's store with a bug in its journals; nil is correct.
type plantedSteps struct {
	*memory.Store
	read  func(rows []driver.Step) []driver.Step
	write func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error)

	mu   sync.Mutex
	last map[driver.Key]driver.Hold
}

func (s *plantedSteps) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	rows, err := s.Store.Steps(ctx, h)
	if s.read != nil {
		rows = s.read(rows)
	}
	return rows, err
}

func (s *plantedSteps) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	if s.write != nil {
		return s.write(s, ctx, h, w)
	}
	return s.Store.WriteSteps(ctx, h, w...)
}

// Claim remembers the present holders.
func (s *plantedSteps) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	g, err := s.Store.Claim(ctx, c...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range g {
		if g[i].Verdict == driver.Acquired {
			s.last[c[i].Key] = g[i].Hold
		}
	}
	return g, err
}

// present is the holder of the key.
func (s *plantedSteps) present(h driver.Hold) driver.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.last[h.Key]; ok {
		return p
	}
	return h
}

// TestPlantedJournalsAreFound plants the mistakes that an adapter's journal can have; the case that tests it has to find
// each.
func TestPlantedJournalsAreFound(t *testing.T) {
	type write = func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error)
	eachRow := func(change func(r *driver.Step)) func([]driver.Step) []driver.Step {
		return func(rows []driver.Step) []driver.Step {
			for i := range rows {
				change(&rows[i])
			}
			return rows
		}
	}
	for _, b := range []struct {
		name, in string
		read     func([]driver.Step) []driver.Step
		write    write
	}{
		{"none", "", nil, nil},
		{"writes do not compare the hold", "journals are guarded", nil,
			func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
				return s.Store.WriteSteps(ctx, s.present(h), w...)
			}},
		{"writes do not compare the nonce", "journals are guarded", nil,
			func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
				h.Nonce = s.present(h).Nonce
				return s.Store.WriteSteps(ctx, h, w...)
			}},
		{"writes do not compare the epoch", "journals are guarded", nil,
			func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
				h.Epoch = s.present(h).Epoch
				return s.Store.WriteSteps(ctx, h, w...)
			}},
		{"lost writes return Applied", "FM63 journals, the loser of a race writes nothing", nil,
			func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
				o, err := s.Store.WriteSteps(ctx, h, w...)
				if o == driver.Lost {
					o = driver.Applied
				}
				return o, err
			}},
		{"writes of a call are applied one by one", "journals, all writes of a call or none", nil,
			func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
				for _, x := range w {
					if o, err := s.Store.WriteSteps(ctx, h, x); o != driver.Applied || err != nil {
						return o, err
					}
				}
				return s.Store.WriteSteps(ctx, h)
			}},
		{"effects are forgotten", "journals carry effects", nil,
			func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
				w = slices.Clone(w)
				for i := range w {
					w[i].Effects = nil
				}
				return s.Store.WriteSteps(ctx, h, w...)
			}},
		{"a repeated write is lost", "journals, writes repeated", nil, repeatIsLost()},
		{"the culprit is misnamed", "journals carry effects", nil,
			func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
				o, err := s.Store.WriteSteps(ctx, h, w...)
				if item := (*driver.ItemError)(nil); errors.As(err, &item) {
					err = &driver.ItemError{Index: 0, Err: item.Err}
				}
				return o, err
			}},
		{"journals of epochs are one", "journals of epochs and versions", nil, nil},
		{"results are cut", "journals, large results", eachRow(func(r *driver.Step) { r.Result = r.Result[:min(len(r.Result), 65535)] }), nil},
		{"names are folded", "journals, hostile names", eachRow(func(r *driver.Step) { r.Name = strings.ToLower(r.Name) }), nil},
		{"failures are not kept", "journals, writes repeated", eachRow(func(r *driver.Step) { r.Failures = 0 }), nil},
		{"rows come in the order of names", "journals of a thousand steps", func(rows []driver.Step) []driver.Step {
			slices.SortFunc(rows, func(a, b driver.Step) int { return strings.Compare(a.Name, b.Name) })
			return rows
		}, nil},
		{"tokens are not kept", "journals, random histories", eachRow(func(r *driver.Step) { r.Token = 1 }), nil},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			open := func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				var st driver.Store = &plantedSteps{Store: db.Store(), read: b.read, write: b.write, last: map[driver.Key]driver.Hold{}}
				if b.name == "journals of epochs are one" {
					st = &oneEpoch{db.Store()}
				}
				return semeltest.StoreSetup{Store: st, Advance: clock.advance, Ledger: memledger.Of(db.Store())}
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

// repeatIsLost returns, for the second of two equal writes, what the store would return if another writer had made the
// first.
func repeatIsLost() func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
	return func(s *plantedSteps, ctx context.Context, h driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
		before, _ := s.Store.Steps(ctx, h)
		o, err := s.Store.WriteSteps(ctx, h, w...)
		after, _ := s.Store.Steps(ctx, h)
		same := len(before) == len(after) && len(w) > 0 && slices.EqualFunc(before, after, func(a, b driver.Step) bool {
			return a.State == b.State && a.Failures == b.Failures
		})
		if o == driver.Applied && same {
			return driver.Lost, err
		}
		return o, err
	}
}

// oneEpoch shows the journal of the first epoch to all others.
type oneEpoch struct{ *memory.Store }

func (s *oneEpoch) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	h.Epoch = 0
	return s.Store.Steps(ctx, h)
}
