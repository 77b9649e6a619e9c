package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// parallel is how many dead letters are written at once.
const parallel = 8

// change is what is published to the reply subject of one delivery.
type change struct {
	rc      *receipt
	at      int // its place in the outcomes
	action  driver.Action
	after   time.Duration
	extends bool
}

func (c *change) payload() []byte {
	switch {
	case c.extends:
		return []byte("+WPI")
	case c.action == driver.Ack, c.action == driver.Dead:
		return []byte("+ACK")
	case c.after <= 0:
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, c.after.Nanoseconds())
}

// Settle ends deliveries. Ack is always sent: the record has ended, whoever holds the message. Retry and Defer are sent only
// while the delivery is this consumer's by its own clock; past that they are Lost without a call, because the server would put
// off the delivery of another consumer. Dead writes the dead letter first and acknowledges the message then.
//
// The settlements of one call are confirmed together: the server handles them in order, and confirms the last. If the
// connection was made anew in between, all are Unknown.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nats: settle in %s: %w", q.name(), err)
	}
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("nats: settle in %s: item %d: %w", q.name(), i, err)
		}
	}
	out := make([]driver.Outcome, len(s))
	failed, dead := q.putDeadLetters(ctx, s)
	var cs []change
	now := q.o.clock()
	for i := range s {
		rc := s[i].Receipt.(*receipt)
		if o, known := rc.Check(s[i].Action, now); known {
			if out[i] = o; o == driver.Lost {
				q.o.Logger.Warn("settle_stale", "queue", q.name(), "message_id", rc.id, "action", s[i].Action.String())
			}
			continue
		}
		if !failed[i] {
			cs = append(cs, change{rc: rc, at: i, action: s[i].Action, after: s[i].After})
		}
	}
	err := q.carryOut(ctx, cs)
	for _, c := range cs {
		if err == nil {
			out[c.at] = driver.Applied
		}
	}
	q.closeDeadLetters(ctx, s)
	if err := errors.Join(dead, err); err != nil {
		return out, fmt.Errorf("nats: settle in %s: %w", q.name(), err)
	}
	return out, nil
}

// check refuses settlements that no queue could carry out.
func (q *Queue) check(s *driver.Settlement) error {
	if rc, ok := s.Receipt.(*receipt); !ok || rc.q != q {
		return fmt.Errorf("receipt %T is not of this queue", s.Receipt)
	}
	switch {
	case s.Action > driver.Dead:
		return fmt.Errorf("action %d is unknown", s.Action)
	case s.Action != driver.Dead:
		return nil
	case q.box == nil:
		return fmt.Errorf("action dead: there is no bucket %q for dead letters (semel queue create makes it): %w", q.o.Bucket, driver.ErrUnsupported)
	case s.DeadLetter == nil || s.DeadLetter.ID == "":
		return errors.New("action dead needs a dead letter with an ID")
	}
	return nil
}

// Extend keeps deliveries from others for AckWait from now; visible is not asked for, because the server knows no other time.
// The server confirms the extension of an expired delivery as well, so this consumer's clock decides.
func (q *Queue) Extend(ctx context.Context, _ time.Duration, receipts ...any) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nats: extend in %s: %w", q.name(), err)
	}
	out := make([]driver.Outcome, len(receipts))
	now := q.o.clock()
	var cs []change
	for i, r := range receipts {
		rc, ok := r.(*receipt)
		if !ok || rc.q != q {
			return nil, fmt.Errorf("nats: extend in %s: item %d: receipt %T is not of this queue", q.name(), i, r)
		}
		if out[i] = driver.Lost; rc.Held(now) {
			out[i] = driver.Unknown
			cs = append(cs, change{rc: rc, at: i, extends: true})
		}
	}
	if err := q.carryOut(ctx, cs); err != nil {
		return out, fmt.Errorf("nats: extend in %s: %w", q.name(), err)
	}
	back, until := q.o.clock(), now.Add(q.now().consumer.AckWait)
	for _, c := range cs {
		if out[c.at] = driver.Lost; c.rc.Extend(until, back) {
			out[c.at] = driver.Applied
		}
	}
	return out, nil
}

// carryOut publishes changes and awaits the confirmation of the last: messages of one connection arrive in order. Settled
// receipts remember it.
func (q *Queue) carryOut(ctx context.Context, cs []change) (err error) {
	if len(cs) == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	sent, connections := q.o.clock(), q.nc.Stats().Reconnects
	last := len(cs) - 1
	for i := range cs[:last] {
		if err = q.nc.Publish(cs[i].rc.reply, cs[i].payload()); err != nil {
			break
		}
	}
	if err == nil {
		_, err = q.nc.RequestWithContext(call, cs[last].rc.reply, cs[last].payload())
	}
	if err == nil && q.nc.Stats().Reconnects != connections {
		err = errors.New("the connection was made anew, and some of it may be lost")
	}
	for _, c := range cs {
		switch {
		case err == nil && !c.extends:
			c.rc.Settle(c.action)
		case err != nil && c.extends:
			c.rc.Shorten(sent.Add(q.now().consumer.AckWait))
		case err != nil && c.action != driver.Ack && c.action != driver.Dead:
			c.rc.Shorten(sent.Add(c.after))
		}
	}
	if err != nil {
		return explain(q.nc, fmt.Sprintf("%d settlements of consumer %q", len(cs), q.o.Consumer), err)
	}
	return nil
}

// putDeadLetters writes the dead letters of a call, each once for a delivery. failed are those that it could not write.
func (q *Queue) putDeadLetters(ctx context.Context, s []driver.Settlement) (failed map[int]bool, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, parallel)
	failed = map[int]bool{}
	for i := range s {
		rc := s[i].Receipt.(*receipt)
		if s[i].Action != driver.Dead || rc.DeadLetter() == s[i].DeadLetter.ID {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			e := q.box.PutDeadLetter(ctx, *s[i].DeadLetter)
			if e == nil {
				rc.SetDeadLetter(s[i].DeadLetter.ID)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			failed[i] = true
			err = errors.Join(err, fmt.Errorf("put dead letter %s: %w", s[i].DeadLetter.ID, e))
		})
	}
	wg.Wait()
	return failed, err
}

// closeDeadLetters removes the dead letters of records that were completed after all. It is best effort.
func (q *Queue) closeDeadLetters(ctx context.Context, s []driver.Settlement) {
	for i := range s {
		if s[i].Close == "" || q.box == nil {
			continue
		}
		if err := q.box.DeleteDeadLetter(ctx, s[i].Close); err != nil {
			q.o.Logger.Warn("the dead letter of a completed record could not be removed", "queue", q.name(), "dead_letter", s[i].Close, "err", err)
		}
	}
}
