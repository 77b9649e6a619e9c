package keymigration_test

import (
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/keymigration"
	"github.com/semel-dev/semel/internal/virtual"
	"github.com/semel-dev/semel/semeltest"
)

// migrate is a whole change of a key: old workers; mixed with those that know both; these alone, for a horizon; mixed with
// new ones; these alone. New messages come all the time, and copies of all messages.
func migrate(w *simulation) *virtual.Violation {
	for _, phase := range []struct {
		fleets  []fleet
		horizon bool
	}{
		{fleets: []fleet{before, before}}, {fleets: []fleet{before, during, during}}, {fleets: []fleet{during, during}, horizon: true},
		{fleets: []fleet{during, after, after}}, {fleets: []fleet{after, after}, horizon: true},
	} {
		w.staff(phase.fleets...)
		w.add(1)
		w.run(60)
		if phase.horizon {
			w.settle()
		}
		if w.Broken != nil {
			break
		}
	}
	return w.Broken
}

// txStore is a store with transactions.
type txStore interface {
	driver.Store
	driver.Committer
	driver.Transactor
}

func honest(s txStore) txStore {
	both, ok := driver.As[txStore](keymigration.New(s, keymigration.Options{Keep: modelKeep, Lease: modelLease}))
	if !ok {
		panic("the store has no transactions")
	}
	return both
}

// TestMigrations changes keys among crashes, pauses, lost responses and late requests: every effect happens once, no
// message is acked before it is done, and a run after an interrupted run knows of it.
func TestMigrations(t *testing.T) {
	n := uint64(3000 / semeltest.Sampled(2))
	for m := outside; m <= inTx; m++ {
		t.Run(m.String(), func(t *testing.T) {
			for i := range n + 1 {
				seed := i
				if i == n {
					seed = 4277 // a worker that crashes takes the new key over, and the first run completes the previous key late
				}
				if v := migrate(newSimulation(seed, m, honest)); v != nil {
					t.Fatal(v)
				}
			}
		})
	}
}

// TestMigrationsOnce changes keys of what runs once: nothing takes effect twice, whatever goes wrong.
func TestMigrationsOnce(t *testing.T) {
	n := uint64(5000 / semeltest.Sampled(3))
	for seed := range n {
		w := newSimulation(seed, outside, honest)
		w.policy, w.harm = driver.Once, true // a late completion of a parked key is acked whatever the state of its new key
		if v := migrate(w); v != nil {
			t.Fatal(v)
		}
	}
}
