package semeltest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// joiner is a store that decides on its own which queues it joins.
type joiner struct {
	*memory.Store
	joins func(q driver.Queue) bool
}

func (s joiner) Joins(q driver.Queue) bool { return s.joins(q) }

// unwrapped looks behind every wrapper.
func unwrapped(q driver.Queue) bool {
	for {
		w, ok := q.(driver.Wrapper)
		if !ok {
			_, mine := q.(*memory.Queue)
			return mine
		}
		q, ok = w.Unwrap().(driver.Queue)
		if !ok {
			return false
		}
	}
}

// bare looks behind no wrapper.
func bare(q driver.Queue) bool {
	_, mine := q.(*memory.Queue)
	return mine
}

// TestPlantedWrapperBugs plants bypasses of a wrapper: into stores, and into the wrappers.
func TestPlantedWrapperBugs(t *testing.T) {
	const claims, acks = "a wrapper of Claim", "a wrapper of Settle"
	passes := func(list ...driver.Interface) []driver.Interface { return list }
	for _, b := range []struct {
		name, in string
		joins    func(q driver.Queue) bool
		leaks    []driver.Interface
	}{
		{"none", "", nil, nil},
		{"a store joins the queue behind any wrapper", acks, unwrapped, nil},
		{"a store joins no queue behind a wrapper", acks, bare, nil},
		{"commits get past", claims, nil, passes(driver.InterfaceOf[driver.Committer]())},
		{"claims in transactions get past", claims, nil, passes(driver.InterfaceOf[driver.Transactor]())},
		{"writes of journals get past", claims, nil, passes(driver.InterfaceOf[driver.StepStore]())},
		{"operations get past", claims, nil, passes(driver.InterfaceOf[driver.Operator]())},
		{"sweeps get past", claims, nil, passes(driver.InterfaceOf[driver.Sweeper]())},
		{"reports of workers get past", claims, nil, passes(driver.InterfaceOf[driver.WorkerLog]())},
		{"duplicates get past", claims, nil, passes(driver.InterfaceOf[driver.DuplicateLog]())},
		{"acks get past", acks, nil, passes(driver.InterfaceOf[driver.Settler]())},
		{"sends get past", acks, nil, passes(driver.InterfaceOf[driver.Sender]())},
		{"purges get past", acks, nil, passes(driver.InterfaceOf[driver.Purger]())},
		{"dead letters get past", acks, nil, passes(driver.InterfaceOf[driver.DeadLetterQueue]())},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			open := func(testing.TB) semeltest.PairSetup {
				db := memory.Open(memory.WithVisibility(time.Second))
				s := joiner{db.Store(), db.Store().Joins}
				if b.joins != nil {
					s.joins = b.joins
				}
				return semeltest.Leaky(semeltest.PairSetup{
					Queue: db.Queue("orders"), Store: s, Visibility: time.Second,
					Tx: func(fn func(context.Context, func(string) error, *semel.Attempt) error) semel.Handler {
						return semel.InTx(func(ctx context.Context, e *memory.Effects, a *semel.Attempt) error {
							return fn(ctx, func(id string) error { e.Append("ledger", id); return nil }, a)
						})
					},
				}, b.leaks...)
			}
			synctest.Test(t, func(t *testing.T) {
				if b.in != "" {
					caught(t, semeltest.CheckPair(t, open, b.in))
					return
				}
				for _, f := range semeltest.CheckPair(t, open, claims, acks) {
					t.Errorf("the suite fails right wrappers: %s", f)
				}
			})
		})
	}
}

// TestPlantedJoins: the store's own suite finds the same.
func TestPlantedJoins(t *testing.T) {
	for name, joins := range map[string]func(driver.Queue) bool{"any wrapper": unwrapped, "no wrapper": bare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caught(t, semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := &planted{Store: db.Store()}
				return semeltest.StoreSetup{
					Store: joiner{db.Store(), joins}, Advance: clock.advance, Queue: db.Queue("orders"), Ledger: s.ledger(),
				}
			}, "commit joins acks"))
		})
	}
}
