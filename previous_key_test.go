package semel_test

import (
	"context"
	"errors"
	"fmt"
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

// previousFixture is a consumer whose key was the field id, and now is id and action.
func previousFixture(t *testing.T, h semel.Handler, tweak ...func(*semel.Config)) *fixture {
	return newFixture(t, h, append([]func(*semel.Config){func(cfg *semel.Config) {
		cfg.Key, cfg.Consumer = key.FromJSON("/id", "/action"), "orders-v2"
		cfg.PreviousKey = &semel.PreviousKey{Consumer: "orders", Key: key.FromJSON("/id")}
	}}, tweak...)...)
}

func order(id, action string) semel.Message {
	return semel.Message{Body: []byte(fmt.Sprintf(`{"id":%q,"action":%q}`, id, action))}
}

func (r *fixture) state(consumer, key string) driver.State {
	rec, _, _ := r.store.Record(context.Background(), driver.Key{Consumer: consumer, Raw: key})
	return rec.State
}

// seen collects what handlers see.
type seen struct {
	mu   sync.Mutex
	keys []string
}

func (s *seen) handle(_ context.Context, a *semel.Attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, a.Key.Consumer+"/"+a.Key.Raw)
	if h := a.Hold(); h.NewKey != nil || h.Key != a.Key || a.EffectKey("") != semel.EffectKey(driver.Hold{Key: a.Key}, "") {
		return semel.Permanent(fmt.Errorf("%+v: effect key %s", h, a.EffectKey("")))
	}
	return nil
}

// TestPreviousKeepsTheIdentity: handlers see the previous key, and what is done is known under both.
func TestPreviousKeepsTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seen
		r := previousFixture(t, semel.HandlerFunc(s.handle))
		for range 2 {
			r.send(order("1", "ship"), order("2", "ship"))
		}
		r.start()
		sum := r.after(time.Minute)
		slices.Sort(s.keys)
		if got := strings.Join(s.keys, " "); got != "orders/1 orders/2" || sum.Replayed != 2 {
			t.Errorf("ran %s; %+v", got, sum)
		}
		for _, id := range []string{"1", "2"} {
			if f, n := r.state("orders", id), r.state("orders-v2", id+"|ship"); f != driver.Completed || n != driver.Completed {
				t.Errorf("order %s: %v under the previous key, %v under the new one", id, f, n)
			}
		}
	})
}

// TestPreviousKeyDuplicates: two messages with one new key and two previous ones are one operation from now on, also in one
// process. Two with one previous key stay one until PreviousKey is removed.
func TestPreviousKeyDuplicates(t *testing.T) {
	for name, recipes := range map[string]struct {
		previous, now []string
	}{
		"one new key":      {[]string{"/id", "/n"}, []string{"/id"}},
		"one previous key": {[]string{"/id"}, []string{"/id", "/n"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				running, most, ran := 0, 0, 0
				var mu sync.Mutex
				r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
					mu.Lock()
					running++
					ran++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					running--
					mu.Unlock()
					return nil
				}), func(cfg *semel.Config) {
					cfg.Key, cfg.PreviousKey = key.FromJSON(recipes.now...), &semel.PreviousKey{Key: key.FromJSON(recipes.previous...)}
				})
				for n := range 4 {
					r.send(semel.Message{Body: []byte(fmt.Sprintf(`{"id":"a","n":%d}`, n))})
				}
				r.start()
				sum := r.after(10 * time.Minute)
				if ran != 1 || most != 1 || sum.Effects != 1 || sum.Replayed != 3 || sum.Busy != 0 { // Busy: local duplicates met in the store
					t.Errorf("%d runs, %d at once; %+v", ran, most, sum)
				}
				for n := range 4 {
					many := "a|" + fmt.Sprint(n)
					if s := r.state("orders", many); s != driver.Completed {
						t.Errorf("record %s is %v: its message was acked", many, s)
					}
				}
			})
		})
	}
}

// TestPreviousMissing: a message that only one recipe has a key for is claimed under that one; one that none has is rejected.
func TestPreviousMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seen
		r := newFixture(t, semel.HandlerFunc(s.handle), func(cfg *semel.Config) {
			cfg.Key, cfg.PreviousKey = key.FromJSON("/new"), &semel.PreviousKey{Consumer: "v1", Key: key.FromJSON("/old")}
		})
		r.send(
			semel.Message{Body: []byte(`{"new":"n","old":"o"}`)}, semel.Message{Body: []byte(`{"new":"n2"}`)},
			semel.Message{Body: []byte(`{"old":"o2"}`)}, semel.Message{Body: []byte(`{"new":"n3","old":""}`)},
			semel.Message{Body: []byte(`{}`)}, semel.Message{Body: []byte(`{"new":"","old":"o3"}`)},
		)
		r.start()
		sum := r.after(time.Minute)
		slices.Sort(s.keys)
		if got := strings.Join(s.keys, " "); got != "orders/n2 orders/n3 v1/o v1/o2" || sum.Rejected != 2 {
			t.Errorf("ran %s; %+v", got, sum)
		}
		if r.state("orders", "n") != driver.Completed {
			t.Error("the new key of the first is not completed")
		}
	})
}

// TestPreviousDeadLetters: a key that fails for good, or is parked, has its dead letter under the previous key; the new one stays open,
// with the doubt. A dead letter of a worker without PreviousKey is made sure of under the new key.
func TestPreviousDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		r := previousFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if strings.Contains(string(a.Body), "park") {
				return semel.Park(down)
			}
			return semel.Permanent(down)
		}))
		r.send(order("1", "ship"), order("2", "park"))
		g, _ := r.store.Claim(t.Context(), driver.Claim{Key: driver.Key{Consumer: "orders-v2", Raw: "3|ship"}, Nonce: driver.Nonce{7}, Lease: time.Minute})
		_, _ = r.store.Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Fail, Reason: "before", Keep: time.Hour})
		r.send(order("3", "ship"))
		r.start()
		r.after(time.Minute)
		got := map[string]driver.DeadLetterKind{}
		for _, l := range r.deadLetters() {
			got[l.Key.Consumer+"/"+l.Key.Raw] = l.Kind
			if rec, _, _ := r.store.Record(context.Background(), l.Key); l.ID != driver.DeadLetterID(l.Kind, l.Key, rec.Token, "") {
				t.Errorf("dead letter %s of %v does not name its record's attempt %d", l.ID, l.Key, rec.Token)
			}
		}
		if len(got) != 3 || got["orders/1"] != driver.DeadLetterFailed || got["orders/2"] != driver.DeadLetterUncertain || got["orders-v2/3|ship"] != driver.DeadLetterFailed {
			t.Errorf("dead letters %v", got)
		}
		for _, key := range []string{"1|ship", "2|park"} {
			rec, _, _ := r.store.Record(context.Background(), driver.Key{Consumer: "orders-v2", Raw: key})
			if rec.State != driver.Released || !rec.Unknown {
				t.Errorf("%s is %v, doubt %v", key, rec.State, rec.Unknown)
			}
		}
		if s := r.state("orders", "3"); s != driver.Released {
			t.Errorf("the previous record of what failed under the new one is %v", s)
		}
	})
}

// TestPreviousInTransactions: effects, both records and the ack are one write, whichever way the handler has.
func TestPreviousInTransactions(t *testing.T) {
	effects := func(r **fixture) map[string]semel.Handler {
		return map[string]semel.Handler{
			"collected": semel.InTx(func(_ context.Context, e *memory.Effects, a *semel.Attempt) error {
				e.Append("ledger", a.Key.Raw)
				return nil
			}),
			"open": semel.InTx(func(_ context.Context, tx *memory.Tx, a *semel.Attempt) error { return tx.Append("ledger", a.Key.Raw) }),
			"batch": semel.InTxBatch(func(_ context.Context, tx *memory.Tx, batch []*semel.Attempt) error {
				for _, a := range batch {
					if err := tx.Append("ledger", a.Key.Raw); err != nil {
						return err
					}
				}
				return nil
			}),
		}
	}
	for name := range effects(nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := previousFixture(t, effects(nil)[name])
				done := driver.Key{Consumer: "orders", Raw: "0"} // by an old worker
				g, _ := r.store.Claim(t.Context(), driver.Claim{Key: done, Nonce: driver.Nonce{1}, Lease: time.Minute})
				_, _ = r.store.Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour})
				for range 2 {
					for n := range 20 {
						r.send(order(fmt.Sprint(n), "ship"))
					}
				}
				r.start()
				sum := r.after(time.Minute)
				rows := r.store.Tables().Rows("ledger")
				if len(rows) != 19 || sum.Effects != 19 || sum.Replayed != 21 {
					t.Errorf("%d effects; %+v", len(rows), sum)
				}
				for n := range 20 {
					if f, s := r.state("orders", fmt.Sprint(n)), r.state("orders-v2", fmt.Sprint(n)+"|ship"); f != driver.Completed || s != driver.Completed {
						t.Errorf("order %d: %v and %v", n, f, s)
					}
				}
			})
		})
	}
}

// plainCommitter commits, and has no transactions.
type plainCommitter struct {
	driver.Store
	driver.Committer
}

// joinsOnly joins acks, and emits nothing.
type joinsOnly struct{ plainCommitter }

func (s joinsOnly) Features() driver.StoreFeatures {
	f := s.Store.Features()
	f.Emits = false
	return f
}

// TestPreviousRefuses: New refuses configurations that cannot work, and the guarantee names the two keys.
func TestPreviousRefuses(t *testing.T) {
	db := memory.Open()
	nothing := semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil })
	queued := semel.InTx(func(context.Context, *memory.Effects, *semel.Attempt) error { return nil })
	byID := key.FromJSON("/id")
	for name, c := range map[string]struct {
		cfg  semel.Config
		want string
	}{
		"nothing different": {semel.Config{Handler: nothing, PreviousKey: &semel.PreviousKey{}}, "is not different from the current key"},
		"the same name":     {semel.Config{Handler: nothing, PreviousKey: &semel.PreviousKey{Consumer: "orders"}}, "is not different from the current key"},
		"versions": {semel.Config{Handler: nothing, Key: byID, Versions: &key.Versions{Of: key.ByVersion("/v").Of},
			PreviousKey: &semel.PreviousKey{Consumer: "v1"}}, "together with Versions"},
		"a store that cannot": {semel.Config{Handler: queued, Store: plainCommitter{db.Store(), db.Store()}, PreviousKey: &semel.PreviousKey{Consumer: "v1"}},
			"cannot complete two records"},
	} {
		cfg := c.cfg
		cfg.Queue = db.Queue("orders")
		if cfg.Store == nil {
			cfg.Store = db.Store()
		}
		_, err := semel.New(cfg)
		if e := (*semel.ConfigError)(nil); !errors.As(err, &e) || e.Field != "PreviousKey" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	previous := &semel.PreviousKey{Consumer: "v1"}
	p, err := semel.Guarantee(semel.Config{Queue: db.Queue("orders"), Store: db.Store(), Handler: nothing, PreviousKey: previous})
	if err != nil || !strings.Contains(p.String(), "keys of two recipes are claimed until PreviousKey") {
		t.Errorf("%v: %s", err, p)
	}
	joins := joinsOnly{plainCommitter{db.Store(), db.Store()}}
	p, err = semel.Guarantee(semel.Config{Queue: db.Queue("orders"), Store: joins, Handler: nothing, PreviousKey: previous})
	if err != nil || slices.Contains(p.Together, "ack") {
		t.Errorf("a store that cannot complete two records in one write: acks follow them: %v: %s", err, p)
	}
	if previous.Key != nil || previous.Consumer != "v1" {
		t.Error("New wrote into the caller's PreviousKey")
	}
}
