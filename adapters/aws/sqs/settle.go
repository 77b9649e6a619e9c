package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
)

// parallel is the number of concurrent calls of one Settle, Extend or Send.
const parallel = 8

// Settle ends deliveries. Ack is always sent: the record has ended, whoever holds the message. Retry and Defer are sent only
// while the delivery is ours by our own clock. Otherwise they return Lost, because SQS would change the visibility of the
// current holder. If SQS refuses a settlement because of its receipt, it is Lost too, and logged (settle_stale). Repeating
// the action of a spent receipt returns Applied, another action Lost.
//
// Retry and Defer count in whole seconds, rounded up, within the 12 hours for which SQS hides a delivery at most. Dead
// writes the dead letter first and then deletes the message. Settlement.Close follows the settlement, whatever its outcome,
// and is best effort: it takes one look at the dead-letter queue per call, none if SQS counts no dead letters.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sqs: settle in queue %q: %w", q.name, err)
	}
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("sqs: settle in queue %q: item %d: %w", q.name, i, err)
		}
	}
	out := make([]driver.Outcome, len(s))
	var acks, moves, deads []change
	now := q.o.clock()
	for i := range s {
		rc := s[i].Receipt.(*receipt)
		c := change{rc: rc, at: i, action: s[i].Action}
		if c.action == driver.Dead {
			deads = append(deads, c)
			continue
		}
		switch o, known := rc.Check(c.action, now); {
		case known:
			q.foregone(&c, o, out)
		case c.action == driver.Ack:
			acks = append(acks, c)
		default:
			// A message cannot be hidden for longer than the rest of the 12 hours; then it comes early.
			c.seconds = min(seconds(s[i].After), rc.left(now))
			moves = append(moves, c)
		}
	}
	var errDeads, errAcks, errMoves error
	var wg sync.WaitGroup
	wg.Go(func() { errDeads = q.putDeadLetters(ctx, s, deads, out) })
	wg.Go(func() { errAcks = q.each(acks, func(cs []change) error { return q.remove(ctx, cs, out) }) })
	errMoves = q.each(moves, func(cs []change) error { return q.change(ctx, cs, out) })
	wg.Wait()
	q.closeDeadLetters(ctx, s, out)
	if err := errors.Join(errDeads, errAcks, errMoves); err != nil {
		return out, fmt.Errorf("sqs: settle in queue %q: %w", q.name, err)
	}
	return out, nil
}

// foregone sets the outcome of an action that is known without a call.
func (q *Queue) foregone(c *change, o driver.Outcome, out []driver.Outcome) {
	if out[c.at] = o; o == driver.Lost {
		q.stale(c.rc, c.what(), "its visibility has ended")
	}
}

// check refuses settlements that this queue cannot carry out.
func (q *Queue) check(s *driver.Settlement) error {
	if rc, ok := s.Receipt.(*receipt); !ok || rc.q != q {
		return fmt.Errorf("receipt %T is not of this queue", s.Receipt)
	}
	if s.Action == driver.Dead && q.dlq == nil {
		return fmt.Errorf("action dead: the queue has neither a redrive policy nor Options.DeadLetters: %w", driver.ErrUnsupported)
	}
	return s.Check()
}

// putDeadLetters writes dead letters, a few at once, and deletes the messages of those that are written. A dead letter is
// written once for each delivery, however often the call is repeated.
func (q *Queue) putDeadLetters(ctx context.Context, s []driver.Settlement, deads []change, out []driver.Outcome) error {
	items := make([]driver.Settlement, len(deads))
	for i := range deads {
		items[i] = s[deads[i].at]
		items[i].Close = "" // see closeDeadLetters
	}
	errs := deadletter.Keep(ctx, q.dlq, items)
	var written []change
	now := q.o.clock()
	for i := range deads {
		if errs[i] != nil {
			continue
		}
		if o, known := deads[i].rc.Check(driver.Dead, now); known {
			q.foregone(&deads[i], o, out)
			continue
		}
		written = append(written, deads[i])
	}
	err := q.each(written, func(cs []change) error { return q.remove(ctx, cs, out) })
	return errors.Join(append(errs, err)...)
}

// Extend hides deliveries from others for visible from now, in whole seconds, and for 12 hours in all. SQS reports success
// for a delivery that is no longer ours, so our own clock decides: such a delivery is Lost without a call.
func (q *Queue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sqs: extend in queue %q: %w", q.name, err)
	}
	out := make([]driver.Outcome, len(receipts))
	now := q.o.clock()
	var all []change
	for i, r := range receipts {
		rc, ok := r.(*receipt)
		if !ok || rc.q != q {
			return nil, fmt.Errorf("sqs: extend in queue %q: item %d: receipt %T is not of this queue", q.name, i, r)
		}
		if out[i] = driver.Lost; !rc.Held(now) || rc.left(now) < 1 {
			continue
		}
		out[i] = driver.Unknown
		all = append(all, change{rc: rc, at: i, seconds: min(max(seconds(visible), 1), rc.left(now)), extends: true})
	}
	err := q.each(all, func(cs []change) error { return q.change(ctx, cs, out) })
	if err != nil {
		return out, fmt.Errorf("sqs: extend in queue %q: %w", q.name, err)
	}
	return out, nil
}

// left returns how many seconds of the 12 hours are left; SQS refuses to hide a message for longer.
func (rc *receipt) left(now time.Time) int32 {
	return int32(max(rc.received.Add(maxVisible-2*slack).Sub(now), 0) / time.Second)
}

// change is one entry of a batch.
type change struct {
	rc      *receipt
	at      int // its index in the result
	action  driver.Action
	extends bool
	seconds int32
}

func (c *change) what() string {
	if c.extends {
		return "extend"
	}
	return c.action.String()
}

// each cuts entries into batches and carries out a few at once.
func (q *Queue) each(cs []change, do func([]change) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		slots = make(chan struct{}, parallel)
	)
	for len(cs) > 0 {
		n := min(len(cs), maxBatch)
		batch := cs[:n]
		cs = cs[n:]
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(batch); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remove deletes the messages of a batch.
func (q *Queue) remove(ctx context.Context, cs []change, out []driver.Outcome) error {
	entries := make([]types.DeleteMessageBatchRequestEntry, len(cs))
	for i := range cs {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: entryID(i), ReceiptHandle: &cs[i].rc.handle}
	}
	call, cancel := q.bounded(ctx)
	defer cancel()
	res, err := q.client.DeleteMessageBatch(call, &awssqs.DeleteMessageBatchInput{QueueUrl: &q.url, Entries: entries})
	if err != nil {
		return q.whole("DeleteMessageBatch", cs, out, err)
	}
	for i := range res.Successful {
		if n, ok := entryOf(res.Successful[i].Id, len(cs)); ok {
			cs[n].rc.Settle(cs[n].action)
			out[cs[n].at] = driver.Applied
		}
	}
	return q.entries("DeleteMessageBatch", cs, out, res.Failed)
}

// change sets the visibility of the messages of a batch.
func (q *Queue) change(ctx context.Context, cs []change, out []driver.Outcome) error {
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(cs))
	for i := range cs {
		entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id: entryID(i), ReceiptHandle: &cs[i].rc.handle, VisibilityTimeout: cs[i].seconds,
		}
	}
	call, cancel := q.bounded(ctx)
	defer cancel()
	sent := q.o.clock()
	res, err := q.client.ChangeMessageVisibilityBatch(call,
		&awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.url, Entries: entries}, once)
	if err != nil {
		if !certain(err) {
			for _, c := range cs {
				c.rc.Shorten(sent.Add(time.Duration(c.seconds) * time.Second))
			}
		}
		return q.whole("ChangeMessageVisibilityBatch", cs, out, err)
	}
	back := q.o.clock()
	reported := make([]bool, len(cs))
	for i := range res.Successful {
		n, ok := entryOf(res.Successful[i].Id, len(cs))
		if !ok {
			continue
		}
		reported[n] = true
		c := &cs[n]
		switch until := sent.Add(time.Duration(c.seconds) * time.Second); {
		case !c.extends:
			out[c.at] = driver.Applied
			c.rc.Settle(c.action)
		case c.rc.Extend(until, back):
			out[c.at] = driver.Applied
		default:
			out[c.at] = driver.Lost
			q.stale(c.rc, c.what(), "the response arrived after the visibility had ended")
		}
	}
	for i := range res.Failed {
		if n, ok := entryOf(res.Failed[i].Id, len(cs)); ok {
			reported[n] = res.Failed[i].SenderFault
		}
	}
	for i := range cs {
		if !reported[i] { // an entry that failed because of the service may have been carried out, too
			cs[i].rc.Shorten(sent.Add(time.Duration(cs[i].seconds) * time.Second))
		}
	}
	return q.entries("ChangeMessageVisibilityBatch", cs, out, res.Failed)
}

// changeAll is change for entries whose outcomes are not needed.
func (q *Queue) changeAll(ctx context.Context, cs []change) error {
	out := make([]driver.Outcome, len(cs))
	for i := range cs {
		cs[i].at = i
	}
	return q.each(cs, func(cs []change) error { return q.change(ctx, cs, out) })
}

func entryID(i int) *string { s := strconv.Itoa(i); return &s }

// entryOf returns which of n entries a result is about.
func entryOf(id *string, n int) (int, bool) {
	i, err := strconv.Atoi(deref(id))
	return i, err == nil && i >= 0 && i < n
}

// entries sets the outcomes of failed entries of a batch: Lost because of the receipt, else Unknown.
func (q *Queue) entries(op string, cs []change, out []driver.Outcome, failed []types.BatchResultErrorEntry) error {
	var errs []error
	for i := range failed {
		e := &failed[i]
		n, ok := entryOf(e.Id, len(cs))
		if !ok {
			continue
		}
		c := &cs[n]
		if staleEntry(e) {
			out[c.at] = driver.Lost
			q.stale(c.rc, c.what(), deref(e.Message))
			continue
		}
		errs = append(errs, fmt.Errorf("%s of message %q: %s: %s", op, c.rc.id, deref(e.Code), deref(e.Message)))
	}
	return errors.Join(errs...)
}

// whole sets the outcomes of a call that failed as a whole.
func (q *Queue) whole(op string, cs []change, out []driver.Outcome, err error) error {
	if len(cs) == 1 && staleCode(codeOf(err)) {
		out[cs[0].at] = driver.Lost
		q.stale(cs[0].rc, cs[0].what(), err.Error())
		return nil
	}
	return q.failed(op, err)
}

// stale logs a receipt whose message another worker may hold. That is no error.
func (q *Queue) stale(rc *receipt, action, why string) {
	if rc.received.IsZero() {
		return // a returned dead letter: it is visible anyway
	}
	q.o.Logger.Warn("settle_stale", "queue", q.name, "message_id", rc.id, "action", action, "reason", why)
}
