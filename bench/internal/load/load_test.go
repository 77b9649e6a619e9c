package load_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/semel-dev/semel/bench/internal/load"
)

// The standard work is what the goals are defined on: its shape must not drift.
func TestWorkIsStandard(t *testing.T) {
	const n = 4000
	w := load.New(n, 7)
	seen := map[string]int{}
	for _, m := range w.Deliveries {
		if len(m.Body) != 300 {
			t.Fatalf("body of %d bytes, want 300", len(m.Body))
		}
		if id, err := load.IDOf(m.Body); err != nil || id != m.ID {
			t.Fatalf("id of the body is %q (%v), want %q", id, err, m.ID)
		}
		seen[m.ID]++
	}
	if len(seen) != n {
		t.Fatalf("%d distinct messages, want %d", len(seen), n)
	}
	if share := float64(len(w.Deliveries)-n) / float64(len(w.Deliveries)); share != load.Redeliveries {
		t.Fatalf("%v of the deliveries are redeliveries, want %v", share, load.Redeliveries)
	}
	again, other := load.New(n, 7), load.New(n, 8)
	if again.Deliveries[n].ID != w.Deliveries[n].ID || other.Deliveries[n].ID == w.Deliveries[n].ID {
		t.Fatal("the seed does not decide the work")
	}
}

func TestEachHandsOutAllOnce(t *testing.T) {
	w := load.New(100, 1)
	var calls atomic.Int64
	err := w.Each(t.Context(), 7, func(context.Context, *load.Message) error {
		calls.Add(1)
		return nil
	})
	if err != nil || int(calls.Load()) != len(w.Deliveries) {
		t.Fatalf("%d calls for %d deliveries: %v", calls.Load(), len(w.Deliveries), err)
	}
	broken := errors.New("broken")
	if err := w.Each(t.Context(), 3, func(context.Context, *load.Message) error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("the error of a delivery is lost: %v", err)
	}
}

func TestLedgerIsExact(t *testing.T) {
	for _, c := range []struct {
		l    load.Ledger
		want bool
	}{
		{load.Ledger{Rows: 10, IDs: 10}, true},
		{load.Ledger{Rows: 11, IDs: 10}, false}, // an effect happened twice
		{load.Ledger{Rows: 9, IDs: 9}, false},   // one is lost
		{load.Ledger{Rows: 10, IDs: 9}, false},  // both
	} {
		if got := c.l.Exact(10); got != c.want {
			t.Errorf("%+v of 10 messages: exact %v, want %v", c.l, got, c.want)
		}
	}
}
