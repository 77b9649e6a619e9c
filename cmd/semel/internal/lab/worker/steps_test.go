package worker

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
)

// slowQueue and slowStore wait for a disk in every call that a lease or a delivery depends on.
type (
	slowQueue struct{ place.Queue }
	slowStore struct{ place.Store }
)

const diskWait = 700 * time.Millisecond

func (slowQueue) Receive(context.Context, int) ([]driver.Delivery, error) {
	time.Sleep(time.Minute) // until there is a message
	return []driver.Delivery{{Visible: time.Second - diskWait}}, nil
}

func (slowQueue) Extend(context.Context, time.Duration, ...any) ([]driver.Outcome, error) {
	time.Sleep(diskWait)
	return nil, nil
}

func (slowQueue) Settle(context.Context, ...driver.Settlement) ([]driver.Outcome, error) {
	time.Sleep(diskWait)
	return nil, nil
}

func (slowStore) Claim(context.Context, ...driver.Claim) ([]driver.Grant, error) {
	time.Sleep(diskWait)
	return nil, nil
}

func (slowStore) Extend(context.Context, time.Duration, ...driver.Hold) ([]driver.Outcome, error) {
	time.Sleep(diskWait)
	return nil, nil
}

func (slowStore) Finish(context.Context, ...driver.Finish) ([]driver.Outcome, error) {
	time.Sleep(diskWait)
	return nil, nil
}

// TestBlockedCallsCountAsDelays: a lease may expire while its worker waits for the store, and the ticks of the process are
// on time. Neither the scenario's own slow store nor the wait for a message is a delay.
func TestBlockedCallsCountAsDelays(t *testing.T) {
	for name, call := range map[string]func(context.Context, *stepQueue, *stepStore) error{
		"receive": func(ctx context.Context, q *stepQueue, _ *stepStore) error {
			_, err := q.Receive(ctx, 1)
			return err
		},
		"extend the visibility": func(ctx context.Context, q *stepQueue, _ *stepStore) error {
			_, err := q.Extend(ctx, time.Second, "receipt")
			return err
		},
		"settle": func(ctx context.Context, q *stepQueue, _ *stepStore) error {
			_, err := q.Settle(ctx, driver.Settlement{Receipt: "receipt"})
			return err
		},
		"claim": func(ctx context.Context, _ *stepQueue, s *stepStore) error {
			_, err := s.Claim(ctx, driver.Claim{})
			return err
		},
		"extend the lease": func(ctx context.Context, _ *stepQueue, s *stepStore) error {
			_, err := s.Extend(ctx, time.Second, driver.Hold{})
			return err
		},
		"finish": func(ctx context.Context, _ *stepQueue, s *stepStore) error {
			_, err := s.Finish(ctx, driver.Finish{})
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			log, err := eventlog.Open(filepath.Join(dir, "events-1-1.jsonl"), 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			spec := Spec{Dir: dir, Worker: 1, Life: 1}
			spec.Wire.SlowStore, spec.Wire.SlowFor = 1, time.Minute
			faults := newFaults(spec)
			err = call(t.Context(), &stepQueue{
				Queue: slowQueue{}, gate: &gate{log: log, passes: map[plan.Step]int{}}, log: log, keys: newKeyring(), faults: faults, visible: time.Second,
			}, &stepStore{Store: slowStore{}, log: log, keys: newKeyring(), faults: faults})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			entries, err := eventlog.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := eventlog.Late(entries); got != diskWait {
				t.Errorf("%s: late by %s, want %s", name, got, diskWait)
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
