package day53

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

// IdempotencyStorage remembers what was processed. The consumer calls Once and nothing else: claim, run and record in
// one call. The other four are what the exercise asks for, for tools and tests. "Is it processed? No: process it, then
// mark it" is no guarantee: two consumers can both get no, and one that dies before it marks leaves no trace.
type IdempotencyStorage interface {
	// Once runs the function for the first caller of a key, and returns its result to all callers.
	Once(ctx context.Context, key string, run func(ctx context.Context) (any, error), opts ...semel.DoOption,
	) (result any, d semel.Decision, err error)

	IsProcessed(ctx context.Context, messageID string) (bool, error)
	// MarkProcessed records a message as processed that was processed elsewhere. It never overwrites a result.
	MarkProcessed(ctx context.Context, messageID string, result any) error
	// GetProcessedResult returns ErrNotProcessed when there is none.
	GetProcessedResult(ctx context.Context, messageID string) (any, error)
	// Cleanup forgets messages that were processed before a time.
	Cleanup(ctx context.Context, olderThan time.Time) error
}

// ErrNotProcessed reports that a message has no result.
var ErrNotProcessed = errors.New("message is not processed")

// Storage is an IdempotencyStorage on any store of semel: memory here, PostgreSQL or SQLite with one line changed.
type Storage struct {
	store semel.Store
	scope string
	keep  time.Duration
}

// NewStorage makes a storage. scope keeps the keys of one consumer from another's, keep is how long a message is
// remembered: longer than the latest duplicate can come.
func NewStorage(s semel.Store, scope string, keep time.Duration) *Storage {
	return &Storage{store: s, scope: scope, keep: keep}
}

// Once is semel.Do.
func (s *Storage) Once(
	ctx context.Context, key string, run func(ctx context.Context) (any, error), opts ...semel.DoOption,
) (any, semel.Decision, error) {
	opts = append([]semel.DoOption{semel.WithRetention(s.keep)}, opts...)
	return semel.Do(ctx, s.store, s.key(key), func(ctx context.Context, _ *semel.Attempt) (any, error) {
		return run(ctx)
	}, opts...)
}

func (s *Storage) key(text string) semel.Key { return semel.Key{Consumer: s.scope, Raw: text} }

func (s *Storage) record(ctx context.Context, messageID string) (driver.Record, bool, error) {
	in, ok := driver.As[driver.RecordInspector](s.store)
	if !ok {
		return driver.Record{}, false, fmt.Errorf("look up message %s: %w", messageID, driver.ErrUnsupported)
	}
	r, found, err := in.Record(ctx, s.key(key.Tuple(messageID)))
	if err != nil {
		return r, false, fmt.Errorf("look up message %s: %w", messageID, err)
	}
	return r, found && r.State == driver.Completed, nil
}

// IsProcessed returns what is recorded at this moment. A message in progress is not processed.
func (s *Storage) IsProcessed(ctx context.Context, messageID string) (bool, error) {
	_, ok, err := s.record(ctx, messageID)
	return ok, err
}

// MarkProcessed claims the message and completes it at once; semel.ErrBusy when a consumer works on it.
func (s *Storage) MarkProcessed(ctx context.Context, messageID string, result any) error {
	_, _, err := s.Once(ctx, key.Tuple(messageID), func(context.Context) (any, error) { return result, nil })
	return err
}

// GetProcessedResult decodes the stored result.
func (s *Storage) GetProcessedResult(ctx context.Context, messageID string) (result any, err error) {
	r, ok, err := s.record(ctx, messageID)
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
func (s *Storage) Cleanup(ctx context.Context, olderThan time.Time) error {
	if age := time.Since(olderThan); age < s.keep {
		return fmt.Errorf("clean up: messages are kept for %v, and %v would forget younger ones", s.keep, age)
	}
	sw, ok := driver.As[driver.Sweeper](s.store)
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
