package machine

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file has the two ends that a configuration gives from outside: of messages that grew too old before anybody began
// with them, and of leases that nobody could renew any more.

// tooOld tells that a message waited longer than it may before its key was begun: for longer than MaxAge. What was begun
// goes on, however old it is: an earlier run, deferred or not (see driver.Record.Attempt), a doubt, a key that a person
// reopened. So does the message that a person sent again.
func (m *Machine) tooOld(it *Item) bool {
	if m.cfg.MaxAge <= 0 || it.Age == UnknownAge || driver.IsRedrive(it.ID) {
		return false
	}
	g := &it.grant
	if it.Version != "" && g.Redelivery {
		return false // another version ran meanwhile, and its runs are what the record counts
	}
	if g.Attempt > 1 || g.Failures > 0 || g.Takeovers > 0 || g.Unknown || it.hold.Generation > 1 {
		return false
	}
	return m.age(it) > m.cfg.MaxAge
}

func (m *Machine) oldReason(it *Item) string {
	return fmt.Sprintf("too old: sent %s ago, more than %s, and never begun", m.age(it).Round(time.Millisecond), m.cfg.MaxAge)
}

// lease is how long a claim that is made now lasts: no longer than Until, when this process ends or stands still and could
// not renew it.
func (m *Machine) lease() time.Duration {
	if m.cfg.Until == 0 {
		return m.cfg.Lease
	}
	return max(min(m.cfg.Lease, m.cfg.Until-m.now), time.Millisecond)
}
