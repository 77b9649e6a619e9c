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
)

// TestS206_TooOldMessagesBecomeLetters: with every kind of handler a message that waited too long is kept as a letter and
// never run, and its duplicates neither.
func TestS206_TooOldMessagesBecomeLetters(t *testing.T) {
	for mode, h := range versionHandlers() {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, h, func(c *semel.Config) {
					c.MaxAge = time.Hour
					c.Key = semel.KeyFromBody()
				})
				late, twin := msg("late"), msg("late-again")
				twin.Body = late.Body
				r.send(late, twin)
				time.Sleep(time.Hour + time.Second)
				r.send(msg("fresh"))
				r.start()
				s := r.after(time.Minute)
				ls := r.letters()
				if len(ledger(r)) != 1 || s.Effects != 1 || s.Rejected != 2 {
					t.Errorf("%d effects, summary %+v", len(ledger(r)), s)
				}
				if len(ls) != 1 || ls[0].Kind != driver.LetterDead || !strings.Contains(ls[0].Reason, "too old") {
					t.Errorf("letters %+v", ls)
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
		r := newRig(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if runs[a.Key.Raw]++; runs[a.Key.Raw] < 3 && a.Key.Raw == "begun" {
				return semel.NotApplied(semel.RetryAfter(errors.New("not yet"), 50*time.Minute))
			}
			return nil
		}), func(c *semel.Config) { c.MaxAge = time.Hour })
		r.send(msg("begun"))
		r.start()
		time.Sleep(3 * time.Hour)
		r.send(msg(driver.RedriveID("letter")))
		if s := r.after(time.Minute); runs["begun"] != 3 || s.Effects != 2 || len(r.letters()) != 0 {
			t.Errorf("%v runs, summary %+v, letters %+v", runs, s, r.letters())
		}
	})
}
