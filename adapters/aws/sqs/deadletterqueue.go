package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// DeadLetterQueue keeps dead letters in an SQS queue: the target of the redrive policy, or any other. It holds three kinds
// of messages:
//
//   - dead letters that were put: copies of their messages with an additional attribute, so that other tools and a redrive by
//     the provider find the original message with its ID
//   - pieces of dead letters that do not fit into one message
//   - messages that the provider moved here by its redrive policy. They are dead letters of kind failed with an unknown key. If
//     the key was the message's ID, the header idempotency-key keeps it.
//
// SQS shows messages only to their receiver. So a look at one dead letter receives all of them, hides them from others for a
// while, and then returns them. SQS drops a dead letter when the queue's retention ends. dynamodb.DeadLetters has no such
// limit.
type DeadLetterQueue struct {
	q *Queue

	// turn allows one look at a time: a second look would miss the messages that the first holds. It is no mutex, because a
	// look makes network calls, and a caller must not wait for it longer than its ctx.
	turn chan struct{}

	mu    sync.Mutex
	known seenBefore
}

const (
	// lookVisible is how long a look hides dead letters. If the process dies, they become visible by themselves.
	lookVisible = 30 * time.Second
	// lookWait is how long a receive of a look waits: a short poll asks only some of SQS's machines.
	lookWait = 1
	// lookAgain is how often a look is repeated while another process holds dead letters.
	lookAgain = 10
)

// OpenDeadLetters opens a dead-letter queue by its name or URL. Use the Unwrap of the source queue, so that messages that
// the provider moved are read in the same way.
func OpenDeadLetters(ctx context.Context, client Client, queue string, o Options) (*DeadLetterQueue, error) {
	q, err := open(ctx, client, queue, o)
	if err != nil {
		return nil, err
	}
	return newDeadLetterQueue(q), nil
}

// openDeadLetterQueue opens the dead-letter queue of a queue.
func openDeadLetterQueue(ctx context.Context, of *Queue, queue string) (*DeadLetterQueue, error) {
	o := of.o
	o.DeadLetterQueue = ""
	q, err := open(ctx, of.client, queue, o)
	if err != nil {
		return nil, err
	}
	if q.is.retention > 0 && q.is.retention <= of.is.retention && of.is.deadLetterARN == q.is.arn && !q.is.fifo {
		// A moved message keeps the time at which it was sent.
		o.Logger.Warn("the dead-letter queue keeps messages no longer than the queue itself: one that is moved late is dropped at once",
			"queue", of.name, "dead_letters", q.name, "retention", q.is.retention)
	}
	return newDeadLetterQueue(q), nil
}

func newDeadLetterQueue(q *Queue) *DeadLetterQueue {
	q.visible, q.wait = lookVisible, 0
	return &DeadLetterQueue{q: q, turn: make(chan struct{}, 1), known: seenBefore{written: map[string]bool{}}}
}

// held is a dead letter with the handles of all its messages.
type held struct {
	driver.DeadLetter
	whole   bool // false: pieces are missing
	handles []string
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (b *DeadLetterQueue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	if err := b.lock(ctx); err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	defer b.unlock()
	all, err := b.look(ctx, nil, lookAgain)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	out := make([]driver.DeadLetter, 0, len(all))
	for _, h := range all {
		if h.whole {
			out = append(out, h.DeadLetter)
		}
	}
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	return out, nil
}

// DeadLetter returns one dead letter; ok is false if there is none.
func (b *DeadLetterQueue) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	if err := b.lock(ctx); err != nil {
		return l, false, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	defer b.unlock()
	all, err := b.look(ctx, nil, lookAgain)
	if err != nil {
		return l, false, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	for _, h := range all {
		if h.ID == id && h.whole {
			return h.DeadLetter, true, nil
		}
	}
	return l, false, nil
}

// PutDeadLetter publishes a dead letter without a delivery. Several copies with the same ID count as one dead letter.
func (b *DeadLetterQueue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("put dead letter: it has no ID")
	}
	l.DeadAt = b.q.o.clock()
	list, err := b.write(&l)
	if err != nil {
		return fmt.Errorf("put dead letter %s: %w", l.ID, err)
	}
	err = b.q.post(ctx, list)
	b.rememberWritten(l.ID)
	if err != nil {
		return fmt.Errorf("put dead letter %s: %w", l.ID, err)
	}
	return nil
}

// DeleteDeadLetter removes all copies of a dead letter. A missing one is no error. If the last look of this process saw it,
// it is deleted without another look. SQS may then report success and keep a copy that another process has looked at since.
// Such a dead letter stays, and the next redrive drops it, because its record has gone on.
func (b *DeadLetterQueue) DeleteDeadLetter(ctx context.Context, id string) error {
	if err := b.lock(ctx); err != nil {
		return fmt.Errorf("delete dead letter %s: %w", id, err)
	}
	defer b.unlock()
	if known := b.takeHandles(id); len(known) > 0 && !b.q.is.fifo && b.deleteAll(ctx, known) == nil {
		return nil
	}
	if _, err := b.look(ctx, []string{id}, lookAgain); err != nil {
		return fmt.Errorf("delete dead letter %s: %w", id, err)
	}
	return nil
}

func (b *DeadLetterQueue) lock(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *DeadLetterQueue) unlock() { <-b.turn }

// look receives all messages, deletes those of the dead letters to remove, and returns the others. A look that deletes keeps
// no bodies, and finds no dead letter whole. tries is how often it is repeated while another process holds dead letters.
func (b *DeadLetterQueue) look(ctx context.Context, remove []string, tries int) ([]*held, error) {
	b.beginLook()
	var msgs []types.Message
	whole, err := b.gather(ctx, &msgs, len(remove) > 0, tries)
	all := b.sort(msgs)
	var gone, back []string
	known := make(map[string][]string, len(all))
	for _, h := range all {
		if slices.Contains(remove, h.ID) {
			gone = append(gone, h.handles...)
			continue
		}
		back = append(back, h.handles...)
		known[h.ID] = h.handles
	}
	if len(gone) > 0 {
		err = errors.Join(err, b.deleteAll(ctx, gone))
	}
	b.release(ctx, back)
	b.endLook(known, whole && err == nil)
	return all, err
}

// gather receives until no more messages arrive. It waits a while for messages that other processes hold; all means that
// there are none.
func (b *DeadLetterQueue) gather(ctx context.Context, msgs *[]types.Message, lean bool, tries int) (all bool, err error) {
	seen := map[string]int{} // by MessageId: where in msgs
	for again := 0; ; {
		n, err := b.gatherOnce(ctx, msgs, seen, lean)
		if err != nil {
			return false, err
		}
		if n > 0 {
			continue
		}
		s, err := b.q.counts(ctx)
		if err != nil {
			return false, err
		}
		// The counts lag behind, so they justify only a few repetitions.
		all = s.InFlight <= int64(len(seen))
		if again++; all || again >= tries || b.q.o.deadLetterShort {
			return all, nil
		}
	}
}

func (b *DeadLetterQueue) gatherOnce(ctx context.Context, msgs *[]types.Message, seen map[string]int, lean bool) (n int, err error) {
	in := &awssqs.ReceiveMessageInput{
		QueueUrl: &b.q.url, MaxNumberOfMessages: maxBatch, VisibilityTimeout: seconds(lookVisible), WaitTimeSeconds: lookWait,
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	if b.q.o.deadLetterShort {
		in.WaitTimeSeconds = 0
	}
	got, _, err := b.q.ask(ctx, in)
	if err != nil {
		return 0, err
	}
	for i := range got {
		id := deref(got[i].MessageId)
		if lean {
			got[i].Body = nil
		}
		if at, ok := seen[id]; ok { // its visibility ended during the look
			(*msgs)[at] = got[i]
			continue
		}
		seen[id] = len(*msgs)
		*msgs = append(*msgs, got[i])
		n++
	}
	return n, nil
}

// sort makes dead letters of messages, oldest first. Of several copies it takes the oldest.
func (b *DeadLetterQueue) sort(msgs []types.Message) []*held {
	byID := map[string]*held{}
	var pieces []piece
	for i := range msgs {
		in := &msgs[i]
		if p, ok := readPart(in); ok {
			pieces = append(pieces, p)
			continue
		}
		b.add(byID, b.read(in), deref(in.ReceiptHandle))
	}
	b.join(byID, pieces)
	all := make([]*held, 0, len(byID))
	for _, h := range byID {
		all = append(all, h)
	}
	slices.SortFunc(all, func(x, y *held) int {
		return cmp.Or(x.DeadAt.Compare(y.DeadAt), cmp.Compare(x.ID, y.ID))
	})
	return all
}

func (b *DeadLetterQueue) add(byID map[string]*held, l driver.DeadLetter, handles ...string) {
	h := byID[l.ID]
	if h == nil {
		h = &held{}
		byID[l.ID] = h
	}
	if !h.whole || l.DeadAt.Before(h.DeadAt) {
		h.DeadLetter, h.whole = l, true
	}
	h.handles = append(h.handles, handles...)
}

// changes returns batch entries for bare handles.
func (b *DeadLetterQueue) changes(handles []string) []change {
	cs := make([]change, len(handles))
	for i, handle := range handles {
		cs[i] = change{rc: &receipt{q: b.q, handle: handle}, at: i}
	}
	return cs
}

func (b *DeadLetterQueue) deleteAll(ctx context.Context, handles []string) error {
	cs := b.changes(handles)
	out := make([]driver.Outcome, len(cs))
	err := b.q.each(cs, func(cs []change) error { return b.q.remove(ctx, cs, out) })
	if err == nil && slices.ContainsFunc(out, func(o driver.Outcome) bool { return o != driver.Applied }) {
		err = errors.New("another process holds the dead letter: repeat")
	}
	return err
}

// release makes dead letters visible again. A failure is no error: they become visible by themselves.
func (b *DeadLetterQueue) release(ctx context.Context, handles []string) {
	if len(handles) == 0 {
		return
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = b.q.bounded(context.WithoutCancel(ctx))
		defer cancel()
	}
	if err := b.q.changeAll(ctx, b.changes(handles)); err != nil {
		b.q.o.Logger.Warn("dead letters could not be returned: they are hidden for a while", "queue", b.q.name,
			"for", lookVisible, "err", err)
	}
}

// DeadLetters lists the dead letters of the queue; see [driver.DeadLetterQueue].
func (q *Queue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	if q.dlq == nil {
		return nil, q.noDeadLetters()
	}
	return q.dlq.DeadLetters(ctx, limit)
}

// DeadLetter returns one dead letter; ok is false if there is none.
func (q *Queue) DeadLetter(ctx context.Context, id string) (driver.DeadLetter, bool, error) {
	if q.dlq == nil {
		return driver.DeadLetter{}, false, q.noDeadLetters()
	}
	return q.dlq.DeadLetter(ctx, id)
}

// PutDeadLetter publishes a dead letter without a delivery. Putting the same ID twice makes one dead letter.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if q.dlq == nil {
		return q.noDeadLetters()
	}
	return q.dlq.PutDeadLetter(ctx, l)
}

// DeleteDeadLetter removes a dead letter. A missing one is no error.
func (q *Queue) DeleteDeadLetter(ctx context.Context, id string) error {
	if q.dlq == nil {
		return q.noDeadLetters()
	}
	return q.dlq.DeleteDeadLetter(ctx, id)
}

func (q *Queue) noDeadLetters() error {
	return fmt.Errorf("sqs: queue %q has neither a redrive policy nor Options.DeadLetterQueue: %w", q.name, driver.ErrUnsupported)
}
