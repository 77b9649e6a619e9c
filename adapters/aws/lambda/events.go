package semellambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
)

// Direct makes each event of S3, EventBridge or SNS take effect once when it invokes a function without a queue in between.
// Give [Direct.S3], [Direct.EventBridge] or [Direct.SNS] to lambda.Start. The key is that of key.FromEvent, so it is the
// same as that of the event in a queue.
//
// Such an invocation is asynchronous: after an error Lambda repeats the event, twice by default, and then sends it to the
// function's destination for failures, which you need so that nothing is lost. In a repetition the finished records of an
// event are replayed. An event without a key is an error as well: it is not run.
//
// Source: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
type Direct struct {
	// Store keeps the records. Required.
	Store semel.Store
	// Consumer is the scope of the keys: two functions handle an event once each. Required.
	Consumer string
	// Margin is how long before the invocation's deadline the context of a run ends. Defaults as Options.Margin.
	Margin time.Duration
	// Options are those of semel.Do, for every record.
	Options []semel.DoOption
}

// S3 handles the records of S3's notifications, one after the other. fn is called once for each.
func (d Direct) S3(fn func(ctx context.Context, r events.S3EventRecord, a *semel.Attempt) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, raw json.RawMessage) error {
		return eachOf(ctx, &d, raw, func(r json.RawMessage) ([]byte, error) {
			return json.Marshal(map[string]any{"Records": []json.RawMessage{r}})
		}, fn)
	}
}

// SNS handles the records of notifications, one after the other. The key is that of the published event, or of the
// publication.
func (d Direct) SNS(fn func(ctx context.Context, r events.SNSEventRecord, a *semel.Attempt) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, raw json.RawMessage) error {
		return eachOf(ctx, &d, raw, func(r json.RawMessage) ([]byte, error) {
			var envelope struct{ Sns json.RawMessage }
			err := json.Unmarshal(r, &envelope)
			return envelope.Sns, err
		}, fn)
	}
}

// EventBridge handles an event of EventBridge.
func (d Direct) EventBridge(fn func(ctx context.Context, e events.EventBridgeEvent, a *semel.Attempt) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, raw json.RawMessage) error { return one(ctx, &d, raw, raw, fn) }
}

// eachOf handles the records of an event. bodyOf returns the part of a record with its key.
func eachOf[R any](
	ctx context.Context, d *Direct, raw json.RawMessage, bodyOf func(json.RawMessage) ([]byte, error),
	fn func(context.Context, R, *semel.Attempt) error,
) error {
	var ev struct{ Records []json.RawMessage }
	if err := json.Unmarshal(raw, &ev); err != nil {
		return fmt.Errorf("semellambda: not an event with records: %w", err)
	}
	if len(ev.Records) == 0 {
		return errors.New("semellambda: an event without records: is the function subscribed to something else?")
	}
	var errs []error
	for i, r := range ev.Records {
		body, err := bodyOf(r)
		if err == nil {
			err = one(ctx, d, body, r, fn)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("record %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// one handles one record; its key is that of body.
func one[R any](ctx context.Context, d *Direct, body, raw []byte, fn func(context.Context, R, *semel.Attempt) error) error {
	if d.Store == nil || d.Consumer == "" {
		return &semel.ConfigError{Field: "Direct", Problem: "has no Store or no Consumer", Hint: "give both"}
	}
	key, err := keyOfEvent(&semel.Message{Body: body})
	if err != nil {
		return err
	}
	var r R
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("semellambda: read the event of key %q: %w", key, err)
	}
	opts := d.Options
	if end, ok := ctx.Deadline(); ok {
		opts = append(append(make([]semel.DoOption, 0, len(opts)+1), opts...), semel.WithUntil(end.Add(beyond)))
		margin := d.Margin
		if margin == 0 {
			margin = min(DefaultMargin, time.Until(end)/10)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-margin))
		defer cancel()
	}
	_, _, err = semel.Do(ctx, d.Store, semel.Key{Consumer: d.Consumer, Raw: key}, func(ctx context.Context, a *semel.Attempt) (struct{}, error) {
		return struct{}{}, fn(ctx, r, a)
	}, opts...)
	return err
}

var keyOfEvent = key.FromEvent()
