package prom_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// TestS0_06_S0_20_WhileAJobRuns: a worker that takes one message at a time never shows two in flight, however many wait, and
// the extensions of a long job are counted while it runs.
func TestS0_06_S0_20_WhileAJobRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q := db.Queue("jobs")
		reg := prometheus.NewPedanticRegistry()
		m, err := prom.New(reg, prom.Options{Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		send(t, q, "a", "b", "c")
		looks := 0
		c, err := semel.New(semel.Config{
			Queue: q, Store: db.Store(), Events: m.Events(), Limit: 3, Batch: 1, Concurrency: 1, Visibility: 5 * time.Second,
			Key: func(m *semel.Message) (string, error) { return string(m.Body), nil },
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
				const labels = `{consumer="jobs",queue="jobs"} `
				first := series(t, scrape(t, reg), `semel_lease_extensions_total{consumer="jobs",queue="jobs",result="applied"} `)
				for range 15 {
					time.Sleep(time.Second)
					looks++
					if n := series(t, scrape(t, reg), "semel_inflight"+labels); n != "1" {
						t.Errorf("%s in flight", n)
					}
				}
				if last := series(t, scrape(t, reg), `semel_lease_extensions_total{consumer="jobs",queue="jobs",result="applied"} `); last == first {
					t.Errorf("%q extensions of the lease before 15 s of work, and %q after", first, last)
				}
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(c)
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if looks != 45 {
			t.Errorf("looked %d times, want 15 for each of three messages", looks)
		}
	})
}

// away is a store that does not respond to claims while it is down.
type away struct {
	*memory.Store
	down atomic.Bool
}

func (s *away) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if s.down.Load() {
		return nil, errors.New("connection refused")
	}
	return s.Store.Claim(ctx, c...)
}

// TestPausedSaysWhy: a worker without its store and one without its downstream are paused for different reasons, and for none
// when the outage has ended.
func TestPausedSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q, store := db.Queue("jobs"), &away{Store: db.Store()}
		var gone atomic.Bool // the downstream
		reg := prometheus.NewPedanticRegistry()
		m, err := prom.New(reg, prom.Options{Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		c, err := semel.New(semel.Config{
			Queue: q, Store: store, Events: m.Events(), Breaker: semel.Breaker{Failures: 1},
			Logger: slog.New(slog.DiscardHandler),
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
				if gone.Load() {
					return semel.Unavailable(errors.New("connection refused"))
				}
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(c)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		// For two minutes, because a message tries now and then whether the downstream is there: while it does, the breaker is
		// not open.
		expect := func(when, wantStore, wantDownstream string) {
			t.Helper()
			time.Sleep(10 * time.Minute)
			got := map[string]string{}
			for range 120 {
				time.Sleep(time.Second)
				synctest.Wait()
				text := scrape(t, reg)
				for _, reason := range []string{"store", "downstream"} {
					v := series(t, text, `semel_paused{consumer="jobs",queue="jobs",reason="`+reason+`"} `)
					got[reason] = max(got[reason], v)
				}
			}
			if got["store"] != wantStore || got["downstream"] != wantDownstream {
				t.Errorf("%s: paused by %v, want store %s, downstream %s", when, got, wantStore, wantDownstream)
			}
		}
		send(t, q, "a")
		expect("all is well", "0", "0")
		store.down.Store(true)
		send(t, q, "b")
		expect("without the store", "1", "0")
		store.down.Store(false)
		expect("with it again", "0", "0")
		gone.Store(true)
		send(t, q, "c")
		expect("without the downstream", "0", "1")
		gone.Store(false)
		expect("with it again", "0", "0")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// series is the value behind a series in a scrape, empty when it is not there.
func series(t *testing.T, text, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+name)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
