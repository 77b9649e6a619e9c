package day53

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/lock"
	"github.com/semel-dev/semel/memory"
)

const day = 24 * time.Hour

func storage(s semel.Store) IdempotencyStorage { return NewStorage(s, "day53", day) }

func TestIdempotentConsumer_DuplicateMessages(t *testing.T) {
	metrics := &Counts{}
	c := NewIdempotentConsumer(storage(memory.NewStore()), ProcessorFunc(func(_ context.Context, msg *Message) (any, error) {
		t.Logf("Processing message: %s", msg.ID)
		return "receipt of " + msg.ID, nil
	}), metrics, ByID)
	msg := &Message{ID: "msg-001", Type: "create_order", Data: `{"amount":100000}`}
	for i, want := range []Outcome{Processed, Duplicate, Duplicate} {
		got, result, err := c.Handle(t.Context(), msg)
		if err != nil || got != want || result != "receipt of msg-001" {
			t.Errorf("delivery %d: %s with %v, %v", i, got, result, err)
		}
		if got == Duplicate {
			t.Logf("Duplicate message %s detected and skipped", msg.ID)
		}
	}
	if metrics.ProcessedN != 1 || metrics.DuplicateN != 2 || metrics.Rate() < 0.66 || metrics.Rate() > 0.67 {
		t.Errorf("%d processed, %d duplicates, rate %v", metrics.ProcessedN, metrics.DuplicateN, metrics.Rate())
	}
}

func TestVersionBasedIdempotency(t *testing.T) {
	var stock atomic.Int64
	c := NewIdempotentConsumer(storage(memory.NewStore()), ProcessorFunc(func(_ context.Context, msg *Message) (any, error) {
		stock.Store(int64(msg.Version))
		return nil, nil
	}), &Counts{}, ByVersion)
	for _, d := range []struct {
		version int
		want    Outcome
	}{{2, Processed}, {1, Skipped}, {2, Duplicate}, {3, Processed}} {
		got, _, err := c.Handle(t.Context(), &Message{ID: "product-7", Version: d.version, Data: fmt.Sprint(d.version)})
		if err != nil || got != d.want {
			t.Errorf("version %d: %s, %v, want %s", d.version, got, err, d.want)
		}
		if got == Skipped {
			t.Logf("Version %d processed, skipping version %d", stock.Load(), d.version)
		}
	}
	if stock.Load() != 3 {
		t.Errorf("version %d is applied", stock.Load())
	}
}

// TestDistributedIdempotency: three consumers on one store get one message at once, and a handler takes longer than any
// lock's or claim's time: one runs it, the others wait and get its result.
func TestDistributedIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locks := NewLocks(store)
		var runs, inside atomic.Int32
		slow := ProcessorFunc(func(ctx context.Context, _ *Message) (any, error) {
			l, err := locks.AcquireLock(ctx, "account-9", 30*time.Second)
			if err != nil {
				return nil, err
			}
			if inside.Add(1) != 1 {
				t.Error("two hold the lock")
			}
			time.Sleep(2 * time.Minute)
			inside.Add(-1)
			return runs.Add(1), l.Release()
		})
		var wg sync.WaitGroup
		for range 3 {
			for _, id := range []string{"msg-001", "msg-002"} { // two messages about one account
				wg.Go(func() {
					c := NewIdempotentConsumer(storage(store), slow, &Counts{}, ByID)
					err := c.ProcessMessage(t.Context(), &Message{ID: id})
					for ; errors.Is(err, semel.ErrBusy); err = c.ProcessMessage(t.Context(), &Message{ID: id}) {
						time.Sleep(time.Second) // what a queue does: it delivers again
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if runs.Load() != 2 {
			t.Fatalf("%d runs of 2 messages", runs.Load())
		}
		t.Log("Multiple consumers handled correctly with locks")
	})
}

func TestStrategies(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 5, 3, 12, 0, s, 0, time.UTC) }
	mismatch := Outcome("mismatch")
	type delivery struct {
		msg  Message
		want Outcome
	}
	for name, c := range map[string]struct {
		by  Strategy
		got []delivery
	}{
		"id": {ByID, []delivery{
			{Message{ID: "1", Data: "a"}, Processed}, {Message{ID: "1", Data: "a"}, Duplicate},
			{Message{ID: "2", Data: "a"}, Processed},
			{Message{ID: "1", Data: "b"}, mismatch}, {Message{ID: "1", Type: "t", Data: "a"}, mismatch},
		}},
		"version": {ByVersion, []delivery{
			{Message{ID: "1", Version: 2}, Processed}, {Message{ID: "1", Version: 1}, Skipped},
			{Message{ID: "1", Version: 10}, Processed}, {Message{ID: "1", Version: 9}, Skipped},
			{Message{ID: "2", Version: 1}, Processed}, {Message{ID: "1", Version: 10, Data: "x"}, mismatch},
		}},
		"timestamp": {ByTimestamp, []delivery{
			{Message{ID: "1", Timestamp: at(2)}, Processed}, {Message{ID: "1", Timestamp: at(1)}, Skipped},
			{Message{ID: "1", Timestamp: at(2)}, Duplicate}, {Message{ID: "1", Timestamp: at(2), Data: "x"}, mismatch},
			{Message{ID: "1", Timestamp: at(2).In(time.FixedZone("JST", 9*3600))}, Duplicate},
			{Message{ID: "1", Timestamp: at(3)}, Processed},
		}},
		"hash": {ByHash, []delivery{
			{Message{ID: "1", Data: `{"a":1,"b":2}`}, Processed}, {Message{ID: "2", Data: `{"b":2, "a":1}`}, Duplicate},
			{Message{ID: "3", Data: `{"a":1}`}, Processed}, {Message{ID: "1", Type: "t", Data: `{"a":1}`}, Processed},
			{Message{ID: "12", Data: `3`}, Processed}, {Message{ID: "1", Data: `23`}, Processed}, // no delimiter: one hash
		}},
	} {
		t.Run(name, func(t *testing.T) {
			work := ProcessorFunc(func(context.Context, *Message) (any, error) { return nil, nil })
			consumer := NewIdempotentConsumer(storage(memory.NewStore()), work, &Counts{}, c.by)
			for i, d := range c.got {
				got, _, err := consumer.Handle(t.Context(), &d.msg)
				if errors.Is(err, semel.ErrMismatch) {
					got, err = mismatch, nil
				}
				if err != nil || got != d.want {
					t.Errorf("delivery %d: %s, %v, want %s", i, got, err, d.want)
				}
			}
		})
	}
}

// TestCheckThenRun shows a gap that the four methods of the storage cannot close: two consumers both ask before either
// marks.
func TestCheckThenRun(t *testing.T) {
	s := storage(memory.NewStore())
	var naive, safe atomic.Int32
	var asked, wg sync.WaitGroup
	asked.Add(2)
	for range 2 {
		wg.Go(func() {
			done, err := s.IsProcessed(t.Context(), "msg-001")
			asked.Done()
			asked.Wait()
			if err == nil && !done {
				naive.Add(1) // the charge
				if err := s.MarkProcessed(t.Context(), "msg-001", nil); err != nil && !errors.Is(err, semel.ErrBusy) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			_, _, err := s.Once(t.Context(), "msg-002", func(context.Context) (any, error) {
				asked.Wait()
				return safe.Add(1), nil
			}, semel.WithWait())
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if naive.Load() != 2 || safe.Load() != 1 {
		t.Errorf("check, run, mark: %d charges, want 2; claim, run, record: %d, want 1", naive.Load(), safe.Load())
	}
}

func TestLockMethods(t *testing.T) {
	locks := NewLocks(memory.NewStore())
	first, err := locks.AcquireLock(t.Context(), "a", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Extend(time.Minute); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := first.Release(); err != nil {
			t.Error(err)
		}
	}
	second, err := locks.AcquireLock(t.Context(), "a", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Extend(time.Minute); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the previous holder extended: %v", err)
	}
	if err := first.Release(); err != nil {
		t.Errorf("a release by the previous holder: %v", err)
	}
	if err := second.Extend(time.Minute); err != nil || second.Token() <= first.Token() {
		t.Errorf("the present holder: %v, token %d after %d", err, second.Token(), first.Token())
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}
