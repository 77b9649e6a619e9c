package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

const (
	// lookAgain is the pause after a receive that the server ended at once without a message.
	lookAgain = 50 * time.Millisecond
	// lateMessages is how long a receive whose ctx has ended waits for what is on its way.
	lateMessages = time.Second
)

// receipt is a delivery's handle: its address is the driver.Delivery's Receipt.
type receipt struct {
	q     *Queue
	reply string
	id    string // the message's, for the log
	redeliver.Receipt
}

// request is one request of a pull consumer for messages. With NoWait and Expires the server waits for the first message,
// and ends the request when it has no more at that moment.
type request struct {
	Batch   int           `json:"batch"`
	NoWait  bool          `json:"no_wait"`
	Expires time.Duration `json:"expires"`
}

// Receive delivers up to max messages. It waits for the first for Options.Wait, then returns none.
//
// A delivery is this consumer's until AckWait has passed since the return of Receive, less a guard (see
// [redeliver.Deadline]).
//
// A message has the ID of the header Semel-Id, else that of Nats-Msg-Id, else nats|STREAM|CREATED|SEQUENCE, where CREATED is
// when the stream was made: one that is made anew numbers its messages from 1 again. Its subject is the header Nats-Subject.
//
// When ctx ends, the request is taken back and what the server had sent before is returned. About once a minute Receive reads
// the settings of the consumer again, and returns an error while they are not acceptable.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("nats: receive from %s: max is %d, must be at least 1", q.name(), limit)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	c := &q.is.Load().consumer
	wait := q.o.Wait
	if c.MaxRequestExpires > 0 {
		wait = min(wait, c.MaxRequestExpires)
	}
	if c.MaxRequestBatch > 0 {
		limit = min(limit, c.MaxRequestBatch)
	}
	sent := q.o.clock()
	msgs, err := q.pull(ctx, limit, wait)
	if len(msgs) > 0 { // whatever ended the request
		return q.accept(msgs, redeliver.Deadline(sent, q.o.clock(), wait, c.AckWait)), nil
	}
	if err == nil && q.o.clock().Sub(sent) < min(wait, lookAgain) {
		_ = redeliver.Wait(ctx, lookAgain, nil)
	}
	return nil, err
}

// pull asks for messages and takes what comes until the request ends. The client's Fetch drops messages that arrive after ctx
// has ended; they would be hidden until AckWait has passed.
func (q *Queue) pull(ctx context.Context, n int, wait time.Duration) (msgs []*nats.Msg, err error) {
	in := make(chan *nats.Msg, n+16) // what does not fit is dropped
	inbox := q.nc.NewInbox()
	sub, err := q.nc.ChanSubscribe(inbox, in)
	if err != nil {
		return nil, q.explain("receive from", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	text, _ := json.Marshal(request{Batch: n, NoWait: true, Expires: wait}) // never fails
	if err := q.nc.PublishRequest(q.api+"CONSUMER.MSG.NEXT."+q.stream+"."+q.o.Consumer, inbox, text); err != nil {
		return nil, q.explain("receive from", err)
	}
	silence := time.NewTimer(wait + min(q.o.CallTimeout, 2*time.Second))
	defer silence.Stop()
	for len(msgs) < n {
		select {
		case m := <-in:
			if m.Reply == "" {
				return msgs, q.ended(m)
			}
			msgs = append(msgs, m)
			continue
		case <-silence.C:
			err = fmt.Errorf("nats: receive from %s: the server %s is silent: connection %v", q.name(),
				q.nc.ConnectedUrlRedacted(), q.nc.Status())
		case <-ctx.Done():
			err = ctx.Err()
		}
		// Without interest in its inbox the server delivers nothing more to the request. What was delivered before has arrived
		// when the server responds to the flush.
		late, cancel := context.WithTimeout(context.Background(), lateMessages)
		defer cancel()
		if sub.Drain() == nil {
			_ = q.nc.FlushWithContext(late)
		}
		for len(in) > 0 {
			if m := <-in; m.Reply != "" {
				msgs = append(msgs, m)
			}
		}
		return msgs, err
	}
	return msgs, nil
}

// ended is why the server ended a request; nil: it has no more messages for now.
func (q *Queue) ended(m *nats.Msg) error {
	status, why := m.Header.Get("Status"), m.Header.Get("Description")
	if status == "404" || status == "408" || why == "Batch Completed" {
		return nil
	}
	is := *q.is.Load()
	is.read = time.Time{} // the next receive finds out whether stream or consumer are missing
	q.is.Store(&is)
	return q.explain("receive from", fmt.Errorf("the server responded %s %s", status, cmp.Or(why, "nobody serves it")))
}

// accept makes deliveries of messages. Those that are not due are put off.
func (q *Queue) accept(msgs []*nats.Msg, until time.Time) []driver.Delivery {
	now := q.o.clock()
	if !now.Before(until) {
		q.o.Logger.Warn("messages came when their AckWait had passed: this machine stood still, or the call took very long",
			"queue", q.name(), "messages", len(msgs))
		return nil
	}
	out := make([]driver.Delivery, 0, len(msgs))
	var early []change
	for _, m := range msgs {
		meta, err := m.Metadata()
		if err != nil {
			q.o.Logger.Error("a message is no JetStream message", "queue", q.name(), "reply", m.Reply, "err", err)
			continue
		}
		rc := &receipt{q: q, reply: m.Reply, Receipt: redeliver.NewReceipt(until)}
		msg, due := q.unpack(m, meta.Timestamp, meta.Sequence.Stream)
		rc.id = msg.ID
		if due.After(time.Now()) {
			early = append(early, settlement(rc, 0, driver.Defer, time.Until(due)))
			continue
		}
		out = append(out, driver.Delivery{Message: msg, Receipt: rc, Count: int(meta.NumDelivered), Visible: until.Sub(now)})
	}
	if len(early) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), q.o.CallTimeout)
		defer cancel()
		if err := q.carryOut(ctx, early); err != nil { // they come again when AckWait has passed, and are looked at again
			q.o.Logger.Warn("messages that are not due could not be put off", "queue", q.name(), "messages", len(early), "err", err)
		}
	}
	return out
}
