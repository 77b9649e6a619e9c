package keymigration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// pairOf claims a key with its new key.
func pairOf(t *testing.T, s driver.Store, raw string, nonce byte) driver.Grant {
	t.Helper()
	g, err := s.Claim(context.Background(), driver.Claim{
		Key: driver.Key{Consumer: "old", Raw: raw}, NewKey: driver.Key{Consumer: "new", Raw: raw}, Nonce: driver.Nonce{nonce}, Lease: modelLease,
	})
	if err != nil || g[0].Verdict != driver.Acquired {
		t.Fatalf("%+v, %v", g, err)
	}
	return g[0]
}

// TestExtendNeedsBoth: a worker that lost one of its records stops.
func TestExtendNeedsBoth(t *testing.T) {
	for _, other := range []string{"old", "new"} {
		db, clock := openDB()
		s := honest(db.Store())
		g := pairOf(t, s, "a", 1)
		if out, err := s.Extend(context.Background(), modelLease, g.Hold); err != nil || out[0] != driver.Applied {
			t.Errorf("both held: %v, %v", out, err)
		}
		clock.advance(modelLease + time.Second)
		taken, _ := db.Store().Claim(context.Background(), driver.Claim{Key: driver.Key{Consumer: other, Raw: "a"}, Nonce: driver.Nonce{9}, Lease: modelLease})
		if taken[0].Verdict != driver.Acquired {
			t.Fatal(taken)
		}
		if out, err := s.Extend(context.Background(), modelLease, g.Hold); err != nil || out[0] != driver.Lost {
			t.Errorf("the record of %s is another's: %v, %v", other, out, err)
		}
	}
}

// blamed refuses every transaction's effects, by an index that the test sets.
type blamed struct {
	txStore
	index int
}

type blamedTx struct {
	driver.Tx
	index int
}

func (b *blamed) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	tx, g, err := b.txStore.Begin(ctx, c...)
	if tx != nil {
		tx = &blamedTx{tx, b.index}
	}
	return tx, g, err
}

func (x *blamedTx) Commit(ctx context.Context, w ...driver.Work) error {
	for i := range w {
		if e, yes := w[i].Effects.(*memory.Effects); yes && e != nil && w[i].Finish.Hold.Key.Raw == "b" {
			_ = x.Rollback(ctx)
			if x.index == 0 {
				return &driver.ItemError{Index: i, Err: errWire}
			}
			return &driver.ItemError{Index: x.index, Err: errWire}
		}
	}
	return x.Tx.Commit(ctx, w...)
}

// TestCommitNamesTheCulprit: by the caller's index, also if the transaction does not know the culprit.
func TestCommitNamesTheCulprit(t *testing.T) {
	for name, index := range map[string]int{"named": 0, "unknown": -1} {
		db, _ := openDB()
		s := honest(&blamed{db.Store(), index})
		var works []driver.Work
		for i, raw := range []string{"x", "a", "b", "c"} {
			g := pairOf(t, s, raw, byte(i+1))
			var e *memory.Effects
			s.Offers(&e)
			f := driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: modelKeep}
			if raw == "x" { // another kind of end before them, so that indexes differ
				f.Final, e = driver.Release, nil
				works = append(works, driver.Work{Finish: f})
				continue
			}
			e.Append("ledger", raw)
			works = append(works, driver.Work{Finish: f, Effects: e})
		}
		if out, err := s.Commit(context.Background(), works[1]); err != nil || out[0] != driver.Applied {
			t.Errorf("%s: %v, %v", name, out, err) // committed before: the transaction has one work fewer than the call
		}
		_, err := s.Commit(context.Background(), works...)
		if e := (*driver.ItemError)(nil); !errors.As(err, &e) || e.Index != 2 {
			t.Errorf("%s: %v, wanted item 2", name, err)
		}
		rest := append(append([]driver.Work{}, works[:2]...), works[3])
		out, err := s.Commit(context.Background(), rest...)
		if err != nil || len(out) != 3 || out[0] != driver.Applied || out[1] != driver.Applied || out[2] != driver.Applied {
			t.Errorf("%s: the others: %v, %v", name, out, err)
		}
		if n := len(db.Store().Tables().Rows("ledger")); n != 2 {
			t.Errorf("%s: %d effects", name, n)
		}
	}
}
