package sim

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/semel-dev/semel/driver"
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
var relayMistakes = [...]struct{ name, breaks string }{
	noRelayMutant:      {"", ""},
	relayCursor:        {"outbox: read by a cursor that skips a late commit", "I16"},
	relayMarkFirst:     {"outbox: marked before it is published", "I16"},
	relayFreshID:       {"outbox: published again under a fresh id", "I16"},
	relayBlindMark:     {"outbox: marked without comparing the token", "I7"},
	relayPoisonBlocks:  {"outbox: poison row blocks its partition forever", "I17"},
	relayPoisonDropped: {"outbox: poison row is dropped", "I16"},
	relayGivesUp:       {"outbox: parked at its first refusal", "I16"},
	relayEarlyPosition: {"outbox: position drawn before the partition's lock", "I22"},
	relayUncommitted:   {"outbox: published before its commit", "I16"},
	relayGroupBlind:    {"outbox: one partition published side by side", "I22"},
}

func (m relayMutant) breaks(invariant string) bool {
	for _, s := range strings.Fields(relayMistakes[m].breaks) {
		if s == invariant {
			return true
		}
	}
	return false
}

// rewrite is where mutants rewrite requests.
func (w *relayWorld) rewrite(c *relayCall) {
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

func (w *relayWorld) violate(invariant, format string, args ...any) {
	if w.vio != nil {
		return
	}
	w.vio = &Violation{Invariant: invariant, Seed: w.seed, At: w.at, Key: -1, Detail: fmt.Sprintf(format, args...)}
	if w.at >= 0 {
		w.vio.Fault = w.kind.String()
	}
	w.vio.Mutant = relayMistakes[w.mut].name
	w.log("*** %s: %s", invariant, w.vio.Detail)
}

// checkPublished is the sender's side of I16 and I22.
func (w *relayWorld) checkPublished(c *relayCall, m *driver.Message, accepted bool) {
	r := w.byID(m.ID)
	switch {
	case r == nil || r.state == rowOpen || r.state == rowRolledBack:
		w.violate("I16", "%s was published, and no transaction that emitted it has committed", m.ID)
		return
	case idOf(m) != r.id:
		w.violate("I16", "%s was published with the id %q in its header", r.id, idOf(m))
		return
	}
	w.log("relay %d sends %s: accepted %v, error %v", c.p.id, r.id, accepted, c.err)
	if !accepted {
		return
	}
	if r.published++; r.published > 1 || r.group == 0 {
		return
	}
	// A copy that arrives after its relay lost the message, or gave it up, has no order anymore.
	if r.state != rowThere || r.holder != c.p.id || r.hand == 0 || r.until <= w.now {
		return
	}
	for _, x := range w.order {
		if x.group == r.group && x.position > r.position && x.published > 0 {
			w.violate("I22", "%s is published for the first time after %s, which is behind it in partition %d", r.id, x.id, r.group)
		}
	}
}

// checkMark is I7, and what a dead letter needs. It is called before the row is changed.
func (w *relayWorld) checkMark(c *relayCall, rec *rowReceipt, s *driver.Settlement) {
	r := rec.r
	if r.hand != rec.hand {
		w.violate("I7", "relay %d marked %s by hand-out %d, and hand-out %d has it", c.p.id, r.id, rec.hand, r.hand)
	}
	if s.Action != driver.Dead {
		return
	}
	if s.DeadLetter == nil || s.DeadLetter.Message.ID != r.id {
		w.violate("I16", "%s was set aside without its dead letter", r.id)
	}
	if r.refused < w.sc.maxAttempts {
		w.violate("I16", "%s was set aside after %d refusals, %d are allowed", r.id, r.refused, w.sc.maxAttempts)
	}
}

// finally checks what must hold in the end.
func (w *relayWorld) finally() {
	for _, r := range w.rows {
		if r.state == rowSent && r.published == 0 {
			w.violate("I16", "%s committed, and was neither published nor parked", r.id)
		}
	}
}

// unsettled says what did not come to an end.
func (w *relayWorld) unsettled() {
	for _, r := range w.rows {
		if r.state == rowThere && r.count == 0 {
			w.violate("I16", "%s committed, and no relay ever got it", r.id)
		}
	}
	for _, r := range w.rows {
		if r.state == rowThere {
			w.violate("I17", "%s is still in the outbox, %v after the last fault; it was refused %d times", r.id, w.now-w.sc.quiet, r.refused)
		}
	}
	w.violate("I17", "the simulation does not end")
}

// count adds a finished simulation to the figures.
func (w *relayWorld) count() {
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

// log writes a line of the history, if there is a trace.
func (w *relayWorld) log(format string, args ...any) {
	if w.tr == nil {
		return
	}
	text := fmt.Sprintf("%10.3fs  ", w.now.Seconds()) + fmt.Sprintf(format, args...)
	if w.tr.hash != nil {
		_, _ = io.WriteString(w.tr.hash, text+"\n") // a hash never fails
		return
	}
	w.tr.lines = append(w.tr.lines, line{-1, text})
}
