package redeliver

import (
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// slack is how much longer than its wait a receive may take before the time of the hand-out is in doubt.
const slack = 2 * time.Second

// Deadline returns until when deliveries that one receive returned are certainly this consumer's. The receive was sent at
// sent, could wait for messages for wait, and returned at back; visible is how long the broker keeps a delivery from others.
// The broker counts visible from some moment between sent and back. A guard of a tenth of visible, at most a second, covers
// the way of the response. A receive that took much longer than its wait was stopped on the way (a machine that slept), and
// only what follows from the sending is certain then.
//
// All times are of one clock, which should be monotonic.
func Deadline(sent, back time.Time, wait, visible time.Duration) time.Time {
	if back.Sub(sent) > wait+slack {
		return sent.Add(visible)
	}
	return back.Add(visible - min(visible/10, time.Second))
}

// Receipt is the state of one delivery of a broker that does not fence: the receipt of an expired delivery still works
// there, and changes the delivery of the consumer that holds the message now. So the adapter asks Receipt before it calls
// the broker: past the deadline a Retry, a Defer and an extension are Lost without a call. An Ack or a Dead is always sent,
// because the record of its message has ended, whoever holds the message.
//
// All methods may be called concurrently. The zero Receipt has expired.
type Receipt struct {
	mu         sync.Mutex
	until      time.Time
	settled    driver.Action // from 1
	deadLetter string
}

// NewReceipt returns the receipt of a delivery that is this consumer's until the given time (see [Deadline]).
func NewReceipt(until time.Time) Receipt { return Receipt{until: until} }

// Check returns what is known about a settlement without a call to the broker. The action that the receipt was settled with
// is Applied, another one is Lost. A Retry or Defer past the deadline is Lost. Otherwise known is false: call the broker.
func (r *Receipt) Check(a driver.Action, now time.Time) (o driver.Outcome, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.settled == a+1:
		return driver.Applied, true
	case r.settled != 0:
		return driver.Lost, true
	case (a == driver.Retry || a == driver.Defer) && !now.Before(r.until):
		return driver.Lost, true
	}
	return driver.Unknown, false
}

// Held reports that the delivery is not settled and its deadline has not passed: it may be extended.
func (r *Receipt) Held(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled == 0 && now.Before(r.until)
}

// Settle remembers that the broker confirmed an action, so that repeating it is Applied without a call.
func (r *Receipt) Settle(a driver.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled = a + 1
}

// Extend moves the deadline to until, for an extension that was confirmed at back. A broker also confirms an extension that
// came too late, and did nothing or changed the delivery of another consumer. So it counts only if the confirmation came
// before the old deadline. Else Extend changes nothing and returns false: the delivery is Lost.
func (r *Receipt) Extend(until, back time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !back.Before(r.until) {
		return false
	}
	r.until = until
	return true
}

// Shorten moves the deadline to until if that is earlier, for a Retry, Defer or extension without a response: it may
// have been applied, and the message may be visible to others from then on.
func (r *Receipt) Shorten(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until.Before(r.until) {
		r.until = until
	}
}

// SetDeadLetter remembers the id of the dead letter that was written for the delivery.
func (r *Receipt) SetDeadLetter(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadLetter = id
}

// DeadLetter returns the id of the dead letter that was written for the delivery, "" if there is none: a Dead that is
// repeated does not write it again.
func (r *Receipt) DeadLetter() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deadLetter
}
