package keymigration_test

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// mutant is a way to claim two keys that looks right. Methods that are nil are the honest ones.
type mutant struct {
	txStore // the honest one
	inner   txStore
	claim   func(x *mutant, c driver.Claim) (driver.Grant, error)
	finish  func(x *mutant, f driver.Finish) (driver.Outcome, error)
	commit  func(x *mutant, w driver.Work) (driver.Outcome, error)
	early   bool // found by what is acked: its harm, one more run in doubt, comes after the migration
}

func (x *mutant) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if x.claim == nil {
		return x.txStore.Claim(ctx, c...)
	}
	g, err := x.claim(x, c[0])
	return []driver.Grant{g}, err
}

func (x *mutant) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if x.finish == nil {
		return x.txStore.Finish(ctx, f...)
	}
	o, err := x.finish(x, f[0])
	return []driver.Outcome{o}, err
}

func (x *mutant) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if x.commit == nil {
		return x.txStore.Commit(ctx, w...)
	}
	o, err := x.commit(x, w[0])
	return []driver.Outcome{o}, err
}

// one asks for one claim.
func one(s driver.Store, c driver.Claim) (driver.Grant, error) {
	g, err := s.Claim(context.Background(), c)
	if err != nil {
		return driver.Grant{}, err
	}
	return g[0], nil
}

func end(s driver.Store, f driver.Finish) (driver.Outcome, error) {
	o, err := s.Finish(context.Background(), f)
	if err != nil {
		return driver.Unknown, err
	}
	return o[0], nil
}

func commits(s driver.Committer, w driver.Work) (driver.Outcome, error) {
	o, err := s.Commit(context.Background(), w)
	if err != nil {
		return driver.Unknown, err
	}
	return o[0], nil
}

func alone(c driver.Claim) driver.Claim {
	c.NewKey = driver.Key{}
	return c
}

func of(k driver.Key, c driver.Claim) driver.Claim {
	c.Key, c.NewKey, c.Takeover = k, driver.Key{}, driver.Resume
	return c
}

func stateOf(s driver.Store, k driver.Key) driver.Record {
	for {
		if w, yes := s.(*wire); yes {
			s = w.Store
			continue
		}
		r, _, _ := s.(*memory.Store).Record(context.Background(), k)
		return r
	}
}

// written completes a new key that no attempt held.
func written(x *mutant, p driver.Hold) {
	k := driver.Key{Consumer: "orders", Raw: "new-" + p.Key.Raw[len("previous-"):]}
	c := driver.Claim{Key: k, Lease: modelLease}
	_, _ = rand.Read(c.Nonce[:])
	if g, err := one(x.inner, c); err == nil && g.Verdict == driver.Acquired {
		_, _ = end(x.inner, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: modelKeep})
	}
}

var mutants = map[string]mutant{
	"the new key is not claimed": {
		claim: func(x *mutant, c driver.Claim) (driver.Grant, error) { return one(x.inner, alone(c)) },
	},
	"the new key is looked at, not claimed": {
		claim: func(x *mutant, c driver.Claim) (driver.Grant, error) {
			if stateOf(x.inner, c.NewKey).State == driver.Completed && stateOf(x.inner, c.Key).State != driver.InProgress {
				return driver.Grant{Verdict: driver.Replay}, nil
			}
			return one(x.inner, alone(c))
		},
		finish: func(x *mutant, f driver.Finish) (driver.Outcome, error) {
			o, err := end(x.inner, f)
			if f.Final == driver.Complete && o == driver.Applied {
				written(x, f.Hold)
			}
			return o, err
		},
		commit: func(x *mutant, w driver.Work) (driver.Outcome, error) {
			o, err := commits(x.inner, w)
			if o == driver.Applied {
				written(x, w.Finish.Hold)
			}
			return o, err
		},
	},
	"a duplicate is acked while the new key is open": {
		early: true,
		claim: func(x *mutant, c driver.Claim) (driver.Grant, error) {
			g, err := one(x.txStore, c)
			if r := stateOf(x.inner, c.Key); err == nil && g.Verdict == driver.Busy && r.State == driver.Completed {
				g.Verdict = driver.Replay
			}
			return g, err
		},
	},
	"the new key is completed before the effect": {
		claim: func(x *mutant, c driver.Claim) (driver.Grant, error) {
			g, err := one(x.txStore, c)
			if err == nil && g.Err == nil && g.Verdict == driver.Acquired {
				_, _ = end(x.inner, driver.Finish{Hold: *g.Hold.NewKey, Final: driver.Complete, Keep: modelKeep})
			}
			return g, err
		},
	},
	"the previous key alone decides": {
		claim: func(x *mutant, c driver.Claim) (driver.Grant, error) {
			g, err := one(x.inner, alone(c))
			if err != nil || g.Verdict != driver.Acquired {
				return g, err
			}
			if m, err := one(x.inner, of(c.NewKey, c)); err == nil && m.Verdict == driver.Acquired {
				g.Hold.NewKey = &m.Hold
			}
			return g, nil
		},
	},
	"two works of one commit, each by its own guard": {
		commit: func(x *mutant, w driver.Work) (driver.Outcome, error) {
			m := w.Finish
			m.Hold, w.Finish.Hold.NewKey = *w.Finish.Hold.NewKey, nil
			o, err := x.inner.Commit(context.Background(), w, driver.Work{Finish: m})
			switch {
			case err != nil:
				return driver.Unknown, err
			case o[0] == driver.Applied && o[1] != driver.Applied:
				return o[1], nil
			}
			return o[0], nil
		},
	},
	"the new key is returned without the doubt": {
		finish: func(x *mutant, f driver.Finish) (driver.Outcome, error) {
			if f.Final != driver.Release {
				return end(x.txStore, f)
			}
			m := *f.Hold.NewKey
			f.Hold.NewKey = nil
			_, _ = end(x.inner, driver.Finish{Hold: m, Final: driver.Release, Keep: modelKeep})
			return end(x.inner, f)
		},
	},
	"what was acquired for nothing is kept, and run later": {
		claim: func(x *mutant, c driver.Claim) (driver.Grant, error) {
			g, err := one(x.inner, alone(c))
			if err == nil && g.Verdict == driver.Busy {
				if m, err := one(x.inner, of(c.NewKey, c)); err == nil && m.Verdict == driver.Acquired {
					return m, nil
				}
			}
			if err != nil || g.Verdict != driver.Acquired {
				return g, err
			}
			return one(x.txStore, c)
		},
	},
}

// TestMutants plants mistakes in what workers of both recipes do. The model has to find each by the harm that it does, an
// effect too many or too few, or a doubt that the next run does not know; one by what it acks.
func TestMutants(t *testing.T) {
	for name, planted := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20000) {
				for _, m := range []manner{outside, collected} {
					w := newSimulation(seed, m, func(s txStore) txStore {
						x := planted
						x.txStore, x.inner = honest(s), s
						return &x
					})
					w.harm = !planted.early
					if v := migrate(w); v != nil {
						t.Logf("effects %v: %v", m, v)
						return
					}
				}
			}
			t.Error("not found")
		})
	}
}
