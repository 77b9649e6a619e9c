package verify_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/verify"
	"github.com/semel-dev/semel/steps"
)

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
