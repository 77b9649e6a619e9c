package verify_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/semeltest/verify"
)

func post(ctx context.Context, c *http.Client, url, key string) error {
	req, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(`{"amount":5}`))
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode > 299 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func TestSmoke(t *testing.T) {
	for name, h := range map[string]func(p *verify.Process, c *http.Client) func(ctx context.Context, a *semel.Attempt) error{
		"naked": func(p *verify.Process, c *http.Client) func(ctx context.Context, a *semel.Attempt) error {
			return func(ctx context.Context, a *semel.Attempt) error { return post(ctx, c, "http://bank/charges", "") }
		},
		"keyed": func(p *verify.Process, c *http.Client) func(ctx context.Context, a *semel.Attempt) error {
			return func(ctx context.Context, a *semel.Attempt) error {
				return post(ctx, c, "http://bank/charges", a.EffectKey("charge"))
			}
		},
		"number": func(p *verify.Process, c *http.Client) func(ctx context.Context, a *semel.Attempt) error {
			return func(ctx context.Context, a *semel.Attempt) error {
				return post(ctx, c, "http://bank/charges", fmt.Sprint(a.ID, a.Number))
			}
		},
		"swallow": func(p *verify.Process, c *http.Client) func(ctx context.Context, a *semel.Attempt) error {
			return func(ctx context.Context, a *semel.Attempt) error {
				_ = post(ctx, c, "http://bank/charges", a.EffectKey("charge"))
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			r, err := verify.Run(t.Context(), verify.Options{
				Messages: []semel.Message{{ID: "order-1", Headers: map[string]string{"idempotency-key": "order-1"}}},
				Worker: func(p *verify.Process) semel.Config {
					return semel.Config{Handler: semel.HandlerFunc(h(p, p.Client(nil)))}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(time.Since(began), r.String())
			for _, s := range r.Schedules {
				t.Logf("%+v", s)
			}
		})
	}
}
