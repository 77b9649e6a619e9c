package semel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// TestBreakerBearsALongOutage: ten minutes without a downstream and two attempts per message cause no dead letter. During the
// outage hardly anything runs, and soon after it all messages are done.
func TestBreakerBearsALongOutage(t *testing.T) {
	for name, tx := range map[string]bool{"plain": false, "in transactions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					mu      sync.Mutex
					began   = time.Now()
					runs    int
					paused  []semel.Event
					resumed int
				)
				work := func() error {
					mu.Lock()
					defer mu.Unlock()
					if runs++; time.Since(began) < 10*time.Minute {
						return fmt.Errorf("charge: %w", errNet)
					}
					return nil
				}
				h := semel.Handler(semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return work() }))
				if tx {
					h = semel.InTx(func(context.Context, *memory.Tx, *semel.Attempt) error { return work() })
				}
				r := newFixture(t, h, func(c *semel.Config) {
					c.Concurrency, c.MaxAttempts = 8, 2
					c.Breaker.Classify = semel.ErrorIs(errNet)
					c.Events.Health = func(e semel.Event) {
						switch e.Kind {
						case semel.EventPaused:
							paused = append(paused, e)
						case semel.EventResumed:
							resumed++
						}
					}
				})
				for i := range 200 {
					r.send(msg(fmt.Sprint("m", i)))
				}
				r.start()
				time.Sleep(9 * time.Minute)
				synctest.Wait()
				l := r.c.Load()
				mu.Lock()
				during := runs
				mu.Unlock()
				if during > 60 || l.Busy > 0 || (l.Breaker != "open" && l.Breaker != "half-open") || l.PerSecond != 0 {
					t.Errorf("%d runs in nine minutes of outage, load %+v", during, l)
				}
				if l.Breaker == "open" && (!l.Paused || !strings.Contains(l.Reason, "network") || time.Until(l.OpenUntil) <= 0) {
					t.Errorf("load %+v", l)
				}
				s := r.after(6 * time.Minute)
				if s.Effects != 200 || s.Dead+s.Uncertain != 0 || len(r.deadLetters()) != 0 {
					t.Errorf("%+v", s)
				}
				if len(paused) < 5 || resumed == 0 || !errors.Is(paused[0].Err, errNet) || paused[0].After < time.Second ||
					!strings.Contains(paused[0].Reason, "breaker") {
					t.Errorf("paused %+v, resumed %d times", paused, resumed)
				}
			})
		})
	}
}

// TestBreakerCanBeOff: nothing pauses, and no attempt is spent all the same.
func TestBreakerCanBeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			if runs++; runs <= 20 {
				return semel.Unavailable(errNet)
			}
			return nil
		}), func(c *semel.Config) {
			c.MaxAttempts, c.Breaker.Failures = 1, -1
			c.Events.Health = func(e semel.Event) { t.Errorf("%s: %s", e.Kind, e.Reason) }
		})
		r.send(msg("a"))
		r.start()
		if s := r.after(3 * time.Hour); s.Effects != 1 || runs != 21 {
			t.Errorf("%d runs, %+v", runs, s)
		}
	})
}

// TestPerGroupConcurrency: a tenant with a flood runs two at a time, and the others do not wait for it.
func TestPerGroupConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most, ended := map[string]int{}, map[string]int{}, map[string]time.Time{}
		tenant := func(m *semel.Message) string { return m.Header("tenant") }
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			name := tenant(&a.Message)
			mu.Lock()
			running[name]++
			most[name] = max(most[name], running[name])
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running[name]--
			ended[name] = time.Now()
			mu.Unlock()
			return nil
		}), func(c *semel.Config) {
			c.Concurrency = 8
			c.PerGroup = semel.GroupLimit{By: tenant, Concurrency: 2}
		})
		of := func(name string, n int) {
			for i := range n {
				m := msg(fmt.Sprint(name, i))
				m.Headers = map[string]string{"tenant": name}
				r.send(m)
			}
		}
		began := time.Now()
		of("flood", 300)
		r.start()
		time.Sleep(10 * time.Second)
		of("b", 4)
		of("c", 4)
		s := r.after(30 * time.Minute)
		if s.Effects != 308 || most["flood"] != 2 || most["b"] != 2 {
			t.Errorf("%+v, most at once %v", s, most)
		}
		for _, name := range []string{"b", "c"} {
			if took := ended[name].Sub(began) - 10*time.Second; took > 10*time.Second {
				t.Errorf("tenant %s took %v for four messages, behind 300 of another", name, took)
			}
		}
		// 300 messages, two at once, a second each: what is returned meanwhile must not leave the slots idle for long.
		if took := ended["flood"].Sub(began); took > 190*time.Second {
			t.Errorf("the flood took %v", took)
		}
	})
}

// TestRates: never more starts than the rate and its burst allow, over any stretch of time.
func TestRates(t *testing.T) {
	for name, c := range map[string]struct {
		batch bool
		set   func(*semel.Config)
	}{
		"all":      {false, func(c *semel.Config) { c.Rate = semel.Rate{PerSecond: 10, Burst: 3} }},
		"group":    {false, func(c *semel.Config) { c.PerGroup.Rate = semel.Rate{PerSecond: 10, Burst: 3} }},
		"in batch": {true, func(c *semel.Config) { c.Rate = semel.Rate{PerSecond: 10, Burst: 3} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var starts []time.Time
				note := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					for range n {
						starts = append(starts, time.Now())
					}
				}
				h := semel.Handler(semel.HandlerFunc(func(context.Context, *semel.Attempt) error { note(1); return nil }))
				if c.batch {
					h = semel.InTxBatch(func(_ context.Context, _ *memory.Tx, b []*semel.Attempt) error { note(len(b)); return nil })
				}
				r := newFixture(t, h, c.set, func(cfg *semel.Config) { cfg.PerGroup.By = nil })
				for i := range 100 {
					m := msg(fmt.Sprint("m", i))
					if name == "group" {
						m.Group = "g"
					}
					r.send(m)
				}
				r.start()
				time.Sleep(5 * time.Second)
				if l := r.c.Load(); l.PerSecond < 8 || l.PerSecond > 14 {
					t.Errorf("load %+v at ten in a second", l)
				}
				s := r.after(10 * time.Second)
				if s.Effects != 100 {
					t.Errorf("%+v", s)
				}
				for i := range starts {
					for j := i + 3; j < len(starts); j++ {
						if least := time.Duration(j-i-2) * 100 * time.Millisecond; starts[j].Sub(starts[i]) < least-time.Millisecond {
							t.Fatalf("%d starts within %v", j-i+1, starts[j].Sub(starts[i]))
						}
					}
				}
			})
		})
	}
}

// TestLoad reports how busy a consumer is, and nothing when it does not run.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			time.Sleep(time.Second)
			return nil
		}), func(c *semel.Config) { c.Concurrency = 4 })
		for i := range 60 {
			r.send(msg(fmt.Sprint("m", i)))
		}
		r.start()
		time.Sleep(10500 * time.Millisecond)
		synctest.Wait()
		l := r.c.Load()
		if l.Slots != 4 || l.Busy != 4 || l.Utilisation != 1 || l.Running != 4 || l.InFlight < 4 || l.Paused ||
			l.Breaker != "closed" || l.PerSecond < 3 || l.PerSecond > 5 {
			t.Errorf("load %+v with four handlers of a second", l)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if l = r.c.Load(); l.Busy != 0 || l.Utilisation != 0 || l.InFlight != 0 || l.PerSecond != 0 {
			t.Errorf("load %+v with nothing to do", l)
		}
		r.after(0)
		if l = r.c.Load(); l.Busy != 0 || l.Paused || l.PerSecond != 0 {
			t.Errorf("load %+v at the end", l)
		}
		r.send(msg("of the second run"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.c.Run(ctx) }()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if l = r.c.Load(); l.Busy != 1 || l.PerSecond != 0 {
			t.Errorf("load %+v while the first message of a second run is running", l)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
