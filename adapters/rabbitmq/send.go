package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
)

// outgoing is a message on its way to a queue.
type outgoing struct {
	to  time.Duration // the bucket of its delay; 0 = the queue itself
	msg amqp.Publishing
}

// publisher publishes with confirmations. Its link is its own: see [Dial].
type publisher struct {
	link
	slot chan struct{} // whoever publishes

	now      sync.Mutex // guards what follows
	ch       *amqp.Channel
	returns  chan amqp.Return
	returned int // messages that no queue took
	declared map[time.Duration]bool
}

// Send publishes messages as persistent ones, and waits until the server has confirmed all. A message that the server would
// refuse (an ID of more than 255 bytes, headers larger than a frame) is refused before the first is published.
func (q *Queue) Send(ctx context.Context, ms ...driver.Message) error {
	if err := ctx.Err(); err != nil {
		return q.explain("send to", err)
	}
	out := make([]outgoing, len(ms))
	for i := range ms {
		p, err := pack(&ms[i])
		if err != nil {
			return q.explain("send to", fmt.Errorf("message %d: %w", i, err))
		}
		if out[i].msg = p; ms[i].Delay > 0 {
			out[i] = q.later(p, time.Now().Add(ms[i].Delay))
		}
	}
	done := make(chan error, 1)
	go func() { done <- q.out.publish(ctx, q, out) }() // a write can block, and amqp091 knows no context
	select {
	case err := <-done:
		if err != nil {
			return q.explain("send to", err)
		}
		return nil
	case <-ctx.Done():
		return q.explain("send to", ctx.Err())
	}
}

// publish sends messages, at most maxOutstanding ahead of their confirmations, and waits for all of these. A queue that is
// missing returns what is published to it: all that publish at that time fail then.
func (p *publisher) publish(ctx context.Context, q *Queue, ms []outgoing) error {
	select {
	case p.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	ch, before, err := p.ready()
	var waiting []*amqp.DeferredConfirmation
	for i := 0; i < len(ms) && err == nil; i++ {
		to := q.name
		if ms[i].to > 0 {
			to, err = q.delayQueue(ms[i].to), p.declare(q, ms[i].to)
		}
		if err == nil {
			err = p.writable(ctx)
		}
		var c *amqp.DeferredConfirmation
		if err == nil {
			c, err = ch.PublishWithDeferredConfirm("", to, true, false, ms[i].msg)
		}
		if waiting = append(waiting, c); err == nil && len(waiting) >= maxOutstanding {
			err, waiting = p.confirmed(ctx, waiting[0]), waiting[1:]
		}
	}
	<-p.slot
	for i := 0; i < len(waiting) && err == nil; i++ {
		err = p.confirmed(ctx, waiting[i])
	}
	if err != nil {
		return err
	}
	p.now.Lock()
	defer p.now.Unlock()
	p.count()
	if p.returned != before {
		p.declared = nil
		return fmt.Errorf("%w: the server returned a message that no queue takes; Try: declare it with semel queue create", ErrNotFound)
	}
	return nil
}

// ready returns a channel in confirm mode, and how many messages were returned until now. The caller has the slot.
func (p *publisher) ready() (*amqp.Channel, int, error) {
	p.now.Lock()
	defer p.now.Unlock()
	p.count() // also those of a channel that has ended: its publishers may still look
	if p.ch != nil && !p.ch.IsClosed() {
		return p.ch, p.returned, nil
	}
	ch, err := p.channel()
	if err != nil {
		return nil, 0, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, 0, errors.Join(err, ch.Close())
	}
	p.ch, p.returns = ch, ch.NotifyReturn(make(chan amqp.Return, 2*maxOutstanding))
	return ch, p.returned, nil
}

// count counts the messages that the server returned. It returns a message before it confirms it. It needs the lock.
func (p *publisher) count() {
	for {
		select {
		case _, ok := <-p.returns:
			if ok {
				p.returned++
				continue
			}
		default:
		}
		return
	}
}

// confirmed waits for a confirmation. It counts returned messages meanwhile: when nobody takes them, confirmations do not arrive.
func (p *publisher) confirmed(ctx context.Context, c *amqp.DeferredConfirmation) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case <-c.Done():
			waits = false
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		p.now.Lock()
		p.count()
		p.now.Unlock()
	}
	if !c.Acked() {
		return errors.New("the server did not confirm a message: it refused it (the queue is full, or the message too large), or the connection ended")
	}
	return nil
}

// declare declares a delay queue, once for each connection.
func (p *publisher) declare(q *Queue, bucket time.Duration) error {
	p.now.Lock()
	defer p.now.Unlock()
	if p.declared[bucket] {
		return nil
	}
	if err := q.declareDelay(&p.link, bucket); err != nil {
		return fmt.Errorf("declare the delay queue %s: %w", q.delayQueue(bucket), err)
	}
	if p.declared == nil {
		p.declared = map[time.Duration]bool{}
	}
	p.declared[bucket] = true
	return nil
}
