package verify_test

import (
	"context"
	"net/http"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/verify"
)

// The handler goes on when its lease is lost. The probe sees to everything else, but it cannot see what a run that lost
// its lease has yet to do.
func ExampleRun_ignoredContext() {
	charged := false
	show(verify.Options{
		Messages: []semel.Message{order},
		Reset:    func() { charged = false },
		Worker: func(p *verify.Process) semel.Config {
			client := p.Client(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { charged = true }))
			return semel.Config{
				Key: key.FromJSON("/order"),
				Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
					return post(context.WithoutCancel(ctx), client, bank, "", string(a.Body))
				}),
				Takeover: semel.Probe,
				Probe: func(context.Context, *semel.Attempt) (semel.ProbeResult, error) {
					if charged {
						return semel.ProbeApplied, nil
					}
					return semel.ProbeNotApplied, nil
				},
			}
		},
	})
	// Output:
	// 1 message, 1 effect, 16 bad schedules, 16 struck: 1 finding
	//
	// 1. POST https://bank.example/charges (effect 1 of 1): happened twice instead of once
	//   schedule  the lease is lost right before it (ctx ends), another process finishes, then the run goes on
	//   why       the lease was lost and ctx had ended (semel.ErrFenced), but the run went on, after another had
	//             finished
	//   hint      pass ctx to the call, and stop when it ends; besides send a key, because a process can stand still
	//             between the look at ctx and the call: req.Header.Set("Idempotency-Key", a.EffectKey("charges"))
	//   also      the process stands still right before it, another one takes over and finishes, then the run goes on
}

// Effects that commit with the record: nothing can go wrong. No database is needed to see that.
func ExampleRun_statements() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: func(*verify.Process) semel.Config {
			return semel.Config{
				Key: key.FromJSON("/order"),
				Handler: semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
					tx.Exec("UPDATE account SET balance = balance - 5 WHERE order_id = $1", a.Key.Raw)
					return nil
				}),
			}
		},
	})
	// Output:
	// 1 message, 1 effect, 7 bad schedules, 7 struck: nothing happened twice, nothing was lost
}

// At most once: without a key, but a run in doubt is parked for a person.
func ExampleRun_once() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: func(p *verify.Process) semel.Config {
			client := p.Client(nil)
			return semel.Config{
				Key:      key.FromJSON("/order"),
				Takeover: semel.Once,
				Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
					return post(ctx, client, bank, "", string(a.Body))
				}),
			}
		},
	})
	// Output:
	// 1 message, 1 effect, 16 bad schedules, 16 struck: nothing happened twice, nothing was lost
}
