package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/outbox"
)

// guardedOutbox emits the mail in the transaction of the order. A relay in the same process sends what was emitted, by
// whichever process.
func guardedOutbox(ctx context.Context, w *worker) error {
	handler := w.place.InTx(w.applyWithMail)
	if handler == nil || w.place.Outbox == nil {
		return errors.New("this store cannot emit: it has no queues")
	}
	relay, err := outbox.New(outbox.Config{
		From: w.place.Outbox, To: mailer{w}, RetryMin: 50 * time.Millisecond, RetryMax: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return fmt.Errorf("make the relay: %w", err)
	}
	// The relay ends after the consumer. What that emits last is sent by a process that goes on, or by the next one.
	relayed, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(relayed) }()
	err = w.guarded(ctx, handler, businessKey)
	stop()
	return errors.Join(err, <-ended)
}

func (w *worker) applyWithMail(ctx context.Context, a *semel.Attempt) (place.Effect, error) {
	o, err := perform(ctx, a)
	if err != nil {
		return place.Effect{}, err
	}
	a.Emit(semel.Message{Queue: place.OutboxName, Body: a.Body, Headers: map[string]string{place.KeyHeader: o.Key}})
	return w.effect(o.Key+plan.OrderItem, o, a.ID, a.Number), nil
}

// mailer is the mail service: it knows a mail by its message id.
type mailer struct{ *worker }

// Send sends mails.
func (m mailer) Send(ctx context.Context, mails ...driver.Message) error {
	for _, mail := range mails {
		o, err := decode(mail.Body)
		if err != nil {
			return err
		}
		if err := m.reach(ctx, m.effect(o.Key+plan.MailItem, o, mail.ID, 1), mail.ID); err != nil {
			return err
		}
		m.log.Add(eventlog.Entry{Kind: eventlog.Effect, Key: o.Key, Message: mail.ID})
		m.gate.pass(plan.BetweenEffects, o.Key, mail.ID)
	}
	return nil
}
