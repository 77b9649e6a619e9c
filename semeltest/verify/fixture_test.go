package verify_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/verify"
)

// order is the sample of these tests.
var order = semel.Message{ID: "m-1", Body: []byte(`{"order":1,"amount":5}`)}

// post calls a server as a program does.
func post(ctx context.Context, c *http.Client, url, key, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s responded with %s", url, resp.Status)
	}
	return nil
}

const (
	bank = "https://bank.example/charges"
	mail = "https://mail.example/receipts"
)

// calls makes the processes of a handler that calls servers which accept everything.
func calls(h func(ctx context.Context, c *http.Client, a *semel.Attempt) error) func(p *verify.Process) semel.Config {
	return func(p *verify.Process) semel.Config {
		client := p.Client(nil)
		return semel.Config{
			Key:     key.FromJSON("/order"),
			Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error { return h(ctx, client, a) }),
		}
	}
}

// show prints a report as examples do.
func show(o verify.Options) {
	r, err := verify.Run(context.Background(), o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(r)
}
