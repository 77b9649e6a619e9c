package verify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest/verify"
)

// Handlers that differ from run to run get one clear finding, and no other.
func TestNotRepeatable(t *testing.T) {
	n := 0
	for name, h := range map[string]handler{
		"path": func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			return post(ctx, c, fmt.Sprint(bank, "/", rand.Uint64()), a.EffectKey("charge"), "")
		},
		"number": func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			n++
			for i := range n {
				if err := post(ctx, c, bank, a.EffectKey(fmt.Sprint(i)), fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, verify.Options{Worker: calls(h)})
			wantCauses(t, r, verify.NotRepeatable)
		})
	}
}

// A handler that behaves differently in a later schedule, after the plain runs agreed.
func TestEffectThatDoesNotCome(t *testing.T) {
	worlds := 0
	r := run(t, verify.Options{
		Reset: func() { worlds++ },
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if worlds == 6 {
				return post(ctx, c, mail, a.EffectKey("receipt"), "")
			}
			return post(ctx, c, bank, a.EffectKey("charge"), "")
		}),
	})
	wantCauses(t, r, verify.NotRepeatable)
}

// The second plain run finds the record of the first: the world was not reset.
func TestStaleWorld(t *testing.T) {
	db := memory.Open()
	r := run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		cfg := calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			return post(ctx, c, bank, a.EffectKey("charge"), "")
		})(p)
		cfg.Queue, cfg.Store = db.Queue("orders"), db.Store()
		return cfg
	}})
	wantCauses(t, r, verify.NotRepeatable)
	if !strings.Contains(r.Findings[0].Hint, "Options.Reset") {
		t.Errorf("hint: %s", r.Findings[0].Hint)
	}
}

// Handlers without anything to judge fail too.
func TestNothingToJudge(t *testing.T) {
	for name, c := range map[string]struct {
		h    handler
		want verify.Cause
	}{
		"records nothing": {func(context.Context, *http.Client, *semel.Attempt) error { return nil }, verify.NothingRecorded},
		"fails": {func(context.Context, *http.Client, *semel.Attempt) error {
			return semel.Permanent(errors.New("no such account"))
		}, verify.Fails},
		"panics": {func(context.Context, *http.Client, *semel.Attempt) error { panic("nil map") }, verify.Fails},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, verify.Options{Worker: calls(c.h)})
			wantCauses(t, r, c.want)
			if c.want == verify.Fails && !strings.Contains(r.String(), map[string]string{
				"fails": "no such account", "panics": "nil map"}[name]) {
				t.Errorf("the reason is missing:\n%s", r)
			}
		})
	}
}

// Hangs are bounded: in the plain run, and when a call fails.
func TestHangs(t *testing.T) {
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	for name, h := range map[string]handler{
		"always": func(context.Context, *http.Client, *semel.Attempt) error { <-forever; return nil },
		"after an error": func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if err := post(ctx, c, bank, a.EffectKey("charge"), ""); err != nil {
				<-forever
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits: the limit is long, so that what does not hang ends in it on any machine
			r := run(t, verify.Options{Worker: calls(h), Limit: 5 * time.Second})
			wantCauses(t, r, verify.Hangs)
			if k := r.Findings[0].Schedule; (k == verify.ResponseLost) != (name == "after an error") {
				t.Errorf("shown by %v", k)
			}
		})
	}
}

// Two messages with one key: only the first takes effect.
func TestOneKeyForAllMessages(t *testing.T) {
	r := run(t, verify.Options{
		Messages: []semel.Message{order, {ID: "m-2", Body: []byte(`{"order":2,"amount":7}`)}},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			return post(ctx, c, bank, "charge", "")
		}),
	})
	wantCauses(t, r, verify.SharedKey)
	if f := r.Findings[0]; f.Message != "m-2" || !strings.Contains(f.Why, `"m-1"`) {
		t.Errorf("finding %+v", f)
	}
	if r.Struck() != 32 {
		t.Errorf("%d schedules struck, want 32", r.Struck())
	}
}

// A key that is the message id leaves out the duplicates, and the report notes it.
func TestKeyByID(t *testing.T) {
	r := run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		return semel.Config{Handler: charge(p.Client(nil))}
	}})
	wantCauses(t, r)
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "key.FromJSON") || r.Struck() != 7*2+5 {
		t.Errorf("%d struck, notes %v", r.Struck(), r.Notes)
	}
}

// A mistake is reported once, whichever samples show it.
func TestOneFindingForTwoSamples(t *testing.T) {
	r := run(t, verify.Options{
		Messages: []semel.Message{order, {ID: "m-2", Body: []byte(`{"order":2,"amount":7}`)}},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			return post(ctx, c, bank, "", string(a.Body))
		}),
	})
	wantCauses(t, r, verify.NoKey)
	if r.Struck() != 32 {
		t.Errorf("%d schedules struck, want 32", r.Struck())
	}
}

// One key for two effects of a run: the second is never made, whether or not it says the same as the first, and whether or
// not its content is known. A second try of one effect in another run is none.
func TestOneKeyForTwoEffectsOfARun(t *testing.T) {
	same := func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return errors.Join(post(ctx, c, bank, a.EffectKey(""), "5"), post(ctx, c, bank, a.EffectKey(""), "5"))
	}
	other := func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return errors.Join(post(ctx, c, bank, a.EffectKey(""), "goods"), post(ctx, c, bank, a.EffectKey(""), "shipping"))
	}
	again := func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		err := post(ctx, c, bank, a.EffectKey(""), "5")
		if err == nil && a.Number == 1 {
			err = errors.New("once more")
		}
		return err
	}
	wantCauses(t, run(t, verify.Options{Messages: []semel.Message{order}, Worker: calls(same)}), verify.SharedKey)
	wantCauses(t, run(t, verify.Options{Messages: []semel.Message{order}, Worker: calls(other)}), verify.SharedKey)
	wantCauses(t, run(t, verify.Options{Messages: []semel.Message{order}, Worker: calls(again)}))
	wantCauses(t, run(t, verify.Options{Messages: []semel.Message{order}, Worker: func(p *verify.Process) semel.Config {
		return semel.Config{
			Key: key.FromJSON("/order"),
			Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
				return errors.Join(p.Effect("charge", a.EffectKey(""), func() error { return nil }),
					p.Effect("charge", a.EffectKey(""), func() error { return nil }))
			}),
		}
	}}), verify.SharedKey)
}
