package sim

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
	"github.com/semel-dev/semel/outbox"
)

// row is one message of the outbox.
type row struct {
	id       string
	position int
	group    int
	state    rowState
	conduct  rowConduct
	times    int // the n of rowRefusedFirst
	trickle  bool

	due, until time.Duration
	hand       int // the hand-out that may settle it; 0 = none
	holder     int
	count      int

	published int // times that it was accepted
	refused   int // times that a send with it returned an error
}

type rowState uint8

const (
	rowOpen rowState = iota // its transaction has not ended
	rowRolledBack
	rowThere
	rowSent // marked
	rowParked
)

// rowConduct says what the sender thinks of a message.
type rowConduct uint8

const (
	rowOK rowConduct = iota
	rowRefusedFirst
	rowPoison
)

// rowReceipt is one hand-out.
type rowReceipt struct {
	r       *row
	hand    int
	settled driver.Action // from 1
}

// relayScenario is what a seed draws.
type relayScenario struct {
	relays, batch, maxAttempts int
	names                      bool // the sender names what it refuses
	partial                    bool // it may accept a part of a batch and return an error
	flaky                      int  // per mille of calls that go wrong while faults last
	outages                    [2][2]time.Duration
	faults                     map[int]relayFault
	quiet                      time.Duration // no faults and no transactions from then on
}

func (sc *relayScenario) draw(w *relaySimulation) {
	*sc = relayScenario{
		relays: 1 + w.IntN(3), batch: 1 + w.IntN(4), maxAttempts: 2 + w.IntN(3), names: w.Chance(400), partial: w.Chance(400),
		quiet: 12 * time.Second, faults: map[int]relayFault{},
	}
	if w.Faultless {
		return
	}
	sc.flaky = [...]int{0, 20, 120}[w.IntN(3)]
	for range w.IntN(5) {
		sc.faults[w.IntN(60)] = relayFault(1 + w.IntN(int(relayFaults)-1))
	}
	for i := range sc.outages {
		if w.Chance(300) {
			from := w.Between(0, 8*time.Second)
			sc.outages[i] = [2]time.Duration{from, from + w.Between(100*time.Millisecond, 4*time.Second)}
		}
	}
}

// emit plans the transactions: each draws positions and commits later, so that lower ones commit after higher ones. Those
// of one group wait for each other, as the group's lock has it; a mutant draws before it waits.
func (w *relaySimulation) emit() {
	groups := w.IntN(4)
	free := make([]time.Duration, groups+1)
	for i := range 3 + w.IntN(6) {
		r := &row{id: "m-" + strconv.Itoa(i), conduct: rowConduct([...]int{0, 0, 0, 1, 2}[w.IntN(5)]), times: 1 + w.IntN(2)}
		if groups > 0 && w.Chance(600) {
			r.group = 1 + w.IntN(groups)
		}
		begin, long, back := w.Between(0, 3*time.Second), w.Between(time.Millisecond, 2*time.Second), w.Chance(120)
		drawn := begin
		if r.group > 0 {
			begin = max(begin, free[r.group])
			free[r.group] = begin + long
			if w.mut != relayEarlyPosition {
				drawn = begin
			}
		}
		w.rows = append(w.rows, r)
		w.on(drawn, func() {
			w.hands++ // positions and hand-outs may share their numbers
			r.position = w.hands
			w.Log(-1, "%s (group %d) draws position %d", r.id, r.group, r.position)
		})
		w.on(begin+long, func() { w.end(r, back) })
	}
	for at := w.sc.quiet; at < w.sc.quiet+relaySettleBy; at += 5 * time.Second {
		w.on(at, w.feed)
	}
}

// end ends the transaction of a row.
func (w *relaySimulation) end(r *row, back bool) {
	if r.state != rowOpen {
		return
	}
	if back {
		w.Log(-1, "%s is rolled back", r.id)
		r.state = rowRolledBack
		return
	}
	w.Log(-1, "%s commits", r.id)
	r.state = rowThere
	w.order = append(w.order, r)
	sort.Slice(w.order, func(i, j int) bool { return w.order[i].position < w.order[j].position })
}

// feed adds a message that goes through, while any is left: only then can a relay tell a message that cannot be published
// from a way that does not work.
func (w *relaySimulation) feed() {
	if w.settled(false) {
		return
	}
	w.hands++
	w.trickle++
	r := &row{id: "fed-" + strconv.Itoa(w.trickle), position: w.hands, trickle: true}
	w.rows = append(w.rows, r)
	w.end(r, false)
}

// settled reports whether every transaction ended and nothing is left; all: of the fed ones neither.
func (w *relaySimulation) settled(all bool) bool {
	for _, r := range w.rows {
		if (all || !r.trickle) && (r.state == rowOpen || r.state == rowThere) {
			return false
		}
	}
	return true
}

func (w *relaySimulation) done() bool { return w.late == 0 && w.settled(true) }

// handable reports whether a row can be handed out.
func (w *relaySimulation) handable(r *row) bool {
	if r.state == rowOpen && w.mut == relayUncommitted && r.position > 0 {
		return r.hand == 0 || r.until <= w.Now
	}
	if r.state != rowThere || r.due > w.Now || r.hand != 0 && r.until > w.Now {
		return false
	}
	if w.mut == relayCursor && r.count == 0 && r.position < w.cursor {
		return false
	}
	if r.group == 0 || w.mut == relayGroupBlind {
		return true
	}
	for _, x := range w.order {
		if x.group == r.group && x.state == rowThere {
			return x == r // the head
		}
	}
	return false
}

// take hands rows out; false when there are none.
func (w *relaySimulation) take(c *relayCall) bool {
	from := w.order
	if w.mut == relayUncommitted {
		from = w.rows
	}
	for _, r := range from {
		if len(c.ds) == c.max {
			break
		}
		if !w.handable(r) {
			continue
		}
		w.hands++
		r.hand, r.holder, r.until = w.hands, c.p.id, w.Now+relayVisible
		r.count++
		w.cursor = max(w.cursor, r.position)
		w.Log(-1, "relay %d gets %s (hand-out %d)", c.p.id, r.id, r.hand)
		d := driver.Delivery{
			Message: driver.Message{ID: r.id, Body: []byte("x"), SentAt: virtual.Epoch},
			Receipt: &rowReceipt{r: r, hand: r.hand}, Count: r.count, Visible: relayVisible,
		}
		if r.group > 0 {
			d.Group = strconv.Itoa(r.group)
		}
		c.ds = append(c.ds, d)
		w.on(r.until, func() { /* somebody may wait for it */ })
	}
	return len(c.ds) > 0
}

// offer completes the waiting receives that find a message now.
func (w *relaySimulation) offer() {
	for i := 0; i < len(w.waiting) && w.Broken == nil; {
		c := w.waiting[i]
		if !c.p.dead && !w.take(c) {
			i++
			continue
		}
		w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
		if !c.p.dead {
			w.on(w.Now+w.latency(), func() { w.respond(c) })
		}
	}
}

// mark settles what a relay is done with.
func (w *relaySimulation) mark(c *relayCall) {
	for i := range c.settle {
		s := &c.settle[i]
		rec := s.Receipt.(*rowReceipt)
		r := rec.r
		switch {
		case rec.settled == s.Action+1:
			c.out = append(c.out, driver.Applied)
			continue
		case r.state != rowThere, r.hand != rec.hand && w.mut != relayBlindMark:
			c.out = append(c.out, driver.Lost)
			continue
		}
		w.checkMark(c, rec, s)
		rec.settled = s.Action + 1
		c.out = append(c.out, driver.Applied)
		w.Log(-1, "relay %d marks %s: %v", c.p.id, r.id, s.Action)
		r.hand = 0
		switch action := s.Action; action {
		case driver.Ack:
			r.state = rowSent
		case driver.Dead:
			r.state = rowParked
		default:
			r.due = w.Now + s.After
			w.on(r.due, func() { /* somebody may wait for it */ })
		}
	}
}

func (w *relaySimulation) extend(c *relayCall) {
	for _, x := range c.receipts {
		rec := x.(*rowReceipt)
		if rec.r.hand != rec.hand || rec.r.state != rowThere {
			c.out = append(c.out, driver.Lost)
			continue
		}
		rec.r.until = w.Now + relayVisible
		w.on(rec.r.until, func() { /* somebody may wait for it */ })
		c.out = append(c.out, driver.Applied)
	}
}

var (
	errSender   = errors.New("refused")
	errSimulate = errors.New("no response")
)

// publish is the sender: it accepts all, none, or a part and returns an error.
func (w *relaySimulation) publish(c *relayCall) {
	accepted := len(c.messages)
	for i := range c.messages {
		if r := w.byID(c.messages[i].ID); r != nil && (r.conduct == rowPoison || r.conduct == rowRefusedFirst && r.times > 0) {
			r.times--
			accepted, c.err = 0, fmt.Errorf("send: %w", errSender)
			if w.sc.names {
				c.err = &driver.ItemError{Index: i, Err: errSender}
			} else if w.sc.partial {
				accepted = i
			}
			break
		}
	}
	for _, o := range w.sc.outages {
		if w.Now >= o[0] && w.Now < o[1] {
			accepted, c.err = 0, errSender
		}
	}
	if c.err == nil && w.faulty() && w.Chance(w.sc.flaky) {
		c.err = errSender
		if accepted = 0; w.sc.partial || w.Chance(500) {
			accepted = w.IntN(len(c.messages) + 1)
		}
	}
	var culprit *driver.ItemError
	switch {
	case errors.As(c.err, &culprit):
		w.byID(c.messages[culprit.Index].ID).refused++
	case c.err != nil:
		w.refuse(c)
	}
	for i := range c.messages {
		w.checkPublished(c, &c.messages[i], i < accepted)
	}
}

func (w *relaySimulation) byID(id string) *row {
	for _, r := range w.rows {
		if r.id == id {
			return r
		}
	}
	return nil
}

// idOf is the id that a copy carries for its reader.
func idOf(m *driver.Message) string { return m.Headers[outbox.HeaderID] }
