package sqs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

const (
	// lookFresh is how long what a look did not find counts as not there, when a settlement closes dead letters.
	lookFresh = 30 * time.Second
	// countLag is how long after a dead letter was written SQS's number of messages may say that there is none. The
	// documentation has a minute.
	//
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
	countLag = 2 * time.Minute
	// mostWritten bounds what is remembered of dead letters that were written since the last look.
	mostWritten = 1000
)

// closeDeadLetters removes the dead letters of Settlement.Close, when the messages are settled: an item whose ack is Unknown is
// settled again, and its dead letter closed then. It is best effort: the dead letter of a completed record is stale, a redrive
// drops it, and each further duplicate closes it again. So a failure is a warning, and keeps no ack from being Applied.
func (q *Queue) closeDeadLetters(ctx context.Context, s []driver.Settlement, out []driver.Outcome) {
	var ids []string
	for i := range s {
		if s[i].Close != "" && out[i] != driver.Unknown && !slices.Contains(ids, s[i].Close) {
			ids = append(ids, s[i].Close)
		}
	}
	if len(ids) == 0 || q.box == nil {
		return
	}
	ctx, cancel := q.bounded(context.WithoutCancel(ctx)) // a look takes longer than a caller's patience
	defer cancel()
	var err error
	if box, ok := q.box.(*DeadLetterQueue); ok {
		err = box.close(ctx, ids)
	} else {
		for _, id := range ids {
			err = errors.Join(err, q.box.DeleteDeadLetter(ctx, id))
		}
	}
	if err != nil {
		q.o.Logger.Warn("dead letters could not be closed: their keys are completed, and semel dlq redrive drops them", "queue", q.name,
			"dead_letters", ids, "err", err)
	}
}

// close removes dead letters, with one look for all of them, and with none where there are no dead letters.
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
	if ids = b.perhaps(ids); len(ids) == 0 { // another call has looked meanwhile
		return nil
	}
	_, err := b.look(ctx, ids, 1)
	return err
}

// seenBefore is what is known of letters without a look.
type seenBefore struct {
	// handles are those of the last look, by dead letter: a standard queue deletes with the latest handle of a message also
	// after it was returned.
	handles map[string][]string
	// looked is when the last look found all there was; zero: it did not.
	looked time.Time
	// written are the dead letters that this process wrote since that look began, unless they are too many.
	written map[string]bool
	many    bool
	wrote   time.Time // when it wrote the last one
}

// perhaps are those of some dead letters that may be there.
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

// noteWritten notes a dead letter that may have been written.
func (b *DeadLetterQueue) noteWritten(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.wrote = b.q.o.clock()
	if len(b.known.written) >= mostWritten {
		b.known.many = true
		return
	}
	b.known.written[id] = true
}

// beginLook forgets what was written before a look, which the look finds.
func (b *DeadLetterQueue) beginLook() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.looked, b.known.many = time.Time{}, false
	clear(b.known.written)
}

// endLook notes what a look found; all tells that it missed nothing.
func (b *DeadLetterQueue) endLook(handles map[string][]string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known.handles = handles; all {
		b.known.looked = b.q.o.clock()
	}
}

// takeHandles are the handles that are known of a dead letter. They are good for one try.
func (b *DeadLetterQueue) takeHandles(id string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.known.handles[id]
	delete(b.known.handles, id)
	return known
}
