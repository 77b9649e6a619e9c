package sim

import (
	"strconv"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
)

// relayMutant is a known way to get the relaying of an outbox wrong.
type relayMutant uint8

const (
	noRelayMutant relayMutant = iota
	relayCursor
	relayMarkFirst
	relayFreshID
	relayBlindMark
	relayPoisonBlocks
	relayPoisonDropped
	relayGivesUp
	relayEarlyPosition
	relayUncommitted
	relayGroupBlind
	relayMutants
)

// relayMistakes has their names, and the invariants of which each must violate one.
var relayMistakes = []virtual.Mistake{
	noRelayMutant:      {},
	relayCursor:        {Name: "read by a cursor that skips a late commit", Invariants: "I16"},
	relayMarkFirst:     {Name: "marked before it is published", Invariants: "I16"},
	relayFreshID:       {Name: "published again under a fresh id", Invariants: "I16"},
	relayBlindMark:     {Name: "marked without comparing the token", Invariants: "I7"},
	relayPoisonBlocks:  {Name: "poison row blocks its partition forever", Invariants: "I17"},
	relayPoisonDropped: {Name: "poison row is dropped", Invariants: "I16"},
	relayGivesUp:       {Name: "parked at its first refusal", Invariants: "I16"},
	relayEarlyPosition: {Name: "position drawn before the partition's lock", Invariants: "I22"},
	relayUncommitted:   {Name: "published before its commit", Invariants: "I16"},
	relayGroupBlind:    {Name: "one partition published side by side", Invariants: "I22"},
}

// rewrite is where mutants rewrite requests.
func (w *relaySimulation) rewrite(c *relayCall) {
	switch {
	case w.mut == relayMarkFirst && c.what == opSend:
		for i := range c.messages {
			if r := w.byID(c.messages[i].ID); r != nil && r.state == rowThere && r.holder == c.p.id {
				r.state = rowSent
			}
		}
	case w.mut == relayFreshID && c.what == opSend:
		for i := range c.messages {
			if r := w.byID(c.messages[i].ID); r != nil && r.count > 1 {
				m := &c.messages[i]
				m.ID += "-" + strconv.Itoa(r.count)
				m.Headers = map[string]string{"message-id": m.ID}
			}
		}
	case c.what == opSettle:
		for i := range c.settle {
			s := &c.settle[i]
			switch {
			case w.mut == relayPoisonBlocks && s.Action == driver.Dead:
				s.Action = driver.Retry
			case w.mut == relayPoisonDropped && s.Action == driver.Dead:
				s.Action = driver.Ack
			case w.mut == relayGivesUp && s.Action == driver.Retry:
				r := s.Receipt.(*rowReceipt).r
				s.Action, s.DeadLetter = driver.Dead, &driver.DeadLetter{ID: r.id, Message: driver.Message{ID: r.id}}
			}
		}
	}
}

// checkPublished is the sender's side of I16 and I22.
func (w *relaySimulation) checkPublished(c *relayCall, m *driver.Message, accepted bool) {
	r := w.byID(m.ID)
	switch {
	case r == nil || r.state == rowOpen || r.state == rowRolledBack:
		w.Fail("I16", -1, "%s was published, and no transaction that emitted it has committed", m.ID)
		return
	case idOf(m) != r.id:
		w.Fail("I16", -1, "%s was published with the id %q in its header", r.id, idOf(m))
		return
	}
	w.Log(-1, "relay %d sends %s: accepted %v, error %v", c.p.id, r.id, accepted, c.err)
	if !accepted {
		return
	}
	if r.published++; r.published > 1 || r.group == 0 {
		return
	}
	// A copy that arrives after its relay lost the message, or gave it up, has no order anymore.
	if r.state != rowThere || r.holder != c.p.id || r.hand == 0 || r.until <= w.Now {
		return
	}
	for _, x := range w.order {
		if x.group == r.group && x.position > r.position && x.published > 0 {
			w.Fail("I22", -1, "%s is published for the first time after %s, which is behind it in partition %d", r.id, x.id, r.group)
		}
	}
}

// checkMark is I7, and what a dead letter needs. It is called before the row is changed.
func (w *relaySimulation) checkMark(c *relayCall, rec *rowReceipt, s *driver.Settlement) {
	r := rec.r
	if r.hand != rec.hand {
		w.Fail("I7", -1, "relay %d marked %s by hand-out %d, and hand-out %d has it", c.p.id, r.id, rec.hand, r.hand)
	}
	if s.Action != driver.Dead {
		return
	}
	if s.DeadLetter == nil || s.DeadLetter.Message.ID != r.id {
		w.Fail("I16", -1, "%s was set aside without its dead letter", r.id)
	}
	if r.refused < w.sc.maxAttempts {
		w.Fail("I16", -1, "%s was set aside after %d refusals, %d are allowed", r.id, r.refused, w.sc.maxAttempts)
	}
}

// finally checks what must hold in the end.
func (w *relaySimulation) finally() {
	for _, r := range w.rows {
		if r.state == rowSent && r.published == 0 {
			w.Fail("I16", -1, "%s committed, and was neither published nor parked", r.id)
		}
	}
}

// unsettled says what did not come to an end.
func (w *relaySimulation) unsettled() {
	for _, r := range w.rows {
		if r.state == rowThere && r.count == 0 {
			w.Fail("I16", -1, "%s committed, and no relay ever got it", r.id)
		}
	}
	for _, r := range w.rows {
		if r.state == rowThere {
			w.Fail("I17", -1, "%s is still in the outbox, %v after the last fault; it was refused %d times", r.id, w.Now-w.sc.quiet, r.refused)
		}
	}
	w.Fail("I17", -1, "the simulation does not end")
}

// count adds a finished simulation to the figures.
func (w *relaySimulation) count() {
	for _, r := range w.rows {
		if r.state >= rowThere {
			w.stats.Emitted++
		}
		w.stats.Published += min(1, r.published)
		w.stats.Copies += max(0, r.published-1)
		if r.state == rowParked {
			w.stats.Parked++
		}
	}
}
