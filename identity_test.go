package semel_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// TestS3_59_DeliveryAndBusinessKey: a producer sends one order's charge twice, each time with an id of its own. Keyed by
// delivery it is charged twice, keyed by order and action once. A service that gets the effect key can refuse the second
// charge in the latter case only.
func TestS3_59_DeliveryAndBusinessKey(t *testing.T) {
	messages := []semel.Message{
		{ID: "9f1c7a52-5a0e-4f0e-9f0d-6d8a8f1f0001", Body: []byte(`{"order_id":"o-1","action":"charge","sent_at":1}`)},
		{ID: "9f1c7a52-5a0e-4f0e-9f0d-6d8a8f1f0002", Body: []byte(`{"order_id":"o-1","action":"charge","sent_at":2}`)},
		{ID: "9f1c7a52-5a0e-4f0e-9f0d-6d8a8f1f0003", Body: []byte(`{"order_id":"o-1","action":"refund","sent_at":3}`)},
	}
	for _, c := range []struct {
		name    string
		key     key.Func
		charges int
	}{
		{"delivery", key.ByID, 2},
		{"business", key.FromJSON("/order_id", "/action"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				charges, keys := 0, map[string]bool{}
				r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
					mu.Lock()
					defer mu.Unlock()
					keys[a.EffectKey("")] = true
					if strings.Contains(string(a.Body), `"charge"`) {
						charges++
					}
					return nil
				}), func(cfg *semel.Config) { cfg.Key, cfg.Concurrency = c.key, 1 })
				for range 2 { // and each is redelivered
					r.send(messages...)
				}
				r.start()
				sum := r.after(time.Minute)
				// The refund is another operation: it happens in either case.
				if charges != c.charges || int(sum.Effects) != c.charges+1 || len(keys) != c.charges+1 {
					t.Errorf("%d charges, wanted %d; %d effect keys; %+v", charges, c.charges, len(keys), sum)
				}
				if int(sum.Replayed) != 6-c.charges-1 || sum.Mismatched != 0 {
					t.Errorf("%+v", sum)
				}
			})
		})
	}
}

// The effect key of a step is made of the effect key without a name, by a rule that any language has: see docs/worker.md.
// The keys stand in other people's databases, so that they must never change.
func TestEffectKey_TheNameIsHashedOnTop(t *testing.T) {
	hold := driver.Hold{Key: driver.Key{Consumer: "orders", Tenant: "t", Raw: "o-1"}}
	key := semel.EffectKey(hold, "")
	if want := "d41b39aea45d1998f1e8f601520e9261eafb2e626edec67d35c68dc6bb29c48f"; key != want {
		t.Errorf("the effect key is %s, it was %s", key, want)
	}
	for _, step := range []string{"mails", "mails/4711", "größe", "undo\x00mails"} {
		sum := sha256.Sum256([]byte(key + "/" + step))
		if got, want := semel.EffectKey(hold, step), hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%q: %s, want %s", step, got, want)
		}
	}
}
