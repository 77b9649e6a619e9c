package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Settle ends deliveries. Acks and returned messages are sent, and a request behind them gets its response when the server has
// read them. Without that they are Unknown. Deliveries of a channel that has ended are Lost.
//
// A Retry or Defer with a delay keeps the message here, or moves it to a delay queue (see the package's text): its copy is
// confirmed before it is acked, so a crash in between leaves both.
func (q *Queue) Settle(ctx context.Context, ss ...driver.Settlement) ([]driver.Outcome, error) {
	for i := range ss {
		if err := q.check(&ss[i]); err != nil {
			return nil, fmt.Errorf("rabbitmq: settle in queue %q: item %d: %w", q.name, i, err)
		}
	}
	out := make([]driver.Outcome, len(ss))
	if err := ctx.Err(); err != nil {
		return out, err
	}
	p := q.plan(ss, out)
	var failed error
	if len(p.copies) > 0 {
		if failed = await(ctx, q.o.CallTimeout, func(ctx context.Context) error { return q.out.publish(ctx, q, p.copies) }); failed == nil {
			q.mu.Lock()
			for _, rc := range p.later {
				if rc.copied = true; rc.m.state == pending {
					rc.asked, rc.m.state = driver.Ack+1, sending
					p.of(rc.m.s).acks = append(p.of(rc.m.s).acks, rc.m)
				}
			}
			q.mu.Unlock()
		}
	}
	var errs []error
	ended := map[*session]bool{}
	for s, b := range p.batches { // each is sent, also when another one fails: its items are marked as sent
		if err := await(ctx, q.o.CallTimeout, func(context.Context) error {
			if err := q.write(s, b.acks, b.nacks); err != nil {
				return err
			}
			return s.barrier(q.o.Prefetch)
		}); err != nil {
			ended[s] = true
			errs = append(errs, q.explain("settle in", err))
		}
	}
	for _, i := range p.asked {
		if rc := ss[i].Receipt.(*receipt); !ended[rc.m.s] && (failed == nil || !slices.Contains(p.later, rc)) {
			rc.Receipt.Settle(ss[i].Action)
			out[i] = driver.Applied
		}
	}
	if failed != nil {
		errs = append(errs, q.explain("delay messages of", failed))
	}
	return out, errors.Join(errs...)
}

// plan is what Settle has to send.
type plan struct {
	batches map[*session]*batch
	asked   []int      // the items that have an outcome when all is sent
	later   []*receipt // those whose copies are to be published before their ack
	copies  []outgoing
}

// batch is what is sent to one channel.
type batch struct{ acks, nacks []*message }

func (p *plan) of(s *session) *batch {
	if p.batches[s] == nil {
		p.batches[s] = &batch{}
	}
	return p.batches[s]
}

// plan sets the outcomes that are known, holds messages that are due soon, and marks what is going to be sent.
func (q *Queue) plan(ss []driver.Settlement, out []driver.Outcome) (p plan) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.batches = map[*session]*batch{}
	now := time.Now()
	for i := range ss {
		rc, a := ss[i].Receipt.(*receipt), ss[i].Action
		o, known := rc.Check(a, now)
		m := rc.m
		wants := a
		if a != driver.Ack && (ss[i].After > 0 || rc.copied) && rc.asked != a+1 {
			wants = driver.Ack // of the original, when its copy is confirmed
		}
		switch {
		case known:
			out[i] = o
			continue
		case !m.s.alive(), m.holder != rc, m.state != pending && rc.asked != wants+1:
			out[i] = driver.Lost
			continue
		case m.state != pending: // it was sent, and its outcome is unknown
		case a != driver.Ack && ss[i].After > 0 && !rc.copied && q.hold(m, now.Add(ss[i].After), now):
			rc.Receipt.Settle(a)
			out[i] = driver.Applied
			continue
		case a != driver.Ack && ss[i].After > 0 && !rc.copied:
			p.later = append(p.later, rc)
			p.copies = append(p.copies, q.delayed(m, now.Add(ss[i].After)))
		case wants == driver.Ack:
			rc.asked, m.state = driver.Ack+1, sending
			p.of(m.s).acks = append(p.of(m.s).acks, m)
		default:
			rc.asked, m.state = a+1, sending
			p.of(m.s).nacks = append(p.of(m.s).nacks, m)
		}
		p.of(m.s)
		p.asked = append(p.asked, i)
	}
	return p
}

// check refuses settlements that the queue cannot carry out.
func (q *Queue) check(s *driver.Settlement) error {
	if rc, ok := s.Receipt.(*receipt); !ok || rc.q != q {
		return fmt.Errorf("receipt %T is not of this queue", s.Receipt)
	}
	if s.Action == driver.Dead {
		return fmt.Errorf("action dead: a queue of RabbitMQ keeps no dead letters, use package deadletter: %w", driver.ErrUnsupported)
	}
	return s.Check()
}

// write sends acks and nacks of deliveries that are marked as sending. Acks of the oldest deliveries are one request: it acks
// all deliveries up to a tag, so each of these is settled already, or one of acks.
func (q *Queue) write(s *session, acks, nacks []*message) error {
	slices.SortFunc(acks, func(a, b *message) int { return int(int64(a.tag) - int64(b.tag)) })
	q.mu.Lock()
	oldest := 0
	for _, m := range s.window {
		if oldest < len(acks) && m == acks[oldest] {
			oldest++
		} else if m.state != sent {
			break
		}
	}
	q.mu.Unlock()
	if oldest > 0 {
		if err := s.ch.Ack(acks[oldest-1].tag, true); err != nil {
			return err
		}
	}
	for _, m := range acks[oldest:] {
		if err := s.ch.Ack(m.tag, false); err != nil {
			return err
		}
	}
	for _, m := range nacks {
		if err := s.ch.Nack(m.tag, false, true); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range slices.Concat(acks, nacks) {
		m.state = sent
	}
	s.window = slices.DeleteFunc(s.window, func(m *message) bool { return m.state == sent })
	return nil
}

// barrier waits until the server has read what was sent. Its request sets the prefetch that the channel has.
func (s *session) barrier(prefetch int) error {
	s.rpc.Lock()
	defer s.rpc.Unlock()
	return s.ch.Qos(prefetch, 0, false)
}

// take marks all deliveries that are not settled as being acked. It needs the lock of the queue.
func (s *session) take() (all []*message) {
	for _, m := range s.window {
		if m.state == pending {
			m.state, m.holder = sending, nil
			all = append(all, m)
		}
	}
	return all
}
