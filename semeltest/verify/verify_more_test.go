package verify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest/verify"
	"github.com/semel-dev/semel/steps"
)

// Handlers that do not do the same every time get one clear finding, and no other.
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

// A handler that takes another way in a later world, after the plain runs agreed.
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

// The record of the first plain run is found by the second: the world was not made fresh.
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

// Handlers with which nothing can be shown fail too.
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

// What the handler leaves running is found: a death would lose it.
func TestGoroutineLeftBehind(t *testing.T) {
	t.Parallel()
	o := verify.Options{Worker: func(p *verify.Process) semel.Config {
		ended := make(chan struct{}, 1)
		cfg := calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			key := a.EffectKey("charge")
			go func() {
				<-ended
				_ = post(context.WithoutCancel(ctx), c, bank, key, "")
			}()
			return nil
		})(p)
		cfg.Events = semel.Events{Attempt: func(e semel.Event) {
			if e.Kind == semel.EventEnded {
				ended <- struct{}{}
			}
		}}
		return cfg
	}}
	verify.Straggle(&o, 2*time.Second) // for a machine that is busy with other things
	r := run(t, o)
	if len(r.Findings) == 0 || r.Findings[0].Cause != verify.OutsideRun || !strings.Contains(r.Findings[0].Why, "returned before") {
		t.Errorf("report:\n%s", r)
	}
}

// What a goroutine opens that outlives its schedule is closed, too.
func TestOpenedLate(t *testing.T) {
	var opened, closed atomic.Int32
	var wg sync.WaitGroup
	r := run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		return calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			wg.Go(func() {
				for range 100 {
					opened.Add(1)
					p.OnEnd(func() { closed.Add(1) })
					time.Sleep(time.Millisecond) // the run is open for a while, so that runs overlap
				}
			})
			return post(ctx, c, bank, a.EffectKey("charge"), "")
		})(p)
	}})
	wg.Wait()
	wantCauses(t, r)
	if opened.Load() == 0 || opened.Load() != closed.Load() {
		t.Errorf("%d opened, %d closed", opened.Load(), closed.Load())
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

// A probe has to change nothing.
func TestProbeWithEffects(t *testing.T) {
	r := run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		client := p.Client(nil)
		return semel.Config{
			Key: key.FromJSON("/order"), Handler: charge(client), Takeover: semel.Probe,
			Probe: func(ctx context.Context, _ *semel.Attempt) (semel.ProbeResult, error) {
				return semel.ProbeNotApplied, post(ctx, client, "https://bank.example/cancel", "", "")
			},
		}
	}})
	wantCauses(t, r, verify.OutsideRun)
}

// A real server on a socket, and a key in another place than the header.
func TestTransportAndHTTPKey(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	o := verify.Options{
		Worker: func(p *verify.Process) semel.Config {
			client := &http.Client{Transport: p.Transport(http.DefaultTransport)}
			return semel.Config{
				Key: key.FromJSON("/order"),
				Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
					return post(ctx, client, server.URL, "", a.EffectKey("charge"))
				}),
			}
		},
	}
	wantCauses(t, run(t, o), verify.NoKey)
	o.HTTPKey = func(_ *http.Request, body []byte) string { return string(body) }
	wantCauses(t, run(t, o))
}

// A server that refuses has done nothing: a token that it compares makes up for the key.
func TestRefusedIsNoEffect(t *testing.T) {
	var charged bool
	var last uint64
	r := run(t, verify.Options{
		Reset: func() { charged, last = false, 0 },
		Worker: func(p *verify.Process) semel.Config {
			client := p.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var token uint64
				fmt.Sscan(r.URL.Query().Get("token"), &token)
				switch {
				case token < last:
					w.WriteHeader(http.StatusPreconditionFailed)
				case r.Method == http.MethodPost:
					charged = true
				}
				last = max(last, token)
			}))
			return semel.Config{
				Key: key.FromJSON("/order"), Takeover: semel.Probe,
				Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
					return post(ctx, client, fmt.Sprintf("%s?token=%d", bank, a.Token), "", "")
				}),
				// The question leaves the token behind: no earlier run is let through any more.
				Probe: func(_ context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
					resp, err := client.Get(fmt.Sprintf("%s?token=%d", bank, a.Token))
					if err != nil {
						return semel.ProbeUnknown, err
					}
					resp.Body.Close()
					if charged {
						return semel.ProbeApplied, nil
					}
					return semel.ProbeNotApplied, nil
				},
			}
		},
	})
	wantCauses(t, r)
	if r.Struck() != 16 {
		t.Errorf("%d schedules struck, want 16", r.Struck())
	}
}

// Durable steps: what is done is not called again, what is queued commits with the journal.
func TestSteps(t *testing.T) {
	worker := func(keyed bool) func(p *verify.Process) semel.Config {
		return func(p *verify.Process) semel.Config {
			client := p.Client(nil)
			return semel.Config{
				Key: key.FromJSON("/order"),
				Handler: steps.Handler(func(ctx context.Context, r *steps.Run) error {
					if _, err := steps.Do(ctx, r, "charge", func(ctx context.Context, k string) (bool, error) {
						if !keyed {
							k = ""
						}
						return true, post(ctx, client, bank, k, "")
					}); err != nil {
						return err
					}
					return steps.InTx(ctx, r, "book", func(_ context.Context, tx *semel.Statements) error {
						tx.Exec("INSERT INTO bookings VALUES (1)")
						return nil
					})
				}, steps.Uses[*semel.Statements]()),
			}
		}
	}
	r := run(t, verify.Options{Worker: worker(true)})
	wantCauses(t, r)
	if len(r.Effects[order.ID]) != 2 {
		t.Errorf("effects %+v", r.Effects)
	}
	wantCauses(t, run(t, verify.Options{Worker: worker(false)}), verify.NoKey)
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
