package verify_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/verify"
)

// The whole test of a handler that charges a card and sends a receipt. Here it passes.
func ExampleHandler() {
	test := func(t *testing.T) {
		verify.Handler(t, verify.Options{
			Messages: []semel.Message{{Body: []byte(`{"order":1,"amount":5}`)}},
			Worker: func(p *verify.Process) semel.Config {
				client := p.Client(nil) // the servers accept everything
				return semel.Config{Key: key.FromJSON("/order"), Handler: charge(client)}
			},
		})
	}
	_ = test // go test runs it
	show(verify.Options{
		Messages: []semel.Message{{Body: []byte(`{"order":1,"amount":5}`)}},
		Worker: func(p *verify.Process) semel.Config {
			return semel.Config{Key: key.FromJSON("/order"), Handler: charge(p.Client(nil))}
		},
	})
	// Output:
	// 1 message, 2 effects, 25 bad schedules, 25 struck: nothing happened twice, nothing was lost
}

// charge is a correct handler: every call has its own key, which is the same in every attempt.
func charge(client *http.Client) semel.Handler {
	return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
		if err := post(ctx, client, bank, a.EffectKey("charge"), string(a.Body)); err != nil {
			return err
		}
		return post(ctx, client, mail, a.EffectKey("receipt"), string(a.Body))
	})
}

// A charge without a key.
func ExampleRun_noKey() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			return post(ctx, c, bank, "", string(a.Body))
		}),
	})
	// Output:
	// 1 message, 1 effect, 16 bad schedules, 16 struck: 1 finding
	//
	// 1. POST https://bank.example/charges (effect 1 of 1): happened twice instead of once
	//   schedule  the process dies right after the effect, another one takes over
	//   why       it has no Idempotency-Key: the server cannot tell the second request from another first one
	//   hint      req.Header.Set("Idempotency-Key", a.EffectKey("charges"))
	//   also      the effect happens, and its response is lost
	//             the effect's response arrives when another process has taken over and finished
	//             the process stands still right before the effect, another one finishes, then the first goes on
	//             the process dies right after the effect, a duplicate with another message id takes over
	//             the process dies after the handler returned, before the record is completed
	//             the run fails after everything was done, and is repeated
}

// Something is done before the key is claimed: here by the function that takes the key out of the message.
func ExampleRun_beforeTheClaim() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: func(p *verify.Process) semel.Config {
			return semel.Config{
				Key: func(m *semel.Message) (string, error) {
					if err := p.Effect("log arrival", "", func() error { return nil }); err != nil {
						return "", err
					}
					return key.FromJSON("/order")(m)
				},
				Handler: charge(p.Client(nil)),
			}
		},
	})
	// Output:
	// 1 message, 2 effects, 25 bad schedules, 25 struck: 1 finding
	//
	// 1. log arrival: was done outside of a run
	//   schedule  nothing goes wrong
	//   why       it was done in Config.Key, before the key is claimed: every delivery does it, duplicates too
	//   hint      move it behind the claim, into the handler; what takes a message apart must change nothing
}

// The same in a program without a consumer: it does the effect before it calls semel.Do.
func ExampleRun_beforeDo() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Serve: func(p *verify.Process) func(context.Context, semel.Message) error {
			client, store := p.Client(nil), p.Store(nil)
			return func(ctx context.Context, m semel.Message) error {
				if err := post(ctx, client, mail, "", "we got your order"); err != nil {
					return err
				}
				_, _, err := semel.Do(ctx, store, semel.Key{Consumer: "shop", Raw: "order-1"},
					func(ctx context.Context, a *semel.Attempt) (bool, error) {
						return true, post(ctx, client, bank, a.EffectKey("charge"), string(m.Body))
					})
				return err
			}
		},
	})
	// Output:
	// 1 message, 1 effect, 14 bad schedules, 14 struck: 1 finding
	//
	// 1. POST https://mail.example/receipts: was done outside of a run
	//   schedule  nothing goes wrong
	//   why       it was done before the key was claimed: every delivery does it, duplicates too
	//   hint      move it behind the claim: into the handler, or into the function that semel.Do runs
}

// A counter that no recorder sees: the end states are compared.
func ExampleRun_counter() {
	balance := 0
	show(verify.Options{
		Messages: []semel.Message{order},
		Reset:    func() { balance = 0 },
		State:    func() any { return balance },
		Worker: func(*verify.Process) semel.Config {
			return semel.Config{
				Key:     key.FromJSON("/order"),
				Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { balance += 5; return nil }),
			}
		},
	})
	// Output:
	// 1 message, 0 effects, 7 bad schedules, 7 struck: 1 finding
	//
	// 1. handler: the world came to another state
	//   schedule  the process dies after the handler returned, before the record is completed
	//   why       after the plain run it is 5, here 10: something that is not keyed happened twice, or not at all
	//   hint      queue the write with semel.InTx and *semel.Statements, so that it commits with the record; or set a
	//             value instead of adding
	//   also      the run fails after everything was done, and is repeated
}

// Two effects, and only the first has a key.
func ExampleRun_secondWithoutKey() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if err := post(ctx, c, bank, a.EffectKey("charge"), string(a.Body)); err != nil {
				return err
			}
			return post(ctx, c, mail, "", string(a.Body))
		}),
	})
	// Output:
	// 1 message, 2 effects, 25 bad schedules, 25 struck: 1 finding
	//
	// 1. POST https://mail.example/receipts (effect 2 of 2): happened twice instead of once
	//   schedule  the process dies right after the effect, another one takes over
	//   why       it has no Idempotency-Key: the server cannot tell the second request from another first one
	//   hint      req.Header.Set("Idempotency-Key", a.EffectKey("receipts"))
	//   also      the effect happens, and its response is lost
	//             the effect's response arrives when another process has taken over and finished
	//             the process stands still right before the effect, another one finishes, then the first goes on
	//             the process dies right after the effect, a duplicate with another message id takes over
	//             the process dies after the handler returned, before the record is completed
	//             the run fails after everything was done, and is repeated
}

// The key is made anew in every attempt.
func ExampleRun_freshKey() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			return post(ctx, c, bank, fmt.Sprintf("order-1/%d", a.Number), string(a.Body))
		}),
	})
	// Output:
	// 1 message, 1 effect, 16 bad schedules, 16 struck: 1 finding
	//
	// 1. POST https://bank.example/charges (effect 1 of 1): happened twice instead of once, each under another key
	//   schedule  the process dies right after the effect, another one takes over
	//   why       the key is made anew: "order-1/1", then "order-1/2"
	//   hint      derive it from the message's key: a.EffectKey("charges") is the same in every attempt
	//   also      the effect happens, and its response is lost
	//             the effect's response arrives when another process has taken over and finished
	//             the process stands still right before the effect, another one finishes, then the first goes on
	//             the process dies right after the effect, a duplicate with another message id takes over
	//             the process dies after the handler returned, before the record is completed
	//             the run fails after everything was done, and is repeated
}

// The key is the message id, which a producer that sends twice does not keep.
func ExampleRun_deliveryKey() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			return post(ctx, c, bank, a.ID, string(a.Body))
		}),
	})
	// Output:
	// 1 message, 1 effect, 16 bad schedules, 16 struck: 1 finding
	//
	// 1. POST https://bank.example/charges (effect 1 of 1): happened twice instead of once, each under another key
	//   schedule  the process dies right after the effect, a duplicate with another message id takes over
	//   why       the key is made anew: "m-1", then "m-1-again" (it follows the message id, which a producer that
	//             sends twice does not keep)
	//   hint      derive it from the message's key: a.EffectKey("charges") is the same in every attempt
}

// One key for two effects.
func ExampleRun_sharedKey() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if err := post(ctx, c, bank, a.EffectKey(""), string(a.Body)); err != nil {
				return err
			}
			return post(ctx, c, mail, a.EffectKey(""), string(a.Body))
		}),
	})
	// Output:
	// 1 message, 2 effects, 25 bad schedules, 25 struck: 1 finding
	//
	// 1. POST https://mail.example/receipts (effect 2 of 2): has the key of another effect
	//   schedule  nothing goes wrong
	//   why       POST https://bank.example/charges (effect 1) has the key "d4b3d2d4ae44"…, too: a service that
	//             deduplicates takes this one for a repeat, and drops it
	//   hint      use one key for each step: a.EffectKey("receipts"); in a loop with the number of the item in the
	//             name
}

// The error of an effect is swallowed.
func ExampleRun_swallowedError() {
	show(verify.Options{
		Messages: []semel.Message{order},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			_ = post(ctx, c, bank, a.EffectKey("charge"), string(a.Body))
			return nil
		}),
	})
	// Output:
	// 1 message, 1 effect, 16 bad schedules, 16 struck: 1 finding
	//
	// 1. POST https://bank.example/charges (effect 1 of 1): happened not at all instead of once, and the message is done
	//   schedule  the effect fails before it happens
	//   why       the handler got an error, and reported success all the same
	//   hint      return the error: the run is repeated, and what has a key is not done twice
}

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
	//   schedule  the lease is lost right before the effect (ctx ends), another process finishes, then the run goes on
	//   why       the lease was lost and ctx had ended (semel.ErrFenced), but the run went on, after another had
	//             finished
	//   hint      pass ctx to the call, and stop when it ends; besides send a key, because a process can stand still
	//             between the look at ctx and the call: req.Header.Set("Idempotency-Key", a.EffectKey("charges"))
	//   also      the process stands still right before the effect, another one finishes, then the first goes on
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
