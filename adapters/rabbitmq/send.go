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
	slots chan struct{} // of those that publish

	now      sync.Mutex // guards what follows
	free     []*confirming
	declared map[time.Duration]bool
}

// confirming is a channel in confirm mode. One publish at a time has it.
type confirming struct {
	*amqp.Channel
	returns chan amqp.Return
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

// publish sends messages, at most maxOutstanding ahead of their confirmations, and waits for all of these.
func (p *publisher) publish(ctx context.Context, q *Queue, ms []outgoing) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.slots }()
	for i := range ms {
		if err := p.declare(ctx, q, ms[i].to); err != nil {
			return err
		}
	}
	ch, err := p.take()
	if err != nil {
		return err
	}
	returned, waiting := 0, []*amqp.DeferredConfirmation(nil)
	for i := 0; (i < len(ms) || len(waiting) > 0) && err == nil; i++ {
		if i < len(ms) {
			to := q.name
			if ms[i].to > 0 {
				to = q.delayQueue(ms[i].to)
			}
			var c *amqp.DeferredConfirmation
			if err = p.writable(ctx); err == nil {
				c, err = ch.PublishWithDeferredConfirm("", to, true, false, ms[i].msg)
			}
			waiting = append(waiting, c)
		}
		if err == nil && (i >= len(ms) || len(waiting) >= maxOutstanding) {
			err, waiting = confirmed(ctx, waiting[0]), waiting[1:]
			for ; len(ch.returns) > 0; returned++ { // the server returns a message before it confirms it
				<-ch.returns
			}
		}
	}
	if err != nil {
		return errors.Join(err, ch.Close())
	}
	p.now.Lock()
	defer p.now.Unlock()
	p.free = append(p.free, ch)
	if returned > 0 {
		p.declared = nil
		return &amqp.Error{Code: amqp.NotFound, Reason: fmt.Sprintf("the server returned %d messages that no queue takes", returned)}
	}
	return nil
}

// take returns a channel that nobody else uses.
func (p *publisher) take() (*confirming, error) {
	p.now.Lock()
	for n := len(p.free); n > 0; n-- {
		ch := p.free[n-1]
		if p.free = p.free[:n-1]; !ch.IsClosed() {
			p.now.Unlock()
			return ch, nil
		}
	}
	p.now.Unlock()
	ch, err := p.channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, errors.Join(err, ch.Close())
	}
	return &confirming{ch, ch.NotifyReturn(make(chan amqp.Return, 2*maxOutstanding))}, nil
}

// confirmed waits for a confirmation.
func confirmed(ctx context.Context, c *amqp.DeferredConfirmation) error {
	select {
	case <-c.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	if !c.Acked() {
		return errors.New("the server did not confirm a message: it refused it (the queue is full, or the message too large), or the connection ended")
	}
	return nil
}

// declare declares a delay queue (0 = none), once. It locks nothing meanwhile, so that other Sends go on.
func (p *publisher) declare(ctx context.Context, q *Queue, bucket time.Duration) error {
	p.now.Lock()
	declared := bucket == 0 || p.declared[bucket]
	p.now.Unlock()
	if declared {
		return nil
	}
	_, err := p.get()
	if err == nil {
		err = p.writable(ctx) // a server that reads nothing does not respond either
	}
	if err == nil {
		err = q.declareDelay(ctx, &p.link, bucket)
	}
	if err != nil {
		return fmt.Errorf("declare the delay queue %s: %w", q.delayQueue(bucket), err)
	}
	p.now.Lock()
	defer p.now.Unlock()
	if p.declared == nil {
		p.declared = map[time.Duration]bool{}
	}
	p.declared[bucket] = true
	return nil
}
