package semeltest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// noDuplicates is a store without its log of duplicates.
type noDuplicates struct{ driver.Store }

func (s noDuplicates) Unwrap() any { return s.Store }

func (s noDuplicates) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Committer](), driver.InterfaceOf[driver.Transactor]()}
}

// BenchDuplicates measures the cost of a store's duplicate log (driver.DuplicateLog). It consumes messages, with several
// copies of each key, with and without the log, and measures one write of 512 duplicates, the most that a consumer writes
// in a second. The setup needs a Queue that is a driver.Sender, and a Store that is a driver.Committer.
func BenchDuplicates(b *testing.B, open StoreFactory) {
	for _, copies := range []int{1, 2, 10} {
		for _, log := range []bool{false, true} {
			b.Run(fmt.Sprintf("copies=%d/log=%v", copies, log), func(b *testing.B) {
				const n = 20_000
				var took time.Duration
				for range b.N {
					took += consumeCopies(b, open(b), n, copies, log)
				}
				b.ReportMetric(float64(took.Microseconds())/float64(b.N*n), "µs/msg")
			})
		}
	}
	b.Run("add", func(b *testing.B) { addDuplicates(b, open(b).Store) })
}

// consumeCopies returns how long it takes until all are settled.
func consumeCopies(b *testing.B, s StoreSetup, n, copies int, log bool) (took time.Duration) {
	keys := n / copies
	for from := 0; from < n; from += 1000 {
		ms := make([]driver.Message, 1000)
		for i := range ms { // the copies of a key come after all keys
			ms[i] = driver.Message{ID: fmt.Sprintf("%d-%d", (from+i)%keys, (from+i)/keys)}
		}
		if err := as[driver.Sender](s.Queue).Send(b.Context(), ms...); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	left, began := n, time.Time{}
	cfg := semel.Config{
		Queue: s.Queue, Store: s.Store, Concurrency: 200, Batch: 100, Committers: 2,
		Logger: slog.New(slog.DiscardHandler),
		Key: func(m *semel.Message) (string, error) {
			key, _, _ := strings.Cut(m.ID, "-")
			return key, nil
		},
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
		Events: semel.Events{Delivery: func(e semel.Event) {
			if e.Kind == semel.EventSettled {
				if left--; left == 0 {
					took = time.Since(began)
					cancel()
				}
			}
		}},
	}
	if !log {
		cfg.Store = noDuplicates{s.Store}
	}
	c, err := semel.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	began = time.Now()
	if err := c.Run(ctx); err != nil {
		b.Fatal(err)
	}
	if sum := c.Summary(); sum.Effects != int64(keys) || sum.DuplicatesUnrecorded > 0 != (log && n-keys > 4096) {
		b.Logf("%+v", sum)
	}
	return took
}

// addDuplicates writes the most that a consumer writes in a second: 512 duplicates of as many keys.
func addDuplicates(b *testing.B, s driver.Store) {
	to, ok := driver.As[driver.DuplicateLog](s)
	if !ok {
		b.Fatal("the store has no driver.DuplicateLog")
	}
	var ds []driver.Duplicate
	for i := range 512 {
		k := driver.Key{Consumer: "c", Raw: fmt.Sprint(i)}
		if _, err := s.Claim(b.Context(), driver.Claim{Key: k, Nonce: driver.Nonce{1, byte(i), byte(i >> 8)}, Lease: time.Hour}); err != nil {
			b.Fatal(err)
		}
		ds = append(ds, driver.Duplicate{
			Key: k, MessageID: fmt.Sprint("m", i), At: time.Now(), Worker: "w:1", Queue: "q", Count: 1, Decision: "replayed", Cause: "redelivery",
		})
	}
	for b.Loop() {
		if err := to.AddDuplicates(b.Context(), ds...); err != nil {
			b.Fatal(err)
		}
	}
}
