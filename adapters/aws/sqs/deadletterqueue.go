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

// DeadLetterQueue keeps dead letters in a queue of SQS: the one that the redrive policy names, or any other. It holds three kinds
// of messages:
//
//   - the dead letters that were put: copies of their messages with one attribute more, so that other tools, and a redrive by
//     the provider, find the message as it was, with its ID;
//   - pieces of dead letters that do not fit into one message;
//   - messages that the provider moved here by its redrive policy. They are dead letters of kind failed whose key nobody knows.
//     Where their key was their ID, it travels in the header idempotency-key from now on.
//
// SQS shows messages only to who receives them. So looking at one dead letter looks at all of them, hides them from others
// for the while, and gives them back. SQS forgets a dead letter when the queue's retention ends; a box without that limit is
// dynamodb.DeadLetters.
type DeadLetterQueue struct {
	q *Queue

	// turn lets one look happen at a time: a second one would miss what the first holds. It is no mutex, because a look
	// takes calls over the network, and who waits for it waits no longer than its ctx.
	turn chan struct{}

	mu    sync.Mutex
	known seenBefore
}

const (
	// lookVisible hides dead letters while they are looked at; it ends by itself when a process dies.
	lookVisible = 30 * time.Second
	// lookWait is how long the last receive of a look waits: a short one asks only some of SQS's machines.
	lookWait = 1
	// lookAgain is how often a look is repeated while another process holds dead letters.
	lookAgain = 10
)

// OpenDeadLetters opens a dead-letter queue by its name or URL. Messages that the provider moved there are read with the
// options of the queue that they came from: give the same Unwrap.
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
		// A moved message keeps the time of its sending.
		o.Logger.Warn("the dead-letter queue keeps messages no longer than the queue itself: one that is moved late is dropped at once",
			"queue", of.name, "dead_letters", q.name, "retention", q.is.retention)
	}
	return newDeadLetterQueue(q), nil
}

func newDeadLetterQueue(q *Queue) *DeadLetterQueue {
	q.visible, q.wait = lookVisible, 0
	return &DeadLetterQueue{q: q, turn: make(chan struct{}, 1), known: seenBefore{written: map[string]bool{}}}
}

// held is a dead letter with the handles of all messages that are of it.
type held struct {
	driver.DeadLetter
	whole   bool // false: pieces of it are missing
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

// DeadLetter returns one dead letter; ok is false when there is none.
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

// PutDeadLetter publishes a dead letter that no delivery leads to. The queue may hold several copies of one id; they are one
// dead letter.
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
	b.noteWritten(l.ID)
	if err != nil {
		return fmt.Errorf("put dead letter %s: %w", l.ID, err)
	}
	return nil
}

// DeleteDeadLetter removes a dead letter, all copies of it; one that is not there is no error. What this process saw when it looked
// last is deleted without another look. SQS may answer success and keep a copy that another process has looked at since:
// such a dead letter stays, and as its record has gone on, the next redrive drops it.
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

// look receives everything, deletes the messages of some dead letters, and gives the others back. A look that deletes keeps no
// bodies, and finds no dead letter whole. patience is how often it is repeated while another process holds dead letters.
func (b *DeadLetterQueue) look(ctx context.Context, remove []string, patience int) ([]*held, error) {
	b.beginLook()
	var msgs []types.Message
	whole, err := b.gather(ctx, &msgs, len(remove) > 0, patience)
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
	b.giveBack(ctx, back)
	b.endLook(known, whole && err == nil)
	return all, err
}

// gather receives until nothing comes any more; all tells that no other process holds any. What another holds is waited
// for, for a while.
func (b *DeadLetterQueue) gather(ctx context.Context, msgs *[]types.Message, lean bool, patience int) (all bool, err error) {
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
		// The counts lag behind; a few repetitions are all that they are worth.
		all = s.InFlight <= int64(len(seen))
		if again++; all || again >= patience || b.q.o.deadLetterShort {
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
		if at, ok := seen[id]; ok { // its visibility ended while we looked
			(*msgs)[at] = got[i]
			continue
		}
		seen[id] = len(*msgs)
		*msgs = append(*msgs, got[i])
		n++
	}
	return n, nil
}

// sort makes dead letters of messages, oldest first; of several copies the oldest.
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

// changes are entries for handles of which nothing else is known.
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

// giveBack makes dead letters visible again. It is no error when that fails: they become so by themselves.
func (b *DeadLetterQueue) giveBack(ctx context.Context, handles []string) {
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
	if q.box == nil {
		return nil, q.noDeadLetters()
	}
	return q.box.DeadLetters(ctx, limit)
}

// DeadLetter returns one dead letter; ok is false when there is none.
func (q *Queue) DeadLetter(ctx context.Context, id string) (driver.DeadLetter, bool, error) {
	if q.box == nil {
		return driver.DeadLetter{}, false, q.noDeadLetters()
	}
	return q.box.DeadLetter(ctx, id)
}

// PutDeadLetter publishes a dead letter that no delivery leads to; publishing an id twice is one dead letter.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if q.box == nil {
		return q.noDeadLetters()
	}
	return q.box.PutDeadLetter(ctx, l)
}

// DeleteDeadLetter removes a dead letter; one that is not there is no error.
func (q *Queue) DeleteDeadLetter(ctx context.Context, id string) error {
	if q.box == nil {
		return q.noDeadLetters()
	}
	return q.box.DeleteDeadLetter(ctx, id)
}

func (q *Queue) noDeadLetters() error {
	return fmt.Errorf("sqs: queue %q has neither a redrive policy nor Options.DeadLetterQueue: %w", q.name, driver.ErrUnsupported)
}
