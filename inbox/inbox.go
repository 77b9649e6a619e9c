// Package inbox is the interface of a hand-written inbox (is it processed, mark it, its result, clean up) on any store of semel,
// for programs that have such an interface today.
//
// "Is it processed? No: process it, then mark it" is no guarantee: two callers can both get no, and one that dies before it
// marks leaves no trace. Call [Inbox.Once], which claims, runs and records. The other methods are for tools, tests and messages that were
// processed elsewhere.
package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// ErrNotProcessed reports that a message has no result.
var ErrNotProcessed = errors.New("message is not processed")

// Inbox remembers the messages of one consumer.
type Inbox struct {
	store    semel.Store
	consumer string
	keep     time.Duration
}

// New makes an inbox. The consumer's name keeps its messages apart from those of others. keep is how long a message is remembered:
// longer than its latest duplicate can come.
func New(s semel.Store, consumer string, keep time.Duration) *Inbox {
	return &Inbox{store: s, consumer: consumer, keep: keep}
}

// Once runs the function for the first caller of a key, and returns its result to all callers: [semel.Do]. keyText is the text of a
// key; the other methods take a message ID and make the key of it with [key.Tuple].
func (in *Inbox) Once(
	ctx context.Context, keyText string, run func(ctx context.Context) (any, error), opts ...semel.DoOption,
) (any, semel.Decision, error) {
	opts = append([]semel.DoOption{semel.WithRetention(in.keep)}, opts...)
	return semel.Do(ctx, in.store, in.key(keyText), func(ctx context.Context, _ *semel.Attempt) (any, error) {
		return run(ctx)
	}, opts...)
}

func (in *Inbox) key(text string) semel.Key { return semel.Key{Consumer: in.consumer, Raw: text} }

func (in *Inbox) record(ctx context.Context, messageID string) (driver.Record, bool, error) {
	records, ok := driver.As[driver.RecordInspector](in.store)
	if !ok {
		return driver.Record{}, false, fmt.Errorf("look up message %s: %w", messageID, driver.ErrUnsupported)
	}
	r, found, err := records.Record(ctx, in.key(key.Tuple(messageID)))
	if err != nil {
		return r, false, fmt.Errorf("look up message %s: %w", messageID, err)
	}
	return r, found && r.State == driver.Completed, nil
}

// IsProcessed reports whether a message is completed at this moment. A message in progress is not.
func (in *Inbox) IsProcessed(ctx context.Context, messageID string) (bool, error) {
	_, ok, err := in.record(ctx, messageID)
	return ok, err
}

// MarkProcessed records a message that was processed elsewhere. It never replaces a result, and returns [semel.ErrBusy] while a
// consumer works on the message.
func (in *Inbox) MarkProcessed(ctx context.Context, messageID string, result any) error {
	_, _, err := in.Once(ctx, key.Tuple(messageID), func(context.Context) (any, error) { return result, nil })
	return err
}

// GetProcessedResult returns the stored result, or [ErrNotProcessed].
func (in *Inbox) GetProcessedResult(ctx context.Context, messageID string) (result any, err error) {
	r, ok, err := in.record(ctx, messageID)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("message %s: %w", messageID, ErrNotProcessed)
	}
	if err := json.Unmarshal(r.Result, &result); err != nil {
		return nil, fmt.Errorf("result of message %s: %w", messageID, err)
	}
	return result, nil
}

// Cleanup removes the records that are past the time that they are kept, in batches that keep nobody waiting. It
// refuses to forget more than that: each of those would be processed again if its duplicate came.
func (in *Inbox) Cleanup(ctx context.Context, olderThan time.Time) error {
	if age := time.Since(olderThan); age < in.keep {
		return fmt.Errorf("clean up: messages are kept for %v, and %v would forget younger ones", in.keep, age)
	}
	sw, ok := driver.As[driver.Sweeper](in.store)
	if !ok {
		return fmt.Errorf("clean up: %w", driver.ErrUnsupported)
	}
	for more := true; more; {
		var err error
		if _, more, err = sw.Sweep(ctx, 0, 1000); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return nil
}
