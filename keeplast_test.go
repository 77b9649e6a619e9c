package semel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// updates are messages of one entity in random order.
func updates(seed uint64, from, to int, tweak ...func(*semel.Message)) []semel.Message {
	var out []semel.Message
	for v := from; v <= to; v++ {
		m := state(v)
		for _, f := range tweak {
			f(&m)
		}
		out = append(out, m)
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// leisurely notes which versions ran, one after the other, and takes its time.
type leisurely struct {
	mu    sync.Mutex
	takes time.Duration
	runs  []string
	fail  map[string]error
}

func (h *leisurely) Handle(_ context.Context, a *semel.Attempt) error {
	v := a.Version().String()
	h.mu.Lock()
	h.runs = append(h.runs, v)
	err := h.fail[v]
	h.mu.Unlock()
	time.Sleep(h.takes)
	return err
}

func (h *leisurely) ran() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.runs, " ")
}

// fleet starts workers on one queue and store.
func fleet(t *testing.T, r *rig, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, n)
	for range n {
		c, err := semel.New(r.cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.c = c
		go func() { done <- c.Run(ctx) }()
	}
	return func() {
		cancel()
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func keepsLast(c *semel.Config) {
	v := semel.ByVersion("/v")
	v.KeepLast = true
	versioned(v)(c)
}

// TestKeepLastRunsOnceMoreWithTheLast: N updates that come in any order while one runs become one run, with the last of
// them, whatever the number of workers, slots and bursts.
func TestKeepLastRunsOnceMoreWithTheLast(t *testing.T) {
	const bursts, n = 4, 40
	for _, x := range []struct{ workers, slots, batch int }{{1, 1, 1}, {1, 1, 100}, {1, 8, 100}, {3, 1, 1}, {3, 4, 10}, {8, 2, 2}} {
		t.Run(fmt.Sprintf("%d workers with %d slots and batches of %d", x.workers, x.slots, x.batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &leisurely{takes: 20 * time.Second}
				r := newRig(t, h, keepsLast, func(c *semel.Config) { c.Concurrency, c.Batch = x.slots, x.batch })
				stop := fleet(t, r, x.workers)
				var want []string
				for b := range bursts {
					first := b*(n+1) + 1
					r.send(state(first))
					time.Sleep(time.Second)
					r.send(updates(uint64(b), first+1, first+n)...)
					time.Sleep(3 * time.Minute)
					want = append(want, fmt.Sprint(first), fmt.Sprint(first+n))
				}
				stop()
				if got := h.ran(); got != strings.Join(want, " ") {
					t.Errorf("ran %q, want %q", got, strings.Join(want, " "))
				}
				if st, err := r.queue.Stats(t.Context()); err != nil || !st.Empty() || len(r.letters()) > 0 {
					t.Errorf("%+v (%v) is left in the queue, letters %+v", st, err, r.letters())
				}
				if w := r.record("order-1").Watermark; w.Applied != driver.IntVersion(bursts*(n+1)) || w.Newest != "" {
					t.Errorf("the watermark is %+v", w)
				}
			})
		})
	}
}

// TestWithoutKeepLastUpdatesRun is what the test above is compared with: most updates that come in order run.
func TestWithoutKeepLastUpdatesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &leisurely{takes: time.Second}
		r := newRig(t, h, versioned(semel.ByVersion("/v")), func(c *semel.Config) { c.Concurrency, c.Batch = 1, 1 })
		stop := fleet(t, r, 1)
		for v := range 6 {
			r.send(state(v + 1))
		}
		time.Sleep(time.Minute)
		stop()
		if got := h.ran(); len(strings.Fields(got)) < 4 {
			t.Errorf("ran %q alone", got)
		}
	})
}

// TestKeepLastOfAnOrderedGroup: a queue that hands out a group one by one shows nobody what stands behind the run, so each
// update runs in its turn.
func TestKeepLastOfAnOrderedGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &leisurely{takes: 20 * time.Second}
		r := newRig(t, h, keepsLast)
		stop := fleet(t, r, 2)
		for v := range 4 {
			m := state(v + 1)
			m.Group = "order-1"
			r.send(m)
		}
		time.Sleep(10 * time.Minute)
		stop()
		if got := h.ran(); got != "1 2 3 4" || len(r.letters()) > 0 {
			t.Errorf("ran %q, letters %+v", got, r.letters())
		}
	})
}

// TestKeepLastWhenTheNewestFails: what was superseded is gone, and the newest is retried; when it fails for good it is a
// letter, and an older update that comes later runs.
func TestKeepLastWhenTheNewestFails(t *testing.T) {
	refused := semel.NotApplied(errors.New("refused"))
	for _, x := range []struct {
		name, ran string
		fail      map[string]error
		letters   int
		older     string
	}{
		{"a few times", "1 5 5 5", map[string]error{"5": refused}, 1, "1 5 5 5 4"},
		{"for good", "1 5", map[string]error{"5": semel.Permanent(refused)}, 1, "1 5 4"},
		{"in doubt for good", "1 5", map[string]error{"5": semel.Permanent(errors.New("refused"))}, 1, "1 5"},
		{"the running one fails", "1 5", map[string]error{"1": semel.Permanent(refused)}, 1, "1 5"},
		{"the running one is retried", "1 5", map[string]error{"1": refused}, 0, "1 5"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &leisurely{takes: 20 * time.Second, fail: x.fail}
				r := newRig(t, h, keepsLast, func(c *semel.Config) { c.MaxAttempts, c.Concurrency = 3, 2 })
				stop := fleet(t, r, 1) // what another worker was handed before 5 was noted comes after it
				r.send(state(1))
				time.Sleep(time.Second)
				r.send(updates(1, 2, 5)...)
				time.Sleep(10 * time.Minute)
				if got := h.ran(); got != x.ran || len(r.letters()) != x.letters {
					t.Errorf("ran %q, letters %+v", got, r.letters())
				}
				r.send(state(4))
				time.Sleep(10 * time.Minute)
				stop()
				if got := h.ran(); got != x.older {
					t.Errorf("ran %q, after an older update want %q", got, x.older)
				}
			})
		})
	}
}

// TestKeepLastIsNotedByQueuesAlone: a caller without a queue finds the entity busy and goes away; what it brought
// supersedes nothing.
func TestKeepLastIsNotedByQueuesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &leisurely{takes: 20 * time.Second}
		r := newRig(t, h, keepsLast)
		stop := fleet(t, r, 1)
		r.send(state(1))
		time.Sleep(time.Second)
		g, err := r.store.Claim(t.Context(), driver.Claim{
			Key: driver.Key{Consumer: "orders", Raw: "order-1"}, Nonce: driver.Nonce{1}, Lease: time.Minute, Version: driver.IntVersion(9),
		})
		if err != nil || g[0].Verdict != driver.Busy || r.record("order-1").Watermark.Newest != "" {
			t.Fatalf("%+v, %v: %+v", g, err, r.record("order-1").Watermark)
		}
		r.send(state(5))
		time.Sleep(3 * time.Minute)
		stop()
		if got := h.ran(); got != "1 5" {
			t.Errorf("ran %q", got)
		}
	})
}

// TestKeepLastIsRefusedWhereItCannotBeKept names the mend.
func TestKeepLastIsRefusedWhereItCannotBeKept(t *testing.T) {
	both := semel.BySequence("/v")
	both.KeepLast, both.Park = true, time.Second
	for name, x := range map[string]struct {
		h     semel.Handler
		tweak func(*semel.Config)
		mend  string
	}{
		"the record's transaction": {versionHandlers()["B/C"], keepsLast, "mode A2"},
		"park":                     {&leisurely{}, versioned(both), "not both"},
	} {
		_, err := semel.New(newRig(t, x.h, x.tweak).cfg)
		var e *semel.ConfigError
		if !errors.As(err, &e) || e.Field != "Versions" || !strings.Contains(e.Mend, x.mend) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := semel.New(newRig(t, versionHandlers()["A2"], keepsLast).cfg)
	if err != nil || !strings.Contains(c.Guarantee().String(), "only the newest runs") {
		t.Errorf("%v: %v", err, c.Guarantee())
	}
}
