package sqs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

const (
	// lookFresh is for how long a settlement relies on the last look: it closes no dead letter that the look did not find.
	lookFresh = 30 * time.Second
	// countLag is for how long SQS may count no messages after a dead letter was written. The documentation says a minute.
	//
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
	countLag = 2 * time.Minute
	// mostWritten bounds the number of remembered dead letters that were written since the last look.
	mostWritten = 1000
)

// closeDeadLetters removes the dead letters of Settlement.Close after the messages are settled. An item whose ack is Unknown
// is settled again, and its dead letter is closed then. This is best effort: the dead letter of a completed record is stale,
// a redrive drops it, and each further duplicate closes it again. So a failure is only a warning, and acks stay Applied.
func (q *Queue) closeDeadLetters(ctx context.Context, s []driver.Settlement, out []driver.Outcome) {
	var ids []string
	for i := range s {
		if s[i].Close != "" && out[i] != driver.Unknown && !slices.Contains(ids, s[i].Close) {
			ids = append(ids, s[i].Close)
		}
	}
	if len(ids) == 0 || q.dlq == nil {
		return
	}
	ctx, cancel := q.bounded(context.WithoutCancel(ctx)) // a look may take longer than the caller waits
	defer cancel()
	var err error
	if dlq, ok := q.dlq.(*DeadLetterQueue); ok {
		err = dlq.close(ctx, ids)
	} else {
		for _, id := range ids {
			err = errors.Join(err, q.dlq.DeleteDeadLetter(ctx, id))
		}
	}
	if err != nil {
		q.o.Logger.Warn("dead letters could not be closed: their keys are completed, and semel dlq redrive drops them", "queue", q.name,
			"dead_letters", ids, "err", err)
	}
}

// close removes dead letters with one look for all of them, or with none if there are no dead letters.
func (b *DeadLetterQueue) close(ctx context.Context, ids []string) error {
	if ids = b.perhaps(ids); len(ids) == 0 {
		return nil
	}
	if !b.wroteLately() {
		if s, err := b.q.counts(ctx); err != nil || s.Empty() {
			return err
		}
	}
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if ids = b.perhaps(ids); len(ids) == 0 { // another call has looked in the meantime
		return nil
	}
	_, err := b.look(ctx, ids, 1)
	return err
}

// seenBefore is what is known about dead letters without a look.
type seenBefore struct {
	// handles are those of the last look, by dead letter. A standard queue accepts the latest handle of a message for a
	// deletion even after the message was returned.
	handles map[string][]string
	// looked is the time of the last look if it was complete, else zero.
	looked time.Time
	// written are the dead letters that this process has written since that look began. many: there are too many to list.
	written map[string]bool
	many    bool
	wrote   time.Time // time of the last write
}

// perhaps returns those of the dead letters that may exist.
func (b *DeadLetterQueue) perhaps(ids []string) (left []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known.many || b.known.looked.IsZero() || b.q.o.clock().Sub(b.known.looked) >= lookFresh {
		return ids
	}
	for _, id := range ids {
		if _, seen := b.known.handles[id]; seen || b.known.written[id] {
			left = append(left, id)
		}
	}
	return left
}

func (b *DeadLetterQueue) wroteLately() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.known.wrote.IsZero() && b.q.o.clock().Sub(b.known.wrote) < countLag
}

// rememberWritten remembers a dead letter that may have been written.
func (b *DeadLetterQueue) rememberWritten(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.wrote = b.q.o.clock()
	if len(b.known.written) >= mostWritten {
		b.known.many = true
		return
	}
	b.known.written[id] = true
}

// beginLook forgets the dead letters that were written before a look: the look finds them.
func (b *DeadLetterQueue) beginLook() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.looked, b.known.many = time.Time{}, false
	clear(b.known.written)
}

// endLook remembers what a look found. all: it was complete.
func (b *DeadLetterQueue) endLook(handles map[string][]string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known.handles = handles; all {
		b.known.looked = b.q.o.clock()
	}
}

// takeHandles returns the known handles of a dead letter, and forgets them: they are good for one try.
func (b *DeadLetterQueue) takeHandles(id string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.known.handles[id]
	delete(b.known.handles, id)
	return known
}
