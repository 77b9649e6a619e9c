package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/key"
)

// TestFM51_AnotherBodyIsReported: a second message under a business key whose body differs is counted and logged as a
// warning. That holds if the first run has ended, if it goes on in the same process, and if a cache decides. A body that
// only has another JSON form is a repetition.
func TestFM51_AnotherBodyIsReported(t *testing.T) {
	bodies := []string{
		`{"order":"o1","amount":7}`,
		`{ "amount": 7.0, "order": "o1" }`, // the same
		`{"order":"o1","amount":9999}`,
		`{"order":"o1","amount":9999}`,
	}
	for _, c := range []struct {
		name     string
		together bool
		tweak    func(*semel.Config)
		other    int64
	}{
		{"one after the other", false, func(*semel.Config) {}, 2},
		{"in the same process at once", true, func(c *semel.Config) { c.Concurrency = 8 }, 2},
		{"behind a cache", false, func(c *semel.Config) { c.Store = cache.New(c.Store, cache.Options{Size: 10, Strangers: true}) }, 2},
		{"a fingerprint that says that it means the same", false, func(c *semel.Config) { c.Fingerprint = key.FingerprintJSON("/order") }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				var events []string
				r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { time.Sleep(time.Second); return nil }),
					func(cfg *semel.Config) {
						cfg.Key, cfg.Logger = key.FromJSON("/order"), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
						cfg.Events.Delivery = func(e semel.Event) {
							if e.Decision == semel.ReplayedOtherPayload {
								events = append(events, e.MessageID)
							}
						}
					}, c.tweak)
				if !c.together {
					r.start()
				}
				for i, b := range bodies {
					r.send(semel.Message{ID: fmt.Sprint("m", i), Body: []byte(b)})
					if !c.together {
						time.Sleep(10 * time.Second)
					}
				}
				if c.together {
					r.start()
				}
				s := r.after(time.Hour)
				if c.name == "behind a cache" && s.CacheHits == 0 {
					t.Error("the cache decided nothing")
				}
				if s.Effects != 1 || s.Replayed != 3 || s.OtherPayload != c.other || s.Mismatched != 0 || len(r.deadLetters()) != 0 {
					t.Errorf("%+v", s)
				}
				if int64(len(events)) != c.other || int64(strings.Count(log.String(), "decision=replayed_other_payload")) != c.other {
					t.Errorf("events of %v, log:\n%s", events, &log)
				}
				if len(events) > 0 && fmt.Sprint(events) != "[m2 m3]" {
					t.Errorf("events of %v", events)
				}
			})
		})
	}
}

// TestFM51_AnotherBodyOfAFailedKey: the other body is in no dead letter, and the decision reports that.
func TestFM51_AnotherBodyOfAFailedKey(t *testing.T) {
	for name, fail := range map[string]func(error) error{"failed": semel.Permanent, "parked": semel.Park} {
		synctest.Test(t, func(t *testing.T) {
			var reported []string
			r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return fail(errors.New("no")) }), func(c *semel.Config) {
				c.Key = key.FromJSON("/order")
				c.Events.Delivery = func(e semel.Event) {
					if strings.Contains(e.Reason, "another body, which is in no dead letter") {
						reported = append(reported, e.MessageID)
					}
				}
			})
			r.start()
			for i, amount := range []int{7, 7, 9999} {
				r.send(semel.Message{ID: fmt.Sprint("m", i), Body: fmt.Appendf(nil, `{"order":"o1","amount":%d}`, amount)})
				time.Sleep(time.Minute)
			}
			if s := r.after(time.Minute); s.Rejected != 2 || len(r.deadLetters()) != 1 || fmt.Sprint(reported) != "[m2]" {
				t.Errorf("%s: reported %v: %+v", name, reported, s)
			}
		})
	}
}

// TestFM51_FingerprintOfTheBodyThatIsAskedForLater is compared with the digest of the records that have no fingerprint.
func TestFM51_FingerprintOfTheBodyThatIsAskedForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil })
		r := newFixture(t, h, func(c *semel.Config) { c.Key = key.FromJSON("/order") })
		r.send(semel.Message{ID: "m0", Body: []byte(`{"order":"o1","amount":7}`)})
		r.start()
		r.after(time.Minute)
		r.cfg.Fingerprint = key.FingerprintBody()
		r.send(semel.Message{ID: "m1", Body: []byte(`{"amount":7,"order":"o1"}`)}, semel.Message{ID: "m2", Body: []byte(`{"order":"o1","amount":9999}`)})
		r.start()
		if s := r.after(time.Minute); s.Replayed != 1 || s.OtherPayload != 0 || s.Mismatched != 1 || len(r.deadLetters()) != 1 {
			t.Errorf("%+v", s)
		}
		r.cfg.Fingerprint = key.FingerprintJSON("/amount")
		r.send(semel.Message{ID: "m3", Body: []byte(`{"order":"o1","amount":9999}`)})
		r.start()
		if s := r.after(time.Minute); s.Replayed != 1 || s.OtherPayload != 1 || s.Mismatched != 0 {
			t.Errorf("a fingerprint of a field cannot be compared with the digest: %+v", s)
		}
	})
}
