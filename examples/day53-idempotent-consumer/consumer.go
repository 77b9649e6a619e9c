// Package day53 is an exercise, "design an idempotent message consumer", solved on semel: the interfaces are the
// exercise's, what makes them safe is the engine. README.md says what differs from the usual solution, and why.
package day53

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel"
)

// Message is what a queue delivers, perhaps more than once.
type Message struct {
	ID        string
	Type      string
	Version   int
	Timestamp time.Time
	Data      string
}

// MessageProcessor does the work of a message. Its context has the attempt (semel.AttemptFrom), whose EffectKey is the
// idempotency key for what it calls. What it returns has to have a JSON form.
type MessageProcessor interface {
	Process(ctx context.Context, msg *Message) (result any, err error)
}

// ProcessorFunc is a function as a MessageProcessor.
type ProcessorFunc func(ctx context.Context, msg *Message) (any, error)

// Process calls f.
func (f ProcessorFunc) Process(ctx context.Context, msg *Message) (any, error) { return f(ctx, msg) }

// IdempotencyMetrics counts the outcomes of messages.
type IdempotencyMetrics interface {
	Processed(msg *Message)
	Duplicate(msg *Message)
	Skipped(msg *Message) // a newer version is there
	Failed(msg *Message, err error)
}

// Counts is an IdempotencyMetrics that counts.
type Counts struct {
	mu                                     sync.Mutex
	ProcessedN, DuplicateN, SkipN, FailedN int
}

// Processed counts a message that took effect.
func (c *Counts) Processed(*Message) { c.add(&c.ProcessedN) }

// Duplicate counts a message that had taken effect before.
func (c *Counts) Duplicate(*Message) { c.add(&c.DuplicateN) }

// Skipped counts a message that a newer one had replaced.
func (c *Counts) Skipped(*Message) { c.add(&c.SkipN) }

// Failed counts a message that has to come again.
func (c *Counts) Failed(*Message, error) { c.add(&c.FailedN) }

func (c *Counts) add(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// Rate is the share of duplicates among the messages that were dealt with.
func (c *Counts) Rate() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.ProcessedN + c.DuplicateN + c.SkipN; all > 0 {
		return float64(c.DuplicateN) / float64(all)
	}
	return 0
}

// IdempotentConsumer makes each message take effect once.
type IdempotentConsumer struct {
	storage   IdempotencyStorage
	processor MessageProcessor
	metrics   IdempotencyMetrics
	strategy  Strategy
}

// NewIdempotentConsumer makes a consumer. Without a strategy the message's id is what must take effect once.
func NewIdempotentConsumer(s IdempotencyStorage, p MessageProcessor, m IdempotencyMetrics, by Strategy) *IdempotentConsumer {
	if by == nil {
		by = ByID
	}
	return &IdempotentConsumer{storage: s, processor: p, metrics: m, strategy: by}
}

// Outcome is the outcome of a message.
type Outcome string

// The outcomes of a message. Acknowledge all three, but not an error.
const (
	Processed Outcome = "processed"
	Duplicate Outcome = "duplicate"
	Skipped   Outcome = "skipped"
)

// ProcessMessage deals with one delivery. nil: acknowledge it, whether it took effect now or before. An error: it has
// to come again, also when another consumer works on it at this moment (semel.ErrBusy), because that one may still
// fail.
func (c *IdempotentConsumer) ProcessMessage(ctx context.Context, msg *Message) error {
	_, _, err := c.Handle(ctx, msg)
	return err
}

// Handle is ProcessMessage with the outcome, and with the result: a duplicate gets that of the first.
func (c *IdempotentConsumer) Handle(ctx context.Context, msg *Message) (Outcome, any, error) {
	key, opts, err := c.strategy(msg)
	if err != nil {
		c.metrics.Failed(msg, err)
		return "", nil, fmt.Errorf("key of message %s: %w", msg.ID, err)
	}
	result, d, err := c.storage.Once(ctx, key, func(ctx context.Context) (any, error) {
		return c.processor.Process(ctx, msg)
	}, opts...)
	switch {
	case errors.Is(err, semel.ErrStale):
		c.metrics.Skipped(msg)
		return Skipped, nil, nil
	case err != nil:
		c.metrics.Failed(msg, err)
		return "", nil, fmt.Errorf("process message %s: %w", msg.ID, err)
	case d == semel.Replayed:
		c.metrics.Duplicate(msg)
		return Duplicate, result, nil
	}
	c.metrics.Processed(msg)
	return Processed, result, nil
}
