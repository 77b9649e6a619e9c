package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// sweptStore returns planned results for sweeps, and records when they came.
type sweptStore struct {
	*memory.Store
	takes time.Duration // of one sweep

	mu    sync.Mutex
	plan  []sweepResult // the last one is repeated
	calls []time.Time
}

type sweepResult struct {
	swept driver.Swept
	more  bool
	err   error
}

func (s *sweptStore) Sweep(ctx context.Context, _ time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	s.mu.Lock()
	s.calls = append(s.calls, time.Now())
	a := s.plan[0]
	if len(s.plan) > 1 {
		s.plan = s.plan[1:]
	}
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	if !slices.Equal(consumers, []string{"orders"}) {
		return driver.Swept{}, false, fmt.Errorf("asked to park claims of %q, wanted those of its own consumer", consumers)
	}
	if a.swept.Purged > limit {
		return driver.Swept{}, false, fmt.Errorf("asked for %d records at once, wanted to purge %d", limit, a.swept.Purged)
	}
	return a.swept, a.more, a.err
}

// runSwept runs a consumer on that store for a time, and returns its events, summary and log.
func runSwept(t *testing.T, s *sweptStore, d time.Duration) (events []semel.Event, sum semel.Summary, log string) {
	t.Helper()
	db := memory.Open()
	s.Store = db.Store()
	var buf bytes.Buffer
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: s, Logger: slog.New(slog.NewTextHandler(&buf, nil)),
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
		Events:  semel.Events{Health: func(e semel.Event) { events = append(events, e) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return events, c.Summary(), buf.String()
}

// TestSweepTellsWhatItDidAndLeft: counters, events and one warning for a lag of more than an hour.
func TestSweepTellsWhatItDidAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sweptStore{plan: []sweepResult{
			{driver.Swept{Purged: 900, Lag: 3 * time.Hour}, true, nil},
			{driver.Swept{Purged: 800, Lag: 2 * time.Hour}, true, nil},
			{driver.Swept{Purged: 70, Abandoned: 2}, false, nil},
			{driver.Swept{}, false, nil},
		}}
		events, sum, log := runSwept(t, s, 10*time.Minute)
		if sum.Swept != 1770 || sum.Abandoned != 2 {
			t.Errorf("the summary says %d swept and %d abandoned, want 1770 and 2", sum.Swept, sum.Abandoned)
		}
		var got []string
		for _, e := range events {
			if e.Kind != semel.EventSwept || e.At.IsZero() {
				t.Errorf("event %+v", e)
			}
			got = append(got, fmt.Sprint(e.Purged, " ", e.Abandoned, " ", e.Lag))
		}
		if want := "900 0 3h0m0s, 800 0 2h0m0s, 70 2 0s"; strings.Join(got, ", ") != want {
			t.Errorf("events %q, want %q", strings.Join(got, ", "), want)
		}
		if n := strings.Count(log, "level=WARN"); n != 1 || !strings.Contains(log, "lag=3h0m0s") {
			t.Errorf("%d warnings, want one with the lag:\n%s", n, log)
		}
	})
}

// TestSweepLagThatEndsWithoutAPurgeIsReported: another worker may have removed the rest.
func TestSweepLagThatEndsWithoutAPurgeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sweptStore{plan: []sweepResult{
			{driver.Swept{Purged: 1, Lag: time.Minute}, true, nil}, {driver.Swept{}, false, errors.New("no response")}, {driver.Swept{}, false, nil},
		}}
		events, _, log := runSwept(t, s, 10*time.Minute)
		if len(events) != 2 || events[1].Lag != 0 || events[1].Purged != 0 {
			t.Errorf("events %+v, want one of the purge and one that says that nothing is late any more", events)
		}
		if n := strings.Count(log, "level=WARN"); n != 1 || !strings.Contains(log, "no response") {
			t.Errorf("%d warnings, want that of the failed sweep alone:\n%s", n, log)
		}
	})
}

// TestSweepRestsInProportion: while there is more, a sweep has a fifth of the time and no more; then it comes once a minute.
func TestSweepRestsInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, backlog = 50 * time.Millisecond, 100
		s := &sweptStore{takes: takes}
		for range backlog {
			s.plan = append(s.plan, sweepResult{driver.Swept{Purged: 1000}, true, nil})
		}
		s.plan = append(s.plan, sweepResult{})
		runSwept(t, s, 5*time.Minute)
		if len(s.calls) < backlog+3 {
			t.Fatalf("%d sweeps in five minutes", len(s.calls))
		}
		for i := 1; i < len(s.calls); i++ {
			gap, want := s.calls[i].Sub(s.calls[i-1]), 5*takes
			if i > backlog {
				want = time.Minute + takes
			}
			if gap != want {
				t.Fatalf("sweep %d came %v after the one before, want %v", i, gap, want)
			}
		}
	})
}
