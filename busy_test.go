package semel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// TestFM16_BusyFailLosesNothing: a duplicate of a key in progress becomes a dead letter; then the run's worker dies. The run is
// repeated by its own message, and a redrive of the dead letter finds the key completed.
func TestFM16_BusyFailLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		queue := db.Queue("orders")
		var runs atomic.Int32
		cfg := semel.Config{
			Queue: queue, Store: db.Store(), Busy: semel.BusyFail,
			Key: func(*semel.Message) (string, error) { return "order-1", nil },
			Handler: semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error {
				if runs.Add(1) == 1 {
					<-ctx.Done() // its worker dies: the record stays IN_PROGRESS
				}
				return nil
			}),
		}
		dying := cfg
		dying.Store = &deaf{Store: db.Store()}
		dying.Grace = time.Second
		first := start(t, dying)
		send := func(id string) {
			if err := queue.Send(t.Context(), semel.Message{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		send("m1")
		synctest.Wait()
		second := start(t, cfg)
		send("m2")
		synctest.Wait()
		ls, err := queue.DeadLetters(t.Context(), 0)
		if err != nil || len(ls) != 1 || ls[0].Kind != driver.DeadLetterBusy || ls[0].Message.ID != "m2" || ls[0].Attempts != 0 {
			t.Fatalf("dead letters %+v, %v; want that of m2 while m1 runs", ls, err)
		}
		first()
		time.Sleep(5 * time.Minute)
		second()
		r, _, err := db.Store().Record(t.Context(), driver.Key{Consumer: "orders", Raw: "order-1"})
		if err != nil || r.State != driver.Completed || runs.Load() != 2 {
			t.Errorf("%v after %d runs, %v; want COMPLETED after 2", r.State, runs.Load(), err)
		}
		if st, err := queue.Stats(t.Context()); err != nil || !st.Empty() || st.DeadLetters != 1 {
			t.Errorf("%+v %v", st, err)
		}
	})
}

// deaf is a store that no end of an attempt reaches.
type deaf struct{ *memory.Store }

var errDeaf = errors.New("no response")

func (d *deaf) Finish(context.Context, ...driver.Finish) ([]driver.Outcome, error) {
	return nil, errDeaf
}
func (d *deaf) Commit(context.Context, ...driver.Work) ([]driver.Outcome, error) { return nil, errDeaf }

// start runs a consumer; the function stops it.
func start(t *testing.T, cfg semel.Config) (stop func()) {
	t.Helper()
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestBusyFailRefused: where messages of a key wait for each other in order, none of them may be set aside for that.
func TestBusyFailRefused(t *testing.T) {
	db := memory.Open()
	cfg := semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Busy: semel.BusyFail, Versions: key.ByVersion("/v"), Key: key.FromJSON("/id"),
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
	}
	if _, err := semel.New(cfg); err == nil || errFieldOf(err) != "Busy" {
		t.Errorf("%v, want an error of field Busy", err)
	}
	cfg.Busy, cfg.Versions = semel.BusyFail+1, nil
	if _, err := semel.New(cfg); err == nil || errFieldOf(err) != "Busy" {
		t.Errorf("%v, want an error of field Busy", err)
	}
}

func errFieldOf(err error) string {
	if e := (*semel.ConfigError)(nil); errors.As(err, &e) {
		return e.Field
	}
	return ""
}
