package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// change is what is published to the reply subject of one delivery.
type change struct {
	rc   *receipt
	at   int // its index in the result
	verb string
	// frees is when the server may deliver the message to others, counted from the sending, if it carries the change out.
	frees time.Duration
}

// never is the time after which others get a message that was acknowledged.
const never = time.Duration(1) << 62

func settlement(rc *receipt, at int, a driver.Action, after time.Duration) change {
	switch {
	case a == driver.Ack:
		return change{rc, at, "+ACK", never}
	case after <= 0:
		return change{rc, at, "-NAK", 0}
	}
	return change{rc, at, fmt.Sprintf(`-NAK {"delay": %d}`, after.Nanoseconds()), after}
}

// Settle ends deliveries. Ack is always sent: the record has ended, whoever holds the message. Retry and Defer are sent only
// while the delivery is this consumer's by its own clock; past that they are Lost without a call, because the server would put
// off the delivery of another consumer. It does not support Dead and ignores Close: package
// [github.com/semel-dev/semel/driver/deadletter] carries them out.
//
// The settlements of one call are confirmed together: the server handles them in order, and confirms the last. If the
// connection was made anew in between, all are Unknown.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("nats: settle in %s: item %d: %w", q.name(), i, err)
		}
	}
	out := make([]driver.Outcome, len(s))
	var cs []change
	now := q.o.clock()
	for i := range s {
		rc := s[i].Receipt.(*receipt)
		o, known := rc.Check(s[i].Action, now)
		if out[i] = o; o == driver.Lost {
			q.o.Logger.Warn("settle_stale", "queue", q.name(), "message_id", rc.id, "action", s[i].Action.String())
		}
		if !known {
			cs = append(cs, settlement(rc, i, s[i].Action, s[i].After))
		}
	}
	err := q.carryOut(ctx, cs)
	for _, c := range cs {
		if err == nil {
			c.rc.Receipt.Settle(s[c.at].Action)
			out[c.at] = driver.Applied
		}
	}
	if err != nil {
		return out, fmt.Errorf("nats: settle in %s: %w", q.name(), err)
	}
	return out, nil
}

// check refuses settlements that no queue could carry out.
func (q *Queue) check(s *driver.Settlement) error {
	if rc, ok := s.Receipt.(*receipt); !ok || rc.q != q {
		return fmt.Errorf("receipt %T is not of this queue", s.Receipt)
	}
	if s.Action == driver.Dead {
		return fmt.Errorf("action dead: NATS keeps no dead letters, use package deadletter: %w", driver.ErrUnsupported)
	}
	return s.Check()
}

// Extend keeps deliveries from others for AckWait from now. It ignores visible, because the server knows no other time. The
// server confirms the extension of an expired delivery as well, so this consumer's clock decides.
func (q *Queue) Extend(ctx context.Context, _ time.Duration, receipts ...any) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(receipts))
	now, wait := q.o.clock(), q.is.Load().consumer.AckWait
	var cs []change
	for i, r := range receipts {
		if err := q.check(&driver.Settlement{Receipt: r}); err != nil {
			return nil, fmt.Errorf("nats: extend in %s: item %d: %w", q.name(), i, err)
		}
		if rc := r.(*receipt); rc.Held(now) {
			cs = append(cs, change{rc, i, "+WPI", wait})
		} else {
			out[i] = driver.Lost
		}
	}
	if err := q.carryOut(ctx, cs); err != nil {
		return out, fmt.Errorf("nats: extend in %s: %w", q.name(), err)
	}
	back := q.o.clock()
	for _, c := range cs {
		if out[c.at] = driver.Lost; c.rc.Extend(now.Add(wait), back) {
			out[c.at] = driver.Applied
		}
	}
	return out, nil
}

// carryOut publishes changes and awaits the confirmation of the last: messages of one connection arrive in order. After an
// error the server may have carried out any of them.
func (q *Queue) carryOut(ctx context.Context, cs []change) (err error) {
	if err := ctx.Err(); err != nil || len(cs) == 0 {
		return err
	}
	call, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	sent, connections := q.o.clock(), q.nc.Stats().Reconnects
	last := len(cs) - 1
	for i := 0; i < last && err == nil; i++ {
		err = q.nc.Publish(cs[i].rc.reply, []byte(cs[i].verb))
	}
	if err == nil {
		_, err = q.nc.RequestWithContext(call, cs[last].rc.reply, []byte(cs[last].verb))
	}
	if err == nil && q.nc.Stats().Reconnects != connections {
		err = errors.New("the connection was made anew, and some of it may be lost")
	}
	if err == nil {
		return nil
	}
	for _, c := range cs {
		c.rc.Shorten(sent.Add(c.frees))
	}
	return q.explain(fmt.Sprintf("send %d settlements to", len(cs)), err)
}
