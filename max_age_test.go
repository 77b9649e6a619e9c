package semel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/steps"
)

// TestS206_TooOldMessagesBecomeDeadLetters: with every kind of handler a message that waited too long becomes a dead letter.
// Neither the message nor its duplicates run.
func TestS206_TooOldMessagesBecomeDeadLetters(t *testing.T) {
	for mode, h := range versionHandlers() {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, h, func(c *semel.Config) {
					c.MaxAge = time.Hour
					c.Key = key.FromBody()
				})
				late, duplicate := msg("late"), msg("late-again")
				duplicate.Body = late.Body
				r.send(late, duplicate)
				time.Sleep(time.Hour + time.Second)
				r.send(msg("fresh"))
				r.start()
				s := r.after(time.Minute)
				ls := r.deadLetters()
				if len(ledger(r)) != 1 || s.Effects != 1 || s.Rejected != 2 {
					t.Errorf("%d effects, summary %+v", len(ledger(r)), s)
				}
				if len(ls) != 1 || ls[0].Kind != driver.DeadLetterFailed || !strings.Contains(ls[0].Reason, "too old") {
					t.Errorf("dead letters %+v", ls)
				}
			})
		})
	}
}

// TestS206_WhatWasBegunGoesOn: retries of a message that was young when it was begun, and the message that a person sent
// again, are run however old they are.
func TestS206_WhatWasBegunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := map[string]int{}
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if runs[a.Key.Raw]++; runs[a.Key.Raw] < 3 && a.Key.Raw == "begun" {
				return semel.NotApplied(semel.RetryAfter(errors.New("not yet"), 50*time.Minute))
			}
			return nil
		}), func(c *semel.Config) { c.MaxAge = time.Hour })
		r.send(msg("begun"))
		r.start()
		time.Sleep(3 * time.Hour)
		r.send(msg(driver.RedriveID("dead letter")))
		if s := r.after(time.Minute); runs["begun"] != 3 || s.Effects != 2 || len(r.deadLetters()) != 0 {
			t.Errorf("%v runs, summary %+v, dead letters %+v", runs, s, r.deadLetters())
		}
	})
}

// TestS206_DeferredRunsWereBegun: a run that was deferred spends no attempt, but it was a run. What it began goes on, in
// every mode, also when the deferrals take longer than MaxAge.
func TestS206_DeferredRunsWereBegun(t *testing.T) {
	for mode, h := range versionHandlers() {
		if mode == "B/C in batches" {
			continue // it has no middleware
		}
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				busy := func(ctx context.Context, _ *semel.Attempt, next func(context.Context) error) error {
					if runs++; runs < 5 {
						return semel.Deferred(errors.New("the downstream is busy"), 20*time.Minute)
					}
					return next(ctx)
				}
				r := newFixture(t, h, func(c *semel.Config) {
					c.MaxAge, c.Key, c.Middleware = time.Hour, key.FromBody(), []semel.Middleware{busy}
				})
				r.send(msg("begun"))
				r.start()
				if s := r.after(3 * time.Hour); runs != 5 || s.Effects != 1 || len(r.deadLetters()) != 0 {
					t.Errorf("%d runs, summary %+v, dead letters %+v", runs, s, r.deadLetters())
				}
			})
		})
	}
}

// TestS206_HalfDoneSagasGoOn: a saga whose next step, or whose compensation, has to wait for longer than MaxAge is neither
// forgotten nor called never begun.
func TestS206_HalfDoneSagasGoOn(t *testing.T) {
	for name, soldOut := range map[string]bool{"forward": false, "back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				away := func() bool { return time.Since(start) < 20*time.Minute }
				charged, refunded, shipped := 0, 0, 0
				r := newFixture(t, steps.Handler(func(ctx context.Context, r *steps.Run) error {
					if _, err := steps.Do(ctx, r, "charge", func(context.Context, string) (string, error) {
						charged++
						return "ok", nil
					}, steps.Undo(func(context.Context, steps.Reversal) error {
						if away() {
							return errors.New("the bank is down")
						}
						refunded++
						return nil
					})); err != nil {
						return err
					}
					_, err := steps.Do(ctx, r, "ship", func(context.Context, string) (string, error) {
						switch {
						case soldOut:
							return "", semel.Permanent(errors.New("sold out"))
						case away():
							return "", semel.Deferred(errors.New("the carrier is busy"), time.Minute)
						}
						shipped++
						return "ok", nil
					})
					return err
				}, steps.Retry(3, 200*time.Millisecond, 1000)), func(c *semel.Config) { c.MaxAge, c.MaxAttempts = 5*time.Minute, 3 })
				r.send(msg("o1"))
				r.start()
				s := r.after(time.Hour)
				if charged != 1 || refunded+shipped != 1 || (refunded == 1) != soldOut {
					t.Errorf("sold out %v: charged %d, refunded %d, shipped %d; %+v, dead letters %+v", soldOut, charged, refunded, shipped, s, r.deadLetters())
				}
			})
		})
	}
}
