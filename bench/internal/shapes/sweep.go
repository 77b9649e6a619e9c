package shapes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/driver"
)

// The sweep measure: how long messages are in flight, which come at a fixed rate, without and with another consumer that
// sweeps a backlog of expired records in the same database. Quiet and busy times take turns.
const (
	sweepBacklog = 1_000_000
	sweepPairs   = 3                     // of a quiet time and a busy one
	sweepBusy    = 20 * time.Second      // of a pair, at most
	sweepTick    = 20 * time.Millisecond // between two sends of sweepSend messages
	sweepSend    = 8
	sweepBegins  = time.Minute // a consumer's first sweep comes so long after a full minute as the consumer was made
)

// hidden is a store that cannot be swept: of its interfaces that write only the one for queued effects is left.
type hidden struct{ driver.Store }

func (h hidden) Unwrap() any { return h.Store }

func (h hidden) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Committer]()}
}

// stream sends messages at the fixed rate until ctx ends.
func stream(ctx context.Context, q driver.Sender) error {
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	for {
		list := make([]driver.Message, sweepSend)
		for i := range list {
			list[i] = driver.Message{ID: newID(), Body: []byte(`{"amount": 100}`)}
		}
		if err := q.Send(ctx, list...); err != nil && ctx.Err() == nil {
			return fmt.Errorf("send: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// times collects how long messages were in flight, from their receipt to their settlement.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) note(e semel.Event) {
	if e.Kind == semel.EventSettled {
		t.mu.Lock()
		t.all = append(t.all, e.Elapsed)
		t.mu.Unlock()
	}
}

// take returns the times since the last take.
func (t *times) take() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.all
	t.all = nil
	return all
}

// swept runs the measure on one database: queue, records and effects in it, expired records are there already.
func swept(ctx context.Context, q, other semel.Queue, s driver.Store, effect string, n int) (sample harness.Sample, err error) {
	sender, ok := driver.As[driver.Sender](q)
	if !ok {
		return sample, errors.New("the queue takes no messages")
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	fails := make(chan error, 2)
	defer func() {
		cancel()
		group.Wait()
		close(fails)
		for bad := range fails {
			err = errors.Join(err, bad)
		}
	}()
	var hand times
	c, err := semel.New(semel.Config{
		Queue: q, Store: hidden{s}, Handler: queued(effect), Concurrency: 256, Batch: 100,
		Events: semel.Events{Delivery: hand.note},
	})
	if err != nil {
		return sample, err
	}
	group.Go(func() { fails <- stream(ctx, sender) })
	group.Go(func() { fails <- c.Run(ctx) })
	var quiet, busy []time.Duration
	for i := 0; i < sweepPairs && sample.Done < n; i++ {
		// The quiet time lasts until the next minute begins, because the sweeper sweeps at once then.
		if err := wait(ctx, 2*time.Second); err != nil { // what the busy time before has left
			return sample, err
		}
		hand.take()
		if err := wait(ctx, sweepBusy/2+untilMinute(time.Now().Add(sweepBusy/2))); err != nil {
			return sample, err
		}
		quiet = append(quiet, hand.take()...)
		done, took, err := sweepFor(ctx, other, s, n-sample.Done)
		if err != nil {
			return sample, err
		}
		busy = append(busy, hand.take()...)
		sample.Done += done
		sample.Wall += took
	}
	if len(quiet) < 1000 || len(busy) < 1000 || sample.Done == 0 {
		return sample, fmt.Errorf("%d messages in quiet times, %d in busy ones, %d records swept: too few", len(quiet), len(busy), sample.Done)
	}
	sample.Values = map[string]float64{
		"quiet_p50_us": quantile(quiet, 0.5), "quiet_p99_us": quantile(quiet, 0.99),
		"busy_p50_us": quantile(busy, 0.5), "busy_p99_us": quantile(busy, 0.99),
		"p99_ratio": quantile(busy, 0.99) / quantile(quiet, 0.99),
	}
	return sample, nil
}

// sweepFor lets an idle consumer sweep until no record is left or the busy time has ended.
func sweepFor(ctx context.Context, q semel.Queue, s semel.Store, left int) (purged int, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepBusy)
	defer cancel()
	began := time.Now()
	c, err := semel.New(semel.Config{
		Queue: q, Store: s, Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
		Events: semel.Events{Health: func(e semel.Event) {
			if left -= e.Purged; left <= 0 {
				cancel()
			}
		}},
	})
	if err != nil {
		return 0, 0, err
	}
	err = c.Run(ctx)
	return int(c.Summary().Swept), time.Since(began), err
}

func untilMinute(t time.Time) time.Duration {
	return sweepBegins - time.Duration(t.UnixNano())%sweepBegins
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func quantile(all []time.Duration, q float64) float64 {
	slices.Sort(all)
	return float64(all[int(q*float64(len(all)-1))]) / 1e3
}

func sweepMeasure(name, title string, run func(context.Context, *harness.Env) (harness.Sample, error)) harness.Measure {
	return harness.Measure{
		Name: name, Title: title, Kind: harness.Semel, Unit: "purged records", Long: true, N: sweepBacklog,
		Settings: "400 messages a second, queue, records and effects in one database; a second consumer sweeps a million expired records",
		Run:      run,
	}
}

func sqliteSweep() harness.Measure {
	return sweepMeasure("semel-sqlite-sweep", "semel on SQLite, a sweep beside 400 messages a second",
		func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withSQLite(ctx, e, func(db *sqlite.DB) (s harness.Sample, err error) {
				if _, err := db.SQL().ExecContext(ctx, sqliteLedger); err != nil {
					return s, err
				}
				if err := expire(ctx, db.Store(), e.N); err != nil {
					return s, err
				}
				return swept(ctx, db.Queue("orders"), db.Queue("none"), db.Store(), sqliteEffect, e.N)
			})
		})
}

func postgresSweep() harness.Measure {
	return sweepMeasure("semel-pg-sweep", "semel on PostgreSQL, a sweep beside 400 messages a second",
		func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withPostgres(ctx, e, func(_ *harness.Database, db *postgres.DB) (s harness.Sample, err error) {
				if err := expire(ctx, db.Store(), e.N); err != nil {
					return s, err
				}
				return swept(ctx, db.Queue("orders"), db.Queue("none"), db.Store(), load.Effect, e.N)
			})
		})
}

// expire adds n records, a multiple of 2,000, that are past their retention when it returns.
func expire(ctx context.Context, s driver.Store, n int) error {
	n = max(n/2000, 1) * 2000
	if err := fill(ctx, s, n, newID, time.Microsecond); err != nil {
		return fmt.Errorf("fill the store with %d records: %w", n, err)
	}
	return nil
}
