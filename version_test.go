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
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// versionHandlers keep the order of what took effect, in each of the modes.
func versionHandlers() map[string]semel.Handler {
	return map[string]semel.Handler{
		"A2": semel.InTx(func(_ context.Context, tx *memory.Effects, a *semel.Attempt) error {
			tx.Append("ledger", a.Version().String())
			return nil
		}),
		"B/C": semel.InTx(func(_ context.Context, tx *memory.Tx, a *semel.Attempt) error {
			return tx.Append("ledger", a.Version().String())
		}),
		"B/C in batches": semel.InTxBatch(func(_ context.Context, tx *memory.Tx, batch []*semel.Attempt) error {
			for _, a := range batch {
				if err := tx.Append("ledger", a.Version().String()); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func ledger(r *fixture) (out []string) {
	for _, row := range r.db.Tables().Rows("ledger") {
		out = append(out, row.Value)
	}
	return out
}

func versioned(v *key.Versions) func(*semel.Config) {
	return func(c *semel.Config) { c.Key, c.Versions = key.FromJSON("/id"), v }
}

func state(version any) semel.Message {
	return semel.Message{Body: fmt.Appendf(nil, `{"id":"order-1","v":%v}`, version)}
}

// TestFM62_OlderVersionsAreSkipped is S1-30: versions that come out of order, in every mode.
func TestFM62_OlderVersionsAreSkipped(t *testing.T) {
	park := key.BySequence("/v")
	park.Park = 30 * time.Second
	for _, x := range []struct {
		name        string
		versions    *key.Versions
		sent        []int
		want        string
		stale       int64
		deadLetters int
	}{
		{"v2, then v1 is skipped", key.ByVersion("/v"), []int{2, 1}, "2", 1, 0},
		{"in order", key.ByVersion("/v"), []int{1, 2, 3}, "1 2 3", 0, 0},
		{"the same again", key.ByVersion("/v"), []int{2, 2}, "2", 0, 0},
		{"v1, v3, v2: gaps are accepted", key.BySequence("/v"), []int{1, 3, 2}, "1 3", 1, 0},
		{"v1, v3, v2: v3 waits", park, []int{1, 3, 2}, "1 2 3", 0, 0},
		{"v3, v2, v1: all wait", park, []int{3, 2, 1}, "1 2 3", 0, 0},
	} {
		for mode, h := range versionHandlers() {
			t.Run(x.name+" over "+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newFixture(t, h, versioned(x.versions))
					r.start()
					for _, v := range x.sent {
						r.send(state(v))
						time.Sleep(time.Second)
					}
					s := r.after(2 * time.Minute)
					if got := strings.Join(ledger(r), " "); got != x.want || s.Stale != x.stale || len(r.deadLetters()) != x.deadLetters {
						t.Fatalf("applied %q, not %q; %+v, dead letters %+v", got, x.want, s, r.deadLetters())
					}
					rec := r.record("order-1")
					want := driver.IntVersion(int64(slices.Max(x.sent)))
					if rec.State != driver.Completed || rec.Watermark.Applied != want {
						t.Errorf("record %+v", rec)
					}
					if n := int64(len(x.sent)); s.Effects+s.Stale+s.Replayed != n {
						t.Errorf("%d messages: %+v", n, s)
					}
				})
			})
		}
	}
}

// TestS1_30_StaleSaysBothVersions: the log and the event name the version and the one that is current.
func TestS1_30_StaleSaysBothVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var seen []semel.Event
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), versioned(key.ByVersion("/v")),
			func(c *semel.Config) {
				c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				c.Events = semel.Observe(func(e semel.Event) {
					if e.Decision == semel.Stale && e.Kind == semel.EventDecided {
						seen = append(seen, e)
					}
				})
			})
		r.start()
		r.send(state(2))
		time.Sleep(time.Second)
		r.send(state(1))
		r.after(time.Minute)
		const want = "version 1 already processed (current: 2)"
		if len(seen) != 1 || seen[0].Reason != want || seen[0].Key.Raw != "order-1" || !strings.Contains(log.String(), want) ||
			!strings.Contains(log.String(), "decision=stale") {
			t.Fatalf("%+v\n%s", seen, &log)
		}
	})
}

// TestS1_31_TimestampsAndTies: older and equal times are skipped, ties decide in their order.
func TestS1_31_TimestampsAndTies(t *testing.T) {
	const at = `{"id":"order-1","at":"%s","n":%d,"what":"%s"}`
	for _, x := range []struct {
		name             string
		strategy         string
		first, second    string
		effects, stale   int64
		replay, mismatch int64
	}{
		{"older", "timestamp:/at", fmt.Sprintf(at, "2026-01-01T12:00:01Z", 1, "a"), fmt.Sprintf(at, "2026-01-01T12:00:00Z", 2, "b"), 1, 1, 0, 0},
		{"older by its zone", "timestamp:/at", fmt.Sprintf(at, "2026-01-01T12:00:00Z", 1, "a"), fmt.Sprintf(at, "2026-01-01T13:00:00+02:00", 2, "b"), 1, 1, 0, 0},
		{"newer", "timestamp:/at", fmt.Sprintf(at, "2026-01-01T12:00:00Z", 1, "a"), fmt.Sprintf(at, "2026-01-01T12:00:00.001Z", 2, "b"), 2, 0, 0, 0},
		{"equal, same payload", "timestamp:/at", fmt.Sprintf(at, "2026-01-01T12:00:00Z", 1, "a"), fmt.Sprintf(at, "2026-01-01T12:00:00Z", 1, "a"), 1, 0, 1, 0},
		{"equal, another payload", "timestamp:/at", fmt.Sprintf(at, "2026-01-01T12:00:00Z", 1, "a"), fmt.Sprintf(at, "2026-01-01T12:00:00Z", 2, "b"), 1, 0, 0, 1},
		{"the tie is newer", "timestamp:/at,/n", fmt.Sprintf(at, "2026-01-01T12:00:00Z", 9, "a"), fmt.Sprintf(at, "2026-01-01T12:00:00Z", 10, "b"), 2, 0, 0, 0},
		{"the tie is older", "timestamp:/at,/n", fmt.Sprintf(at, "2026-01-01T12:00:00Z", 10, "a"), fmt.Sprintf(at, "2026-01-01T12:00:00Z", 9, "b"), 1, 1, 0, 0},
		{"the tie of a text", "timestamp:/at,/what", fmt.Sprintf(at, "2026-01-01T12:00:00Z", 1, "a"), fmt.Sprintf(at, "2026-01-01T12:00:00Z", 1, "b"), 2, 0, 0, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, err := key.ParseVersions(x.strategy)
				if err != nil {
					t.Fatal(err)
				}
				r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), versioned(v))
				r.start()
				r.send(semel.Message{Body: []byte(x.first)})
				time.Sleep(time.Second)
				r.send(semel.Message{Body: []byte(x.second)})
				s := r.after(time.Minute)
				if s.Effects != x.effects || s.Stale != x.stale || s.Replayed != x.replay || s.Mismatched != x.mismatch {
					t.Fatalf("%+v", s)
				}
				if int64(len(r.deadLetters())) != x.mismatch {
					t.Errorf("dead letters %+v", r.deadLetters())
				}
			})
		})
	}
}

// TestFM76_OlderWaitsForNewerThatCrashed: the outcome of a newer version whose worker crashed is unknown. The older version
// neither runs nor is lost.
func TestFM76_OlderWaitsForNewerThatCrashed(t *testing.T) {
	for mode, h := range versionHandlers() {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, h, versioned(key.ByVersion("/v")))
				g, err := r.store.Claim(context.Background(), driver.Claim{
					Key: semel.Key{Consumer: "orders", Raw: "order-1"}, Nonce: driver.Nonce{1}, Lease: time.Minute, Version: driver.IntVersion(3),
				})
				if err != nil || g[0].Verdict != driver.Acquired {
					t.Fatal(g, err)
				}
				time.Sleep(2 * time.Minute) // its lease expires
				r.start()
				r.send(state(2))
				time.Sleep(5 * time.Minute)
				if got := ledger(r); len(got) != 0 {
					t.Fatalf("applied %q behind a newer version of unknown outcome", got)
				}
				r.send(state(3)) // the broker hands it out again
				s := r.after(10 * time.Minute)
				if got := strings.Join(ledger(r), " "); got != "3" || s.Stale != 1 || len(r.deadLetters()) != 0 {
					t.Fatalf("applied %q, %+v", got, s)
				}
			})
		})
	}
}

// TestBadVersionsBecomeDeadLetters: nothing is lost, and no run is made unprotected.
func TestBadVersionsBecomeDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), versioned(key.ByVersion("/v")),
			func(c *semel.Config) { c.AllowUnkeyed = true })
		r.send(state(1.5), state(`"x"`), state(2))
		r.start()
		s := r.after(time.Minute)
		if s.Effects != 1 || s.Rejected != 2 || s.Unprotected != 0 || len(r.deadLetters()) != 2 {
			t.Fatalf("%+v", s)
		}
		for _, l := range r.deadLetters() {
			if l.Kind != driver.DeadLetterFailed || !strings.HasPrefix(l.Reason, "version_invalid: ") || l.Key.Raw != "" {
				t.Errorf("dead letter %+v", l)
			}
		}
	})
}

// TestOtherVersionsAreNoDuplicates: two versions that are in one process at once are two messages, whatever their
// fingerprints say.
func TestOtherVersionsAreNoDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, versionHandlers()["A2"], versioned(key.ByVersion("/v")), func(c *semel.Config) {
			c.Fingerprint = func(*semel.Message) (semel.Fingerprint, error) { return "", nil }
		})
		r.send(state(1), state(2), state(2), state(3))
		r.start()
		s := r.after(time.Minute)
		if got := strings.Join(ledger(r), " "); got != "1 2 3" || s.Replayed != 1 {
			t.Fatalf("applied %q, %+v", got, s)
		}
	})
}

// TestDoWithVersions is S1-30's race: many callers of one entity at once. Versions that take effect only grow, and the
// greatest is among them.
func TestDoWithVersions(t *testing.T) {
	store, key := memory.Open().Store(), semel.Key{Consumer: "c", Raw: "order-1"}
	const n = 60
	var mu sync.Mutex
	var ran []int
	var wg sync.WaitGroup
	for i := 1; i <= n; i++ {
		for range 2 { // each twice
			wg.Go(func() {
				_, d, err := semel.Do(t.Context(), store, key, func(_ context.Context, a *semel.Attempt) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, i)
					return a.Version().String(), nil
				}, semel.WithVersion(driver.IntVersion(int64(i))), semel.WithWait())
				switch {
				case err == nil && (d == semel.Executed || d == semel.Replayed):
				case errors.Is(err, semel.ErrStale) && d == semel.Stale:
				default:
					t.Errorf("version %d: %s, %v", i, d, err)
				}
			})
		}
	}
	wg.Wait()
	if len(ran) == 0 || ran[len(ran)-1] != n || !slices.IsSorted(ran) || len(slices.Compact(slices.Clone(ran))) != len(ran) {
		t.Errorf("took effect: %v", ran)
	}
	v, d, err := semel.Do(t.Context(), store, key, func(context.Context, *semel.Attempt) (string, error) { return "", nil },
		semel.WithVersion(driver.IntVersion(n)))
	if v != fmt.Sprint(n) || d != semel.Replayed || err != nil {
		t.Errorf("the current version again: %q, %s, %v", v, d, err)
	}
}

func TestVersionsThatAreRefused(t *testing.T) {
	id := key.FromJSON("/id")
	for field, tweak := range map[string]func(*semel.Config){
		"Key":      func(c *semel.Config) { c.Versions = key.ByVersion("/v") },
		"Versions": func(c *semel.Config) { c.Key, c.Versions = id, &key.Versions{} },
	} {
		db := memory.Open()
		cfg := semel.Config{Queue: db.Queue("q"), Store: db.Store(), Handler: semel.HandlerFunc(nil)}
		tweak(&cfg)
		_, err := semel.New(cfg)
		var e *semel.ConfigError
		if !errors.As(err, &e) || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestVersionsGuarantee: the guarantee for versions is exact in every mode.
func TestVersionsGuarantee(t *testing.T) {
	plain := semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil })
	guarantee := func(h semel.Handler, v *key.Versions) string {
		db := memory.Open()
		p, err := semel.Guarantee(semel.Config{
			Queue: db.Queue("q"), Store: db.Store(), Handler: h, Key: key.FromJSON("/id"), Versions: v,
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.String()
	}
	park := key.BySequence("/v")
	park.Park = time.Minute
	for _, x := range []struct {
		text string
		want []string
		no   string
	}{
		{guarantee(versionHandlers()["A2"], key.ByVersion("/v")), []string{"mode D over A2;", "no older version takes effect after a newer one",
			"states, never changes", "duplicates and older versions come within 14 days"}, "clocks, that"},
		{guarantee(versionHandlers()["B/C"], key.ByVersion("/v")), []string{"mode D over B/C;"}, "unless the resource itself"},
		{guarantee(plain, key.ByTimestamp("/at")), []string{"mode D over A;", "unless the resource itself compares the version",
			"versions are the senders' clocks"}, "no older version takes effect"},
		{guarantee(plain, park), []string{"waits 1m0s at most"}, "senders' clocks"},
		{guarantee(plain, nil), []string{"mode A;"}, "version"},
	} {
		for _, w := range x.want {
			if !strings.Contains(x.text, w) {
				t.Errorf("the guarantee does not say %q:\n%s", w, x.text)
			}
		}
		if strings.Contains(x.text, x.no) {
			t.Errorf("the guarantee says %q:\n%s", x.no, x.text)
		}
	}
}

// TestReplayOfAnOlderVersionKeepsTheNewerOnesDeadLetter: a duplicate of what was applied says nothing of the newer version
// that is parked.
func TestReplayOfAnOlderVersionKeepsTheNewerOnesDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if a.Version() == driver.IntVersion(3) {
				return errors.New("outcome unknown")
			}
			return nil
		}), versioned(key.ByVersion("/v")), func(c *semel.Config) { c.Takeover = semel.Once })
		r.start()
		for _, v := range []int{2, 3, 2} {
			r.send(state(v))
			time.Sleep(time.Second)
		}
		s := r.after(time.Minute)
		if ls := r.deadLetters(); len(ls) != 1 || ls[0].Kind != driver.DeadLetterUncertain || ls[0].Version != driver.IntVersion(3) || s.Replayed != 1 {
			t.Fatalf("%+v, dead letters %+v", s, ls)
		}
	})
}
