package semel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

func orders(db *memory.DB, store semel.Store) semel.Config {
	return semel.Config{
		Queue: db.Queue("orders"), Store: store, Key: key.FromJSON("/id"), Concurrency: 1, Batch: 1,
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
	}
}

func copyOf(id, body string) semel.Message { return semel.Message{ID: id, Body: []byte(body)} }

// TestDuplicatesAreWrittenDown: the store knows the duplicates of a key without an observer: which messages, when, where, why.
func TestDuplicatesAreWrittenDown(t *testing.T) {
	for name, wrap := range map[string]func(driver.Store) driver.Store{
		"plain": func(s driver.Store) driver.Store { return s },
		"behind a cache": func(s driver.Store) driver.Store {
			return cache.New(s, cache.Options{Size: 10, Strangers: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory.Open()
				stop := start(t, orders(db, wrap(db.Store())))
				for _, m := range []semel.Message{
					copyOf("m1", `{"id":1}`), copyOf("m2", `{"id":1}`), copyOf("m3", `{"id":1,"more":true}`), copyOf("m4", `{"id":2}`),
				} {
					if err := db.Queue("orders").Send(t.Context(), m); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				at := time.Now()
				time.Sleep(time.Second)
				synctest.Wait() // what gathered for a second is written while the consumer goes on
				total, ds, err := db.Store().Duplicates(t.Context(), driver.Key{Consumer: "orders", Raw: "1"})
				if err != nil || total != 2 || len(ds) != 2 {
					t.Fatalf("%d, %+v, %v; want 2 duplicates", total, ds, err)
				}
				for i, want := range []driver.Duplicate{
					{MessageID: "m2", Decision: "replayed"}, {MessageID: "m3", Decision: "replayed_other_payload"},
				} {
					d := ds[i]
					if d.MessageID != want.MessageID || d.Decision != want.Decision || d.Cause != "producer_duplicate" ||
						d.Queue != "orders" || d.Count != 1 || d.Worker == "" || !d.At.Equal(at) {
						t.Errorf("%+v, want %+v", d, want)
					}
				}
				stop()
				if total, _, _ := db.Store().Duplicates(t.Context(), driver.Key{Consumer: "orders", Raw: "2"}); total != 0 {
					t.Errorf("%d duplicates of a key that had none", total)
				}
			})
		})
	}
}

// stuckLog is a store whose duplicate log fails, or does not respond.
type stuckLog struct {
	*memory.Store
	silent bool
	calls  int
}

func (s *stuckLog) AddDuplicates(ctx context.Context, _ ...driver.Duplicate) error {
	s.calls++
	if s.silent {
		<-ctx.Done()
	}
	return errors.New("no space")
}

// TestDuplicatesNeverHinderMessages: while the log fails or does not respond, messages are still settled at once, memory is
// bounded, and missing duplicates are counted. The consumer stops.
func TestDuplicatesNeverHinderMessages(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := memory.Open()
			s := &stuckLog{Store: db.Store(), silent: silent}
			cfg := orders(db, s)
			cfg.Batch = 100
			c, err := semel.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			const n = 10_000
			var ms []semel.Message
			for i := range n + 1 {
				ms = append(ms, copyOf(fmt.Sprint(i), `{"id":1}`))
			}
			began := time.Now()
			if err := db.Queue("orders").Send(t.Context(), ms...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if st, err := db.Queue("orders").Stats(t.Context()); err != nil || !st.Empty() || time.Since(began) != 0 {
				t.Errorf("silent %v: %+v after %v, %v: messages wait for the log", silent, st, time.Since(began), err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if sum := c.Summary(); sum.Replayed != n || sum.Effects != 1 || sum.DuplicatesUnrecorded != n {
				t.Errorf("silent %v: %+v", silent, sum)
			}
			if took := time.Since(began); took > 10*time.Second || s.calls > 5 {
				t.Errorf("silent %v: the stop took %v, the log was asked %d times", silent, took, s.calls)
			}
		})
	}
}

// TestDuplicatesAreWrittenAtTheEnd: what gathered when a consumer stops is in the store when Run returns.
func TestDuplicatesAreWrittenAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		stop := start(t, orders(db, db.Store()))
		for i := range 1000 {
			if err := db.Queue("orders").Send(t.Context(), copyOf(fmt.Sprint(i), `{"id":1}`)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		stop()
		total, ds, err := db.Store().Duplicates(t.Context(), driver.Key{Consumer: "orders", Raw: "1"})
		if err != nil || total != 999 || len(ds) != driver.MaxDuplicates || !strings.HasPrefix(ds[15].MessageID, "999") {
			t.Errorf("%d, %+v, %v", total, ds, err)
		}
	})
}
