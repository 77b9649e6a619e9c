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
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

var errNet, errOrder = errors.New("network"), errors.New("bad order")

type codeError int

func (e codeError) Error() string { return fmt.Sprintf("code %d", int(e)) }

// TestRetryRules: the first rule that matches decides, and what the handler says itself wins.
func TestRetryRules(t *testing.T) {
	net := func() error { return fmt.Errorf("charge: %w", errNet) }
	rules := []semel.RetryRule{
		{Match: semel.ErrorIs(errOrder), Permanent: true},
		{Match: semel.ErrorIs(errNet), MaxAttempts: 7, Backoff: semel.Backoff{Min: time.Millisecond, Max: time.Millisecond}},
		{Match: semel.ErrorIs(errNet), Permanent: true}, // comes too late
		{Match: semel.ErrorAs(func(e codeError) bool { return e >= 500 }), Unavailable: true},
		{Match: semel.ErrorAs[codeError](nil), Deferred: true, Backoff: semel.Backoff{Min: time.Second, Max: time.Second}},
		{Match: semel.ErrorIs(semel.ErrTimeout), MaxAttempts: 1},
		{Match: semel.ErrorAs[*semel.PanicError](nil), MaxAttempts: 2},
		{Match: func(err error) bool { panic("a rule that panics matches nothing: " + err.Error()) }, Permanent: true},
		{Match: func(err error) bool { return strings.Contains(err.Error(), "disk") }, NotApplied: true, MaxAttempts: 2},
	}
	for _, c := range []struct {
		name   string
		err    func() error
		times  int // how often; then it succeeds
		once   bool
		ran    int64
		kind   driver.DeadLetterKind // "" = none
		within time.Duration
	}{
		{"no rule", func() error { return errors.New("other") }, 99, false, 4, driver.DeadLetterFailed, time.Hour},
		{"permanent", func() error { return fmt.Errorf("check: %w", errOrder) }, 99, false, 1, driver.DeadLetterFailed, time.Second},
		{"attempts and backoff", net, 99, false, 7, driver.DeadLetterFailed, time.Second},
		{"one less than the attempts", net, 6, false, 7, "", time.Second},
		{"unavailable", func() error { return codeError(503) }, 30, false, 31, "", 2 * time.Hour},
		{"deferred", func() error { return codeError(409) }, 30, false, 31, "", 2 * time.Hour},
		{"timeout", nil, 99, false, 1, driver.DeadLetterFailed, time.Minute},
		{"panic", func() error { panic("boom") }, 99, false, 2, driver.DeadLetterFailed, time.Minute},
		{"not applied", func() error { return errors.New("disk full") }, 99, true, 2, driver.DeadLetterFailed, time.Minute},
		{"outcome unknown", func() error { return errors.New("other") }, 99, true, 1, driver.DeadLetterUncertain, time.Minute},
		{"deferred is not applied", func() error { return codeError(409) }, 2, true, 3, "", time.Minute},
		{"unavailable leaves its doubt", func() error { return codeError(503) }, 2, true, 1, driver.DeadLetterUncertain, time.Minute},
		{"the handler's Permanent wins", func() error { return semel.Permanent(errNet) }, 99, false, 1, driver.DeadLetterFailed, time.Second},
		{"the handler's RetryAfter wins", func() error { return semel.RetryAfter(errOrder, time.Minute) }, 99, false, 4, driver.DeadLetterFailed, time.Hour},
		{"RetryAfter leaves the attempts to the rule", func() error { return semel.RetryAfter(net(), time.Second) }, 99, false, 7, driver.DeadLetterFailed, time.Hour},
		{"NotApplied leaves the rest to the rule", func() error { return semel.NotApplied(net()) }, 99, true, 7, driver.DeadLetterFailed, time.Second},
		{"Unavailable", func() error { return semel.Unavailable(errOrder) }, 30, false, 31, "", 2 * time.Hour},
		{"Unavailable and not applied", func() error { return semel.NotApplied(semel.Unavailable(errOrder)) }, 30, true, 31, "", 2 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				r := newFixture(t, semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error {
					if runs++; runs > c.times {
						return nil
					}
					if c.err == nil {
						<-ctx.Done()
						return fmt.Errorf("query: %w", ctx.Err())
					}
					return c.err()
				}), func(cfg *semel.Config) {
					cfg.Retry, cfg.MaxAttempts, cfg.Timeout = rules, 4, 10*time.Second
					if c.once {
						cfg.Takeover = semel.Once
					}
				})
				r.send(msg("a"))
				r.start()
				s := r.after(c.within)
				ls := r.deadLetters()
				if s.Executed != c.ran || (c.kind == "") != (len(ls) == 0) || (c.kind != "" && ls[0].Kind != c.kind) {
					t.Errorf("%d runs, %+v, dead letters %+v", runs, s, ls)
				}
				if c.kind == "" && (s.Effects != 1 || r.record("a").State != driver.Completed) {
					t.Errorf("%+v, record %+v", s, r.record("a"))
				}
			})
		})
	}
}

// TestRetryRuleForRefusedEffects: what the store would not write is classed like what a handler returns, in every mode.
func TestRetryRuleForRefusedEffects(t *testing.T) {
	for name, h := range map[string]func(fail func(a *semel.Attempt) error) semel.Handler{
		"queued": func(fail func(*semel.Attempt) error) semel.Handler {
			return semel.InTx(func(_ context.Context, tx *memory.Effects, a *semel.Attempt) error {
				tx.Put("done", a.Key.Raw, "1")
				if err := fail(a); err != nil {
					tx.Refuse(err)
				}
				return nil
			})
		},
		"batch": func(fail func(*semel.Attempt) error) semel.Handler {
			return semel.InTxBatch(func(_ context.Context, tx *memory.Effects, batch []*semel.Attempt) error {
				for _, a := range batch {
					tx.Put("done", a.Key.Raw, "1")
					if err := fail(a); err != nil {
						tx.Refuse(err)
					}
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, h(func(a *semel.Attempt) error {
					if a.Key.Raw == "bad" {
						return errOrder
					}
					return nil
				}), func(c *semel.Config) {
					c.Retry = []semel.RetryRule{{Match: semel.ErrorIs(errOrder), Permanent: true}}
				})
				r.send(msg("a"), msg("bad"), msg("b"))
				r.start()
				s := r.after(time.Minute)
				ls := r.deadLetters()
				if s.Effects != 2 || s.Dead != 1 || s.Retried != 0 || len(ls) != 1 || ls[0].Attempts != 1 {
					t.Fatalf("%+v, dead letters %+v", s, ls)
				}
			})
		})
	}
}

// TestRetryRulesPerItemOfABatch: named culprits are judged each by its own error.
func TestRetryRulesPerItemOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := map[string]int{}
		r := newFixture(t, semel.InTxBatch(func(_ context.Context, _ *memory.Tx, batch []*semel.Attempt) error {
			var errs []error
			for i, a := range batch {
				tries[a.Key.Raw]++
				switch {
				case a.Key.Raw == "order":
					errs = append(errs, semel.ItemFailed(i, errOrder))
				case a.Key.Raw == "net":
					errs = append(errs, semel.ItemFailed(i, errNet))
				case a.Key.Raw == "gone" && tries["gone"] <= 12:
					errs = append(errs, semel.ItemFailed(i, semel.Unavailable(errNet)))
				}
			}
			return errors.Join(errs...)
		}), func(c *semel.Config) {
			c.MaxAttempts = 2
			c.Retry = []semel.RetryRule{
				{Match: semel.ErrorIs(errOrder), Permanent: true},
				{Match: semel.ErrorIs(errNet), MaxAttempts: 6},
			}
		})
		r.send(msg("a"), msg("order"), msg("net"), msg("gone"), msg("b"))
		r.start()
		s := r.after(time.Hour)
		if s.Effects != 3 || s.Dead != 2 || tries["order"] != 1 || tries["net"] != 6 || tries["gone"] != 13 {
			t.Fatalf("%+v, tries %v", s, tries)
		}
		if rec := r.record("gone"); rec.Failures != 0 || rec.Unknown {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestRulesAreChecked: a mistake names its rule, field and fix.
func TestRulesAreChecked(t *testing.T) {
	for field, change := range map[string]func(*semel.Config){
		"Retry[1]": func(c *semel.Config) {
			c.Retry = []semel.RetryRule{{}, {Permanent: true, Deferred: true}}
		},
		"Retry[0].MaxAttempts": func(c *semel.Config) { c.Retry = []semel.RetryRule{{MaxAttempts: -1}} },
		"Retry[0].Backoff":     func(c *semel.Config) { c.Retry = []semel.RetryRule{{Backoff: semel.Backoff{Min: 2, Max: 1}}} },
		"Rate":                 func(c *semel.Config) { c.Rate.Burst = 3 },
		"PerGroup":             func(c *semel.Config) { c.PerGroup.By = func(*semel.Message) string { return "" } },
		"PerGroup.Concurrency": func(c *semel.Config) { c.PerGroup.Concurrency = -1 },
		"PerGroup.Rate":        func(c *semel.Config) { c.PerGroup.Rate.PerSecond = -1 },
		"Breaker.Ratio":        func(c *semel.Config) { c.Breaker.Ratio = 2 },
		"Breaker.Open":         func(c *semel.Config) { c.Breaker.Open.Max = -1 },
	} {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), change)
		_, err := semel.New(r.cfg)
		if e := (*semel.ConfigError)(nil); !errors.As(err, &e) || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestNoRetryComesBeforeMin: Backoff.Min is the shortest delay of all.
func TestNoRetryComesBeforeMin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := map[string]time.Time{}
		shortest := time.Hour
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if at := last[a.Key.Raw]; !at.IsZero() {
				shortest = min(shortest, time.Since(at))
			}
			last[a.Key.Raw] = time.Now()
			return errors.New("no")
		}), func(c *semel.Config) {
			c.Concurrency, c.MaxAttempts, c.Backoff = 1, 3, semel.Backoff{Min: 10 * time.Second, Max: time.Minute}
		})
		for i := range 50 {
			r.send(msg(fmt.Sprint(i)))
		}
		r.start()
		r.after(10 * time.Minute)
		if shortest < 10*time.Second {
			t.Errorf("a retry came after %v", shortest)
		}
	})
}
