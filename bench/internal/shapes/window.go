package shapes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// The window measure: expired records of many million keys, and a consumer that gets new keys and late duplicates. Batches go to
// it and to a consumer of an empty database without a long-term period, in turn.
const (
	windowBatch = 10_000 // messages
	windowLate  = 20     // every 20th of them is a late duplicate
	windowPairs = 10
	windowKeep  = 400 * 24 * time.Hour
	windowWait  = 10 * time.Minute // for a batch to be settled
)

// windowQueue is what the measure asks of a queue.
type windowQueue interface {
	driver.Queue
	driver.Sender
	driver.QueueInspector
}

// windowStore is what it asks of a store.
type windowStore interface {
	driver.Store
	driver.LongTerm
	driver.Sweeper
}

// window is one database with a queue, a ledger and records.
type window struct {
	queue windowQueue
	store windowStore
	// effect takes the id of a message; ledger counts rows and ids of the effects, and those of late duplicates.
	effect string
	ledger func(ctx context.Context) (rows, ids, late int, err error)
	// sizes tells what records take, indexes included: on disk, and without the free room in their pages.
	sizes func(ctx context.Context) (disk, live int64, err error)
	// old counts the late duplicates that were sent, each of another key.
	old int
}

func oldID(i int) string { return fmt.Sprintf("old-%d", i) }

// fillWindow makes n expired records, as messages and a sweep make them, and measures them before and after they expire.
func fillWindow(ctx context.Context, w *window, n int, v map[string]float64) error {
	const part = 1000
	for from := 0; from < n; from += part {
		claims := make([]driver.Claim, min(part, n-from))
		for i := range claims {
			raw, err := key.ByID(&semel.Message{ID: oldID(from + i)})
			if err != nil {
				return err
			}
			claims[i] = newClaim()
			claims[i].Key = driver.Key{Consumer: "orders", Raw: raw}
		}
		if err := complete(ctx, w.store, claims, time.Millisecond); err != nil {
			return fmt.Errorf("insert %d records: %w", n, err)
		}
	}
	disk, live, err := w.sizes(ctx)
	if err != nil {
		return err
	}
	v["bytes_per_record"], v["disk_per_record"] = float64(live)/float64(n), float64(disk)/float64(n)
	if err := w.store.SetLongTerm(ctx, "orders", windowKeep); err != nil {
		return err
	}
	begin, expired := time.Now(), 0
	for more := true; more; {
		var sum driver.Swept
		if sum, more, err = w.store.Sweep(ctx, 0, 10_000); err != nil {
			return err
		}
		expired += sum.Expired
	}
	if expired != n {
		return fmt.Errorf("%d of %d records expired", expired, n)
	}
	v["expired_per_second"] = float64(n) / time.Since(begin).Seconds()
	disk, live, err = w.sizes(ctx)
	v["bytes_per_expired"], v["disk_per_expired"] = float64(live)/float64(n), float64(disk)/float64(n)
	return err
}

// running is a consumer at work.
type running struct {
	w    *window
	c    *semel.Consumer
	stop context.CancelFunc
	done chan error
	sent int // new keys
	late int // late duplicates
}

// startWindow starts a consumer; keep 0 = without a long-term period.
func startWindow(ctx context.Context, w *window, store driver.Store, keep time.Duration) (*running, error) {
	c, err := semel.New(semel.Config{
		Queue: w.queue, Store: store, Handler: queuedID(w.effect), Concurrency: 1000, Batch: 100, Committers: 2, LongTerm: keep,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &running{w: w, c: c, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- c.Run(ctx) }()
	return r, nil
}

// queuedID queues an effect with the id of the message.
func queuedID(effect string) semel.Handler {
	return semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
		tx.Exec(effect, a.ID, len(a.Body))
		return nil
	})
}

func (r *running) end() error {
	r.stop()
	return <-r.done
}

// batch sends n messages, of which every 20th is a late duplicate of one of old keys (old 0 = none), and returns how long
// it took until they were settled.
func (r *running) batch(ctx context.Context, n, old int) (time.Duration, error) {
	list := make([]driver.Message, n)
	for i := range list {
		list[i] = driver.Message{ID: newID(), Body: []byte(`{"amount": 100}`)}
		if old > 0 && i%windowLate == 0 {
			list[i].ID = oldID(r.w.old * 7919 % old)
			r.w.old++
			r.late++
		} else {
			r.sent++
		}
	}
	begin := time.Now()
	for part := range slices.Chunk(list, 1000) {
		if err := r.w.queue.Send(ctx, part...); err != nil {
			return 0, fmt.Errorf("send: %w", err)
		}
	}
	err := until(ctx, 5*time.Millisecond, func() (bool, error) {
		s, err := r.w.queue.Stats(ctx)
		return s.Empty(), err
	})
	return time.Since(begin), err
}

func until(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	for end := time.Now().Add(windowWait); ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New("it takes too long")
		}
		if err := wait(ctx, every); err != nil {
			return err
		}
	}
}

// measureWindow fills large and compares it with empty.
func measureWindow(ctx context.Context, e *harness.Env, large, empty *window) (s harness.Sample, err error) {
	v := map[string]float64{}
	if err := fillWindow(ctx, large, e.N, v); err != nil {
		return s, err
	}
	base, err := startWindow(ctx, empty, empty.store, 0)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, base.end()) }()
	if _, err := base.batch(ctx, windowBatch, 0); err != nil {
		return s, err
	}
	if err := compareWindow(ctx, large, base, e.N, v); err != nil {
		return s, err
	}
	s.Values, s.Done = v, e.N
	s.Wall = time.Second // the figures are in Values
	return s, nil
}

// compareWindow runs a consumer on large and base in turn, and checks that no late duplicate took effect, and each became a
// dead letter.
func compareWindow(ctx context.Context, large *window, base *running, old int, v map[string]float64) (err error) {
	r, err := startWindow(ctx, large, large.store, windowKeep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	var ratios, rates []float64
	for range windowPairs {
		a, err := base.batch(ctx, windowBatch, 0)
		if err != nil {
			return err
		}
		b, err := r.batch(ctx, windowBatch, old)
		if err != nil {
			return err
		}
		ratios, rates = append(ratios, a.Seconds()/b.Seconds()), append(rates, windowBatch/b.Seconds())
	}
	v["window_per_second"], v["window_to_empty"] = harness.Median(rates), harness.Median(ratios)
	after, err := large.queue.Stats(ctx)
	if err != nil {
		return err
	}
	rows, ids, late, err := large.ledger(ctx)
	if err != nil {
		return err
	}
	v["late"], v["late_dead_letters"] = float64(r.late), float64(after.DeadLetters)
	if now := r.c.Summary(); late != 0 || rows != ids || rows != r.sent || int(after.DeadLetters) != r.late || int(now.Late) != r.late {
		return fmt.Errorf("the figure is refused: of %d new and %d late messages the ledger got %d rows (%d distinct), %d of late ones; "+
			"%d dead letters, %d counted as late", r.sent, r.late, rows, ids, late, after.DeadLetters, now.Late)
	}
	return nil
}
