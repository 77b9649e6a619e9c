package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/steps"
)

// inTx is a handler whose effect commits with the record, or is made under the effect key where the ledger is elsewhere.
func (w *worker) inTx() semel.Handler {
	if h := w.place.InTx(w.applyInTx); h != nil {
		return h
	}
	return semel.HandlerFunc(w.applyKeyed)
}

// guarded makes a design of semel with a handler. The key is the order's, or the message's: that has no gap in its guard, and
// guards the wrong thing.
func guarded(handler func(*worker) semel.Handler, keyOf key.Func) func(context.Context, *worker) error {
	return func(ctx context.Context, w *worker) error { return w.guarded(ctx, handler(w), keyOf) }
}

func keyed(w *worker) semel.Handler    { return semel.HandlerFunc(w.applyKeyed) }
func itemized(w *worker) semel.Handler { return steps.Handler(w.applySteps) }
func saga(w *worker) semel.Handler     { return steps.Handler(w.applySaga) }

func messageKey(m *semel.Message) (string, error) { return m.ID, nil }

func businessKey(m *semel.Message) (string, error) { return m.Header(place.KeyHeader), nil }

func (w *worker) guarded(ctx context.Context, handler semel.Handler, keyOf key.Func) error {
	cfg := semel.Config{
		Queue: w.queue, Store: w.store, Handler: handler, Key: keyOf,
		Concurrency: w.spec.Workers.Concurrency,
		Visibility:  w.spec.Workers.Visibility,
		MaxAttempts: w.spec.Workers.MaxAttempts,
		Backoff:     semel.Backoff{Min: 100 * time.Millisecond, Max: time.Second},
		Grace:       w.spec.Grace,
		Events:      semel.Observe(w.observe),
		Logger:      slog.New(slog.DiscardHandler), // the events report it
	}
	if w.spec.Versions {
		cfg.Versions = key.ByVersion("/version")
	}
	c, err := semel.New(cfg)
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	return nil
}

// perform does the work of an attempt, without its effects. A body that cannot be read will never be.
func perform(ctx context.Context, a *semel.Attempt) (order, error) {
	o, err := decode(a.Body)
	if err != nil {
		return o, semel.Permanent(err)
	}
	return o, o.do(ctx, a.Redelivered)
}

func (w *worker) applyInTx(ctx context.Context, a *semel.Attempt) (place.Effect, error) {
	o, err := perform(ctx, a)
	if err != nil {
		return place.Effect{}, err
	}
	return w.effect(o.Key, o, a.ID, a.Number), nil
}

// applyKeyed calls a service that honours the effect key.
func (w *worker) applyKeyed(ctx context.Context, a *semel.Attempt) error {
	o, err := perform(ctx, a)
	if err != nil {
		return err
	}
	return w.call(ctx, o.Key, o, a, a.EffectKey("charge"))
}

// applySteps makes each item of a message a step with an effect key of its own.
func (w *worker) applySteps(ctx context.Context, r *steps.Run) error {
	a := r.Attempt()
	o, err := perform(ctx, a)
	if err != nil {
		return err
	}
	_, err = steps.Each(ctx, r, "charge", o.Items, func(item string) string { return item },
		func(ctx context.Context, item, key string) (struct{}, error) {
			if o.fails(item, a.Redelivered) {
				return struct{}{}, errBadItem
			}
			return struct{}{}, w.call(ctx, item, o, a, key)
		})
	return err
}

// call calls the payment service.
func (w *worker) call(ctx context.Context, key string, o order, a *semel.Attempt, effectKey string) error {
	if err := w.reach(ctx, w.effect(key, o, a.ID, a.Number), effectKey); err != nil {
		return err
	}
	w.log.Add(eventlog.Entry{Kind: eventlog.Effect, Key: a.Key.Raw, Message: a.ID})
	if len(o.Items) > 0 {
		w.gate.pass(plan.BetweenEffects, o.Key, a.ID)
	}
	return nil
}

// reach sends an effect to the service, whose response may get lost.
func (w *worker) reach(ctx context.Context, e place.Effect, effectKey string) error {
	if err := w.faults.down(); err != nil {
		return err
	}
	done := w.log.Call()
	err := w.place.AddEffect(ctx, e, effectKey)
	done()
	if err != nil {
		return err
	}
	if w.faults.strikes(w.spec.Wire.LoseEffect) {
		return errLostResponse
	}
	return nil
}

// applySaga registers each step's compensation before the step runs.
func (w *worker) applySaga(ctx context.Context, r *steps.Run) error {
	a := r.Attempt()
	o, err := perform(ctx, a)
	if err != nil {
		return err
	}
	for _, item := range o.Items {
		book := func(ctx context.Context, key string) (struct{}, error) {
			return struct{}{}, w.call(ctx, item, o, a, key)
		}
		cancel := steps.Undo(func(ctx context.Context, u steps.Reversal) error {
			err := w.reach(ctx, w.effect(item, o, a.ID, a.Number).Reversed(), u.UndoKey)
			undone := eventlog.Entry{Kind: eventlog.Undone, Key: a.Key.Raw, Message: a.ID}
			if err != nil {
				undone.Err = err.Error()
			}
			w.log.Add(undone)
			return err
		})
		if o.refused(item) {
			return steps.Abort(errPoison)
		}
		if _, err := steps.Do(ctx, r, item, book, cancel); err != nil {
			return err
		}
	}
	return nil
}

// observe logs the consumer's events. The queue's decorator logs receiving, extending the visibility and settling, for the
// unguarded worker too.
func (w *worker) observe(e semel.Event) {
	switch e.Kind {
	case semel.EventReceived, semel.EventSettled:
		return
	case semel.EventExtended:
		if !e.Lease {
			return
		}
	}
	n := eventlog.Entry{
		Kind: string(e.Kind), Key: e.Key.Raw, Message: e.MessageID, Count: e.Count, Attempt: e.Attempt,
		Token: e.Token, VisibleMS: e.Visible.Milliseconds(), Takeover: e.Takeover, Unknown: e.Unknown, Lease: e.Lease,
		Decision: string(e.Decision), Cause: string(e.Cause), AfterMS: e.After.Milliseconds(), Reason: e.Reason,
	}
	if e.Kind == semel.EventExtended {
		n.Outcome = e.Outcome.String()
	}
	if !e.At.IsZero() {
		n.At = e.At.UnixMicro()
	}
	if e.Err != nil {
		n.Err = e.Err.Error()
	}
	w.log.Add(n)
}
