package redeliver

import (
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// slack is how much longer than its wait a receive may take before the time of the delivery is in doubt.
const slack = 2 * time.Second

// Deadline returns the time until which deliveries of one receive certainly belong to this consumer. The receive was sent at
// sent, could wait for messages for wait, and returned at back. visible is how long the broker keeps a delivery from others.
// The broker counts it from some moment between sent and back. A guard of a tenth of visible, at most a second, covers the
// transfer of the response. If the receive took much longer than its wait, the process was suspended (a machine that slept),
// and the deadline is counted from sent.
//
// All times must be of one clock, which should be monotonic.
func Deadline(sent, back time.Time, wait, visible time.Duration) time.Time {
	if back.Sub(sent) > wait+slack {
		return sent.Add(visible)
	}
	return back.Add(visible - min(visible/10, time.Second))
}

// Receipt is the state of one delivery of a broker that does not fence: there the receipt of an expired delivery still works,
// and changes the delivery of the consumer that now holds the message. The adapter therefore checks Receipt before it calls
// the broker: past the deadline a Retry, a Defer or an extension is Lost without a call. An Ack or a Dead is always sent,
// because the record of its message has ended.
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

// Check returns the outcome of a settlement if it is known without a call to the broker. The action that settled the receipt
// is Applied, any other one is Lost. A Retry or Defer past the deadline is Lost. Otherwise known is false: call the broker.
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

// Held reports whether the delivery may be extended: it is not settled and its deadline has not passed.
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

// Extend moves the deadline to until, for an extension that the broker confirmed at back. A broker also confirms an extension
// that came too late, and that did nothing or changed the delivery of another consumer. So the extension counts only if the
// confirmation came before the old deadline. Otherwise Extend changes nothing and returns false: the delivery is Lost.
func (r *Receipt) Extend(until, back time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !back.Before(r.until) {
		return false
	}
	r.until = until
	return true
}

// Shorten moves the deadline to until if that is earlier, for a Retry, Defer or extension without a response: it may have been
// applied, and the message may be visible to others from then on.
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

// DeadLetter returns the id of the dead letter that was written for the delivery, or "". A repeated Dead does not write it
// again.
func (r *Receipt) DeadLetter() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deadLetter
}
