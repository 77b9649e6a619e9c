package semellambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/driver"
)

// batch is the driver.Queue of one invocation: it delivers its records to a consumer once, and collects their outcomes.
type batch struct {
	name        string
	fifo        bool
	deadLetters driver.DeadLetterQueue
	retention   time.Duration
	items       []item
	// gate reports whether a run may still begin; stop ends the consumer.
	gate func() bool
	stop context.CancelFunc

	mu     sync.Mutex
	groups map[string]groupState
	out    int           // delivered and not settled
	shut   bool          // nothing more is delivered
	wake   chan struct{} // closed when the next message of a group may be delivered
}

// groupState says whether the next message of a FIFO group may be delivered.
type groupState uint8

const (
	free groupState = iota
	busy
	stopped // a message failed
)

// item is one record.
type item struct {
	id    string // itemIdentifier
	group string // of a FIFO queue
	sqs.Record
	handed   bool
	withheld bool // not delivered: not due, a piece of a dead letter, or behind one of these
	done     bool // SQS may delete it
}

// receipt is the index of an item.
type receipt int

// newBatch reads the records of an invocation. Records that the response could not name are an error.
func newBatch(records []events.SQSMessage, o *Options, logger *slog.Logger) (*batch, error) {
	arn := records[0].EventSourceARN
	name := arn[strings.LastIndexByte(arn, ':')+1:]
	if name == "" {
		return nil, errors.New("semellambda: the first record names no queue (eventSourceARN): is it an event of SQS?")
	}
	b := &batch{
		name: name, fifo: strings.HasSuffix(name, ".fifo"), deadLetters: o.DeadLetters, retention: o.Retention,
		items: make([]item, len(records)), groups: map[string]groupState{},
	}
	now := time.Now()
	behind := map[string]bool{}
	for i := range records {
		r := &records[i]
		switch {
		case r.MessageId == "":
			return nil, fmt.Errorf("semellambda: record %d has no messageId: nothing can be reported of it", i)
		case r.EventSourceARN != arn:
			return nil, fmt.Errorf("semellambda: records of %s and of %s in one batch: use a function for each", arn, r.EventSourceARN)
		}
		it := item{id: r.MessageId, Record: sqs.ReadRecord(name, message(r), o.Unwrap, logger)}
		if b.fifo {
			it.group = r.Attributes["MessageGroupId"]
		}
		it.withheld = it.Piece || it.Due.After(now) || b.fifo && behind[it.group]
		if it.withheld {
			behind[it.group] = true
		}
		b.items[i] = it
	}
	return b, nil
}

// message returns a record as the SDK would return it.
func message(r *events.SQSMessage) *types.Message {
	m := &types.Message{
		MessageId: aws.String(r.MessageId), Body: aws.String(r.Body), Attributes: r.Attributes,
		MessageAttributes: make(map[string]types.MessageAttributeValue, len(r.MessageAttributes)),
	}
	for name, v := range r.MessageAttributes {
		m.MessageAttributes[name] = types.MessageAttributeValue{
			DataType: aws.String(v.DataType), StringValue: v.StringValue, BinaryValue: v.BinaryValue,
		}
	}
	return m
}

// comes returns how many records are delivered, if there is time.
func (b *batch) comes() (n int) {
	for i := range b.items {
		if !b.items[i].withheld {
			n++
		}
	}
	return n
}

func (b *batch) Features() driver.QueueFeatures {
	return driver.QueueFeatures{
		Name: b.name, Kind: "lambda", Retention: b.retention, Durable: true, Counts: true, Orders: b.fifo,
		DeadLetters: true, Redrives: true,
	}
}

// Receive returns records while there is time to begin them, one at a time of a FIFO group, so that nothing runs behind a
// failed message. When all are delivered, it waits for the end of the consumer, which it stops as soon as nothing is in
// flight.
func (b *batch) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	for {
		ds, wake := b.next(limit)
		if len(ds) > 0 {
			return ds, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wake: // nil when nothing more is delivered
		}
	}
}

// next returns the records that can be delivered now. If there are none, wake is closed when to ask again.
func (b *batch) next(limit int) (ds []driver.Delivery, wake <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	later := false
	open := b.gate()
	for i := range b.items {
		it := &b.items[i]
		switch {
		case it.handed || it.withheld || !open || b.groups[it.group] == stopped:
		case b.groups[it.group] == busy, len(ds) == limit:
			later = true
		default:
			it.handed = true
			if b.fifo {
				b.groups[it.group] = busy
			}
			ds = append(ds, driver.Delivery{Message: it.Message, Receipt: receipt(i), Count: max(it.Count, 1)})
		}
	}
	b.out += len(ds)
	if len(ds) > 0 {
		return ds, nil
	}
	if later {
		b.wake = make(chan struct{})
		return nil, b.wake
	}
	b.shut = true
	b.finish()
	return nil, nil
}

// finish ends the consumer when all records are delivered and none is in flight.
func (b *batch) finish() {
	if b.shut && b.out == 0 {
		b.stop()
	}
}

// settled records how a record ended.
func (b *batch) settled(r receipt, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := &b.items[r]
	it.done = it.done || done
	b.out--
	if b.fifo {
		b.groups[it.group] = free
		if !done {
			b.groups[it.group] = stopped
		}
	}
	if b.wake != nil {
		close(b.wake)
		b.wake = nil
	}
	b.finish()
}

// Settle collects how records ended. SQS learns it from the response of the function. Only dead letters are written here.
func (b *batch) Settle(ctx context.Context, ss ...driver.Settlement) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(ss))
	var errs []error
	for i := range ss {
		s := &ss[i]
		done, err := b.ends(ctx, s)
		if err != nil {
			errs = append(errs, err) // unknown: it is settled again
			continue
		}
		out[i] = driver.Applied
		if r, ok := s.Receipt.(receipt); ok {
			b.settled(r, done)
		}
	}
	return out, errors.Join(errs...)
}

// ends carries out a settlement, and reports whether SQS may delete the message.
func (b *batch) ends(ctx context.Context, s *driver.Settlement) (done bool, err error) {
	switch {
	case s.Action == driver.Ack && s.Close != "" && b.deadLetters != nil:
		if err := b.deadLetters.DeleteDeadLetter(ctx, s.Close); err != nil {
			return false, fmt.Errorf("close dead letter %s: %w", s.Close, err)
		}
		return true, nil
	case s.Action == driver.Ack:
		return true, nil
	case s.Action == driver.Dead && b.deadLetters != nil && s.DeadLetter != nil:
		l := *s.DeadLetter
		if l.DeadAt.IsZero() {
			l.DeadAt = time.Now()
		}
		if err := b.deadLetters.PutDeadLetter(ctx, l); err != nil {
			return false, fmt.Errorf("write dead letter %s: %w", l.ID, err)
		}
		return true, nil
	}
	return false, nil
}

// Extend is not supported: Lambda holds the messages, and the queue defines their visibility.
func (b *batch) Extend(context.Context, time.Duration, ...any) ([]driver.Outcome, error) {
	return nil, driver.ErrUnsupported
}

// response names the records that are not done, each ID once. In a FIFO group nothing is done behind such a record: see
// next.
func (b *batch) response() events.SQSEventResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	failures := []events.SQSBatchItemFailure{}
	named := map[string]bool{}
	for i := range b.items {
		if it := &b.items[i]; !it.done && !named[it.id] {
			named[it.id] = true
			failures = append(failures, events.SQSBatchItemFailure{ItemIdentifier: it.id})
		}
	}
	return events.SQSEventResponse{BatchItemFailures: failures}
}
