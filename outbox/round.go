package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// fate is what became of a message in a round.
type fate uint8

const (
	unsent fate = iota
	accepted
	refused // and it may have been the way
	faulty  // and it was the message
	lost    // another relay has it now
)

// item is one message in flight.
type item struct {
	driver.Delivery
	to   driver.Sender
	out  driver.Message
	fate fate
	err  error
	// tried: this round had it published, or gave that up.
	tried bool
}

// round is one batch in flight.
type round struct {
	r     *Relay
	items []*item
	hold  *hold
}

// trials is how many messages are tried one by one before nothing is taken to work.
const trials = 3

// manyTroubles is how many are kept before old ones are forgotten.
const manyTroubles = 1000

// round publishes deliveries and settles them.
func (r *Relay) round(ctx context.Context, ds []driver.Delivery) {
	x := &round{r: r}
	for i := range ds {
		x.items = append(x.items, &item{Delivery: ds[i]})
	}
	x.hold = holdAll(ctx, r.time, r.cfg.From, x.items)
	for _, it := range x.items {
		r.prepare(it)
	}
	for wave := x.wave(); len(wave) > 0; wave = x.wave() {
		for _, part := range parts(wave) {
			if ctx.Err() != nil {
				break // the rest is returned
			}
			x.publish(ctx, part)
		}
	}
	x.hold.end()
	x.judge()
	x.settle(ctx)
}

// prepare makes the message that is published: with its id in the header, whatever headers it was emitted with.
func (r *Relay) prepare(it *item) {
	it.to, it.out = r.cfg.To, it.Message
	it.out.Delay = 0
	it.out.Headers = make(map[string]string, len(it.Headers)+1)
	for k, v := range it.Headers {
		if !strings.EqualFold(k, HeaderID) { // copied from the message that was handled: the id of another one
			it.out.Headers[k] = v
		}
	}
	it.out.Headers[HeaderID] = it.ID
	if r.cfg.Route == nil {
		return
	}
	err := guarded(func() (err error) { it.to, err = r.cfg.Route(&it.out); return err })
	if err == nil && it.to == nil {
		err = errors.New("it returned no sender")
	}
	if err != nil {
		it.fate, it.err = faulty, fmt.Errorf("route: %w", err)
		return
	}
	if it.out.Headers == nil {
		it.out.Headers = map[string]string{}
	}
	it.out.ID, it.out.Headers[HeaderID] = it.ID, it.ID
}

// guarded calls a user's function; its panic is an error.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}

// wave is what is published next: of each group the first that this round has not tried, if all before it were accepted.
// A queue that keeps order hands out one message of a group at a time, or several one behind the other
// (driver.QueueFeatures.Runs): what stands behind one that was not accepted is returned.
func (x *round) wave() (wave []*item) {
	stop := map[string]bool{}
	for _, it := range x.items {
		switch {
		case it.Group != "" && stop[it.Group]:
		case it.tried || it.fate != unsent: // Route refused it before it was tried
			stop[it.Group] = it.fate != accepted
		default:
			it.tried, stop[it.Group] = true, true
			wave = append(wave, it)
		}
	}
	return wave
}

// parts are the messages of a wave, by sender, each part in the order of the queue.
func parts(wave []*item) [][]*item {
	var parts [][]*item
	at := map[driver.Sender]int{}
	for _, it := range wave {
		i, ok := at[it.to]
		if !ok {
			i = len(parts)
			at[it.to], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], it)
	}
	return parts
}

// publish sends messages to one sender. A batch that is refused is sent again without the message that the sender named,
// else one by one: a wave has one message of a group, so that order is kept all the same.
func (x *round) publish(ctx context.Context, part []*item) {
	for part = x.held(part); len(part) > 0; part = x.held(part) {
		err := x.send(part)
		var bad *driver.ItemError
		switch {
		case err == nil, x.hold.ctx.Err() != nil: // they may have been accepted, and are published again
			return
		case errors.As(err, &bad) && bad.Index >= 0 && bad.Index < len(part):
			part[bad.Index].fate, part[bad.Index].err = faulty, err
			part = slices.Delete(slices.Clone(part), bad.Index, bad.Index+1)
		case len(part) == 1:
			part[0].fate, part[0].err = refused, err
			return
		default:
			x.oneByOne(ctx, part)
			return
		}
	}
}

func (x *round) oneByOne(ctx context.Context, part []*item) {
	worked, failed := false, 0
	for _, it := range part {
		if ctx.Err() != nil || x.hold.ctx.Err() != nil || !worked && failed == trials {
			return // the rest is returned
		}
		if len(x.held([]*item{it})) == 0 {
			continue
		}
		err := x.send([]*item{it})
		var bad *driver.ItemError
		switch {
		case err == nil:
			worked = true
		case x.hold.ctx.Err() != nil:
		case errors.As(err, &bad):
			it.fate, it.err = faulty, err
		default:
			it.fate, it.err = refused, err
			failed++
		}
	}
}

// held leaves out messages that are not ours anymore.
func (x *round) held(part []*item) []*item {
	return slices.DeleteFunc(slices.Clone(part), func(it *item) bool {
		if !x.hold.has(it) {
			it.fate = lost
		}
		return it.fate == lost
	})
}

// send publishes messages together.
func (x *round) send(part []*item) error {
	ctx, cancel := context.WithTimeout(x.hold.ctx, x.r.cfg.SendTimeout)
	defer cancel()
	ms := make([]driver.Message, len(part))
	for i, it := range part {
		ms[i] = it.out
	}
	err := guarded(func() error { return part[0].to.Send(ctx, ms...) })
	if err != nil {
		return err
	}
	for _, it := range part {
		it.fate = accepted
	}
	return nil
}

// judge distinguishes a message that cannot be published from a sender that is down.
func (x *round) judge() {
	any, way := false, false
	for _, it := range x.items {
		any = any || it.fate == accepted
		way = way || it.fate == refused
	}
	r, now := x.r, x.r.time.Now()
	if any {
		r.worked = now
	}
	r.failing = !any && (r.failing || way)
	if len(r.troubles) > manyTroubles { // some were published by other relays
		maps.DeleteFunc(r.troubles, func(_ string, t *trouble) bool { return now.Sub(t.last) > 10*r.cfg.RetryMax })
	}
	for _, it := range x.items {
		if it.fate != refused && it.fate != faulty {
			continue
		}
		r.counts.refused.Add(1)
		t := r.troubles[it.ID]
		if t == nil {
			t = &trouble{last: now}
			r.troubles[it.ID] = t
		}
		if it.fate == faulty || any || r.worked.After(t.last) {
			t.own++
		}
		t.all++
		t.last = now
	}
}

// settle marks what was published and returns what was not. A relay that no longer holds a message changes nothing.
func (x *round) settle(ctx context.Context) {
	var ss []driver.Settlement
	var of []*item
	for _, it := range slices.Backward(x.items) {
		// The last of a group is returned first: those before it, which are still held, keep others from it.
		if it.fate != lost {
			ss, of = append(ss, x.settlement(it)), append(of, it)
		} else {
			x.r.cfg.Logger.Warn("outbox: lost a message before it was published; whoever has it publishes it",
				"outbox", x.r.name, "id", it.ID)
		}
	}
	if len(ss) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx) // what was published is marked
	for try := 1; ; try++ {
		out, err := x.r.settleOnce(ctx, ss)
		if err == nil && !slices.Contains(out, driver.Unknown) {
			for i, it := range of {
				x.r.note(it, &ss[i], out[i])
			}
			return
		}
		if try == trials {
			// Their visibility ends, and they are published again.
			x.r.cfg.Logger.Warn("outbox: messages could not be marked and will be published again", "outbox", x.r.name,
				"messages", len(ss), "err", err)
			return
		}
		x.r.time.Pause(ctx, time.Duration(try)*100*time.Millisecond)
	}
}

func (r *Relay) settleOnce(ctx context.Context, ss []driver.Settlement) ([]driver.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.SendTimeout)
	defer cancel()
	return r.cfg.From.Settle(ctx, ss...)
}

func (x *round) settlement(it *item) driver.Settlement {
	switch t := x.r.troubles[it.ID]; {
	case it.fate == accepted:
		return driver.Settlement{Receipt: it.Receipt, Action: driver.Ack}
	case it.fate == unsent:
		return driver.Settlement{Receipt: it.Receipt, Action: driver.Defer}
	case t.own >= x.r.cfg.MaxAttempts:
		return driver.Settlement{Receipt: it.Receipt, Action: driver.Dead, DeadLetter: x.r.deadLetter(it, t.own)}
	default:
		return driver.Settlement{Receipt: it.Receipt, Action: driver.Retry, After: x.r.backoff(t.all)}
	}
}

// dead letter is what remains of a message that cannot be published. The time is in its id: a message that is sent again
// from it, and refused again, makes another dead letter.
func (r *Relay) deadLetter(it *item, attempts int) *driver.DeadLetter {
	now := r.time.Now()
	k := driver.Key{Consumer: "outbox " + r.name, Raw: it.ID}
	token := uint64(now.UnixMicro())
	return &driver.DeadLetter{
		ID: driver.DeadLetterID(driver.DeadLetterFailed, k, token, ""), Kind: driver.DeadLetterFailed, Key: k, Token: token,
		Reason: fmt.Sprintf("could not be published: %v", it.err), Attempts: attempts, Message: it.Message,
		FirstReceived: it.SentAt,
	}
}

func (r *Relay) note(it *item, s *driver.Settlement, o driver.Outcome) {
	log := r.cfg.Logger.With("outbox", r.name, "id", it.ID)
	if s.Action == driver.Ack || s.Action == driver.Dead || o == driver.Lost {
		delete(r.troubles, it.ID)
	}
	switch {
	case o == driver.Lost && s.Action == driver.Ack:
		r.counts.again.Add(1)
		log.Warn("outbox: published, but another relay has the message now and publishes it again")
	case o == driver.Lost:
		log.Warn("outbox: another relay has the message now")
	case s.Action == driver.Ack:
		r.counts.published.Add(1)
	case s.Action == driver.Dead:
		r.counts.parked.Add(1)
		log.Error("outbox: message set aside as a dead letter", "dead_letter", s.DeadLetter.ID, "attempts", s.DeadLetter.Attempts, "err", it.err)
	case s.Action == driver.Retry:
		log.Warn("outbox: message refused", "again_after", s.After, "err", it.err)
	}
}
