package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// TestDeadLetterHasAllErrors: reason, every wrapped error on its own, joined ones too, attempts and times.
func TestDeadLetterHasAllErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		began := time.Now()
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			both := errors.Join(fmt.Errorf("bank: %w", refused), errors.New("receipt: disk full"))
			return fmt.Errorf("handler: %w", fmt.Errorf("charge: %w", both))
		}), func(c *semel.Config) { c.MaxAttempts = 3 })
		r.send(msg("a"))
		r.start()
		r.after(time.Minute)
		ls := r.deadLetters()
		if len(ls) != 1 {
			t.Fatalf("%d dead letters", len(ls))
		}
		l := ls[0]
		want := "handler: charge: bank: connection refused\nreceipt: disk full (3 failed runs, limit 3)\n" +
			"caused by: charge: bank: connection refused; receipt: disk full\n" +
			"caused by: bank: connection refused; receipt: disk full\n" +
			"caused by: bank: connection refused\ncaused by: connection refused\ncaused by: receipt: disk full"
		if l.Reason != want {
			t.Errorf("reason:\n%s\nwant:\n%s", l.Reason, want)
		}
		if l.Attempts != 3 || l.FirstReceived.Before(began) || !l.DeadAt.After(l.FirstReceived) || string(l.Message.Body) != "a" {
			t.Errorf("dead letter %+v", l)
		}
	})
}

// TestDeadLetterOfAPanic: the stack is in the log, where the line of the mistake is looked for; the dead letter has the reason.
func TestDeadLetterOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { panic("boom") }), func(c *semel.Config) {
			c.MaxAttempts = 1
			c.Logger = slog.New(slog.NewTextHandler(&out, nil))
		})
		r.send(msg("a"))
		r.start()
		r.after(time.Minute)
		l := r.deadLetters()[0]
		if l.Kind != driver.DeadLetterFailed || l.Reason != "panic: boom (1 failed run, limit 1)" {
			t.Errorf("dead letter %+v", l)
		}
		if !strings.Contains(out.String(), "poison_test.go") || !strings.Contains(out.String(), "key=a") {
			t.Errorf("the log does not tell where:\n%s", &out)
		}
	})
}
