package shapes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/driver"
)

// The window measure: digests of 19 million keys and a million records, and a consumer that gets new keys and late
// duplicates. Batches go to it and to a consumer of an empty database without the long-term tier, in turn.
const (
	windowDigests = 19_000_000
	windowRecords = 1_000_000
	windowBatch   = 10_000 // messages
	windowLate    = 20     // every so many of them is a late duplicate
	windowPairs   = 5
	windowKeep    = 400 * 24 * time.Hour
	windowWait    = 10 * time.Minute // for a filter to be filled, or a batch to be settled
)

// windowQueue is what the measure asks of a queue.
type windowQueue interface {
	driver.Queue
	driver.Sender
	driver.QueueInspector
}

// window is one database with a queue, a ledger and records.
type window struct {
	queue windowQueue
	store driver.Store
	// effect takes the id of a message; ledger counts rows and ids of the effects, and those of late duplicates.
	effect string
	ledger func(ctx context.Context) (rows, ids, late int, err error)
	// bulk inserts digests, in the order of their hashes; sizes tells what digests and records take on disk, in bytes.
	bulk  func(ctx context.Context, hashes []driver.DigestHash, d driver.Digest) error
	sizes func(ctx context.Context) (digests, records int64, err error)
	// old counts the late duplicates that were sent, each of another key.
	old int
}

// blind hides a store's scan of its digests: there is no filter then, and every new key is looked up.
type blind struct {
	driver.Store
	driver.LongTerm
}

func (b blind) Unwrap() any { return b.Store }

func (b blind) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Committer]()}
}

func oldID(i int) string { return fmt.Sprintf("old-%d", i) }

// digestHashes makes the names of the keys of n old messages, sorted.
func digestHashes(n int) ([]driver.DigestHash, error) {
	list := make([]driver.DigestHash, n)
	for i := range list {
		raw, err := semel.KeyByID(&semel.Message{ID: oldID(i)})
		if err != nil {
			return nil, err
		}
		list[i] = driver.Key{Consumer: "orders", Raw: raw}.Digest()
	}
	slices.SortFunc(list, func(a, b driver.DigestHash) int { return bytes.Compare(a[:], b[:]) })
	return list, nil
}

// fillWindow makes a window of n digests and n/19 records, and answers the bytes of each on disk.
func fillWindow(ctx context.Context, w *window, n int) (digest, record float64, err error) {
	hashes, err := digestHashes(n)
	if err != nil {
		return 0, 0, err
	}
	now := time.Now()
	d := driver.Digest{Found: true, State: driver.Completed, At: now.Add(-100 * 24 * time.Hour), Until: now.Add(windowKeep)}
	if err := w.bulk(ctx, hashes, d); err != nil {
		return 0, 0, fmt.Errorf("insert %d digests: %w", n, err)
	}
	records := max(n/(windowDigests/windowRecords)/2000, 1) * 2000
	if err := fill(ctx, w.store, records, retention); err != nil {
		return 0, 0, fmt.Errorf("insert %d records: %w", records, err)
	}
	bytesOfDigests, bytesOfRecords, err := w.sizes(ctx)
	return float64(bytesOfDigests) / float64(n), float64(bytesOfRecords) / float64(records), err
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

// startWindow starts a consumer; keep 0 = without the long-term tier.
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

// batch sends n messages, of which every 20th is a late duplicate of one of old keys (old 0 = none), and answers how long
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

// filtered waits until new keys are not looked up any more.
func (r *running) filtered(ctx context.Context) error {
	return until(ctx, 100*time.Millisecond, func() (bool, error) {
		before := r.c.Summary().LongTermLookups
		if _, err := r.batch(ctx, 100, 0); err != nil {
			return false, err
		}
		return r.c.Summary().LongTermLookups-before < 50, nil
	})
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

// resident is the memory of this process, in MB, after what is not needed was given back.
func resident() (float64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0, err
	}
	return float64(pages*int64(os.Getpagesize())) / 1e6, nil
}

// measureWindow fills large and compares it with empty.
func measureWindow(ctx context.Context, e *harness.Env, large, empty *window) (s harness.Sample, err error) {
	lt, ok := driver.As[driver.LongTerm](large.store)
	if !ok {
		return s, errors.New("the store keeps no digests")
	}
	v := map[string]float64{}
	if v["bytes_per_digest"], v["bytes_per_record"], err = fillWindow(ctx, large, e.N); err != nil {
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
	if v["resident_mb_before_filter"], err = resident(); err != nil {
		return s, err
	}
	for _, one := range []struct {
		name  string
		store driver.Store
	}{{"filtered", large.store}, {"unfiltered", blind{large.store, lt}}} {
		if err := compareWindow(ctx, one.name, one.store, large, base, e.N, v); err != nil {
			return s, fmt.Errorf("%s: %w", one.name, err)
		}
	}
	s.Values, s.Done = v, e.N
	s.Wall = time.Second // the figures are in Values
	return s, nil
}

// compareWindow runs a consumer on large and base in turn, and checks that no late duplicate took effect, and each became a
// letter.
func compareWindow(ctx context.Context, name string, store driver.Store, large *window, base *running, old int, v map[string]float64) (err error) {
	rowsBefore, _, _, err := large.ledger(ctx)
	if err != nil {
		return err
	}
	before, err := large.queue.Stats(ctx)
	if err != nil {
		return err
	}
	r, err := startWindow(ctx, large, store, windowKeep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	if name == "filtered" {
		if err := r.filtered(ctx); err != nil {
			return fmt.Errorf("wait for the filter: %w", err)
		}
		if v["resident_mb_with_filter"], err = resident(); err != nil {
			return err
		}
	}
	sum, sent := r.c.Summary(), r.sent
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
	now := r.c.Summary()
	v[name+"_per_second"], v[name+"_to_empty"] = harness.Median(rates), harness.Median(ratios)
	hits := now.LongTermHits - sum.LongTermHits
	v[name+"_lookups_per_new_key"] = float64(now.LongTermLookups-sum.LongTermLookups-hits) / float64(r.sent-sent)
	v[name+"_late"] += float64(r.late)

	after, err := large.queue.Stats(ctx)
	if err != nil {
		return err
	}
	rows, ids, late, err := large.ledger(ctx)
	if err != nil {
		return err
	}
	letters := after.Letters - before.Letters
	v[name+"_letters"] = float64(letters)
	if late != 0 || rows != ids || rows-rowsBefore != r.sent || int(letters) != r.late || int(hits) != r.late {
		return fmt.Errorf("the figure is refused: of %d new and %d late messages the ledger got %d rows (%d of %d distinct), %d of late ones; %d letters, %d hits",
			r.sent, r.late, rows-rowsBefore, ids, rows, late, letters, hits)
	}
	return nil
}
