package sim

import (
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// queue is the modelled broker: visibility, receipts, counts, groups, delays, dead letters. In some scenarios deliveries have no
// visibility deadline, as with RabbitMQ and Kafka: only a worker that returns one, dies or loses its connection lets it go.
type queue struct {
	msgs        []qmsg
	live        int // messages that are not gone
	nextID      int
	waiting     []int // receives that found nothing
	deadLetters []qletter
}

type qmsg struct {
	id, key, fp, group int
	keyless            bool
	gone               bool
	visibleAt          time.Duration
	sentAt             time.Duration
	rc                 *receipt // of the latest delivery
	count              int
}

type receipt struct {
	msg    int
	worker int
	busy   bool // the claim was Busy (a mutant uses it)
}

// kept is when a delivery without a visibility deadline becomes visible by itself.
const kept = time.Duration(1) << 60

type qletter struct {
	driver.DeadLetter
	msg   int
	key   int // -1: it has none
	alive bool
	// discarded: an operator decided that its message is not to run.
	discarded bool
	sent      time.Duration // when the settlement that published it was sent
}

func (q *queue) reset() {
	q.msgs, q.waiting, q.deadLetters = q.msgs[:0], q.waiting[:0], q.deadLetters[:0]
	q.live, q.nextID = 0, 0
}

var (
	groupText = []string{"", "g1", "g2"}
	fpText    = []driver.Fingerprint{"r001-a", "r001-b", "r001-c"}
	bodyText  = [][]byte{[]byte("a"), []byte("b"), []byte("c")}
)

func (q *queue) send(w *simulation, s *spec) {
	q.nextID = max(q.nextID, s.id+1)
	q.add(w, qmsg{id: s.id, key: s.key, fp: s.fp, group: s.group, keyless: s.keyless, visibleAt: w.Now + s.delay})
}

func (q *queue) add(w *simulation, m qmsg) {
	m.sentAt = w.Now
	q.msgs = append(q.msgs, m)
	q.live++
	if w.Trace != nil {
		w.log(m.key, "m%d is sent: key k%d, payload %d, group %d, keyless %v", m.id, m.key, m.fp, m.group, m.keyless)
	}
	q.kick(w)
}

// kick lets waiting receives look again.
func (q *queue) kick(w *simulation) {
	for _, ref := range q.waiting {
		r := w.reqs.all[ref]
		r.due = w.Now
		w.push(w.Now, evApply, -1, ref)
	}
	q.waiting = q.waiting[:0]
}

// receive hands out what is visible; false = nothing is, and the request waits.
func (q *queue) receive(w *simulation, k *worker, r *request) bool {
	ref := w.refOf(r)
	for i, o := range q.waiting {
		if o == ref {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			break
		}
	}
	var blocked [3]bool
	next := r.until
	first := -1
	for i := range q.msgs {
		m := &q.msgs[i]
		if m.gone {
			continue
		}
		if m.group > 0 && blocked[m.group] {
			continue
		}
		switch {
		case m.visibleAt > w.Now:
			next = min(next, m.visibleAt)
			blocked[m.group] = true
			continue
		case len(r.arrivals) < r.max && !w.Chance(100):
			q.handOut(w, k, r, i)
		default:
			blocked[m.group] = true
			if first < 0 {
				first = i
			}
		}
	}
	if len(r.arrivals) == 0 && first >= 0 {
		q.handOut(w, k, r, first)
	}
	if len(r.arrivals) > 0 || w.Now >= r.until {
		w.arrivalsMutated(r)
		return true
	}
	q.waiting = append(q.waiting, ref)
	r.due = next
	w.push(next, evApply, -1, ref)
	return false
}

func (q *queue) handOut(w *simulation, k *worker, r *request, i int) {
	m := &q.msgs[i]
	rc := w.rcpts.next()
	*rc = receipt{msg: i, worker: k.id}
	m.rc = rc
	m.count++
	m.visibleAt = w.Now + visible
	a := machine.Arrival{Key: w.keyOf(m.key), Fingerprint: fpText[m.fp]}
	a.Body = bodyText[m.fp]
	a.ID, a.Group, a.Receipt, a.Count, a.Visible = idText[m.id%len(idText)], groupText[m.group], rc, m.count, visible
	if w.sc.keeps {
		m.visibleAt, a.Visible = kept, 0
	}
	if !w.sc.counts {
		a.Count = 0
	}
	switch w.sc.pools {
	case 1:
		a.Pool = groupText[m.group]
	case 2:
		a.Pool = idText[m.key%2]
	}
	if m.keyless {
		a.Key.Raw, a.Fingerprint, a.KeyErr, a.Unkeyed = "", "", errNoKey, w.sc.unkeyed
	}
	a.Age = w.Now - m.sentAt
	if !m.keyless {
		w.versionOn(&a, m)
	}
	r.arrivals = append(r.arrivals, a)
	w.flying++
	if w.Trace != nil {
		w.log(m.key, "queue: m%d goes to worker %d, delivery %d", m.id, k.id, m.count)
	}
}

// disconnect returns the deliveries of a worker whose connection ends, where no visibility deadline does.
func (q *queue) disconnect(w *simulation, k *worker) {
	if !w.sc.keeps {
		return
	}
	at := w.Now + w.Between(time.Millisecond, lease)
	for i := range q.msgs {
		if m := &q.msgs[i]; !m.gone && m.rc != nil && m.rc.worker == k.id {
			m.visibleAt, m.rc = at, nil
		}
	}
	q.kick(w)
}

func (q *queue) settleAll(w *simulation, r *request) {
	for i := range r.sets {
		u := w.doubt(r)
		if w.sc.keeps && r.sets[i].DeadLetter != nil && w.storeDown() {
			u = 1 // dead letters of such a queue are in the store
		}
		if u == 1 {
			r.outcomes = append(r.outcomes, driver.Unknown)
			continue
		}
		if w.mut == mutFencedKept && w.returnsLost(r, i) {
			r.outcomes = append(r.outcomes, driver.Applied)
			continue
		}
		o := q.settle(w, &r.sets[i], r)
		if w.Broken != nil {
			return
		}
		if u == 2 {
			o = driver.Unknown
		}
		r.outcomes = append(r.outcomes, o)
	}
}

// settle ends one delivery.
func (q *queue) settle(w *simulation, s *driver.Settlement, r *request) driver.Outcome {
	rc := s.Receipt.(*receipt)
	m := &q.msgs[rc.msg]
	action, deadLetter := s.Action, s.DeadLetter
	switch {
	case w.mut == mutAckBusy && action == driver.Defer && rc.busy:
		action = driver.Ack
	case w.mut == mutNoUncertainDeadLetter && action == driver.Dead && deadLetter.Kind == driver.DeadLetterUncertain:
		action, deadLetter = driver.Ack, nil
	case w.mut == mutLateDropped && action == driver.Dead && deadLetter.Kind == driver.DeadLetterLate:
		action, deadLetter = driver.Ack, nil
	}
	stale := m.gone || m.rc != rc
	if stale && !w.sc.staleOK {
		if w.Trace != nil {
			w.log(m.key, "queue: %v of m%d by worker %d is refused: the receipt is old%s", action, m.id, r.worker, lateMark(r))
		}
		return driver.Lost
	}
	if w.Trace != nil {
		w.log(m.key, "queue: %v of m%d by worker %d, after %v, stale %v%s", action, m.id, r.worker, s.After, stale, lateMark(r))
	}
	if s.Close != "" {
		q.closeDeadLetter(w, s.Close)
	}
	if deadLetter != nil {
		q.putDeadLetter(w, deadLetter, rc.msg, w.workers[r.worker].global(r.sent))
	}
	if m.gone {
		return driver.Applied
	}
	switch action {
	case driver.Ack, driver.Dead:
		w.checkAck(m, action)
		m.gone = true
		q.live--
	default:
		m.visibleAt = w.Now + s.After
		if !stale {
			m.rc = nil
		}
	}
	q.kick(w)
	return driver.Applied
}

func (q *queue) prolong(w *simulation, r *request) {
	for _, receipt := range r.receipts {
		rc := receiptOf(receipt)
		m := &q.msgs[rc.msg]
		if m.gone || (m.rc != rc && !w.sc.staleOK) {
			r.outcomes = append(r.outcomes, driver.Lost)
			continue
		}
		if w.doubt(r) == 0 {
			m.visibleAt = w.Now + visible
			r.outcomes = append(r.outcomes, driver.Applied)
		} else {
			r.outcomes = append(r.outcomes, driver.Unknown)
		}
	}
}

// checkProlong is I25: a worker that knows that its claim is lost does not keep the message from others.
func (w *simulation) checkProlong(k *worker, r *request) {
	if r.kind != machine.ActionProlong {
		return
	}
	for i := range w.runs.n {
		x := w.runs.all[i]
		if x.worker != k.id || x.over || !x.lost {
			continue
		}
		for _, it := range r.items {
			if it == x.item || w.mut == mutKeepsLost {
				w.fail("I25", x.key, "worker %d extends the visibility of m%d, although its claim with token %d is lost", k.id, w.q.msgs[x.msg].id, x.hold.Token)
				return
			}
		}
	}
}

func receiptOf(v any) *receipt { return v.(*receipt) }

func (q *queue) deadLetter(id string) *qletter {
	for i := range q.deadLetters {
		if q.deadLetters[i].ID == id {
			return &q.deadLetters[i]
		}
	}
	return nil
}

// hasDeadLetterOf reports that a message without a key was ever put into a dead letter: it, or one with the same id, group and
// body.
func (q *queue) hasDeadLetterOf(m *qmsg) bool {
	return slices.ContainsFunc(q.deadLetters, func(l qletter) bool {
		o := &q.msgs[l.msg]
		return o.keyless && o.id == m.id && o.fp == m.fp && o.group == m.group
	})
}

// putDeadLetter publishes a dead letter; an id twice is one dead letter. Some brokers remember the id of a dead letter that
// was deleted.
func (q *queue) putDeadLetter(w *simulation, l *driver.DeadLetter, msg int, sent time.Duration) {
	c := *l
	if w.mut == mutDeadLetterID && c.Kind != driver.DeadLetterMismatch {
		c.ID = driver.DeadLetterID(c.Kind, c.Key, 0, "")
	}
	if w.mut == mutKeylessByID && q.msgs[msg].keyless {
		c.ID = driver.DeadLetterID(c.Kind, driver.Key{Consumer: c.Key.Consumer, Raw: c.Message.ID}, 0, "")
	}
	if o := q.deadLetter(c.ID); o != nil {
		if !o.alive && !w.sc.dedupDead {
			o.DeadLetter, o.alive, o.msg, o.sent = c, true, msg, sent
		}
		return
	}
	key := -1
	if c.Key.Raw != "" {
		key = q.msgs[msg].key
	}
	q.deadLetters = append(q.deadLetters, qletter{DeadLetter: c, msg: msg, key: key, alive: true, sent: sent})
	w.stats.DeadLetters++
	if w.Trace != nil {
		w.log(q.msgs[msg].key, "queue: dead letter %s of kind %s, token %d: %s", c.ID[:6], c.Kind, c.Token, c.Reason)
	}
}

func (q *queue) closeDeadLetter(w *simulation, id string) {
	if l := q.deadLetter(id); l != nil && l.alive {
		l.alive = false
		if w.Trace != nil {
			w.log(l.key, "queue: dead letter %s is deleted", id[:6])
		}
	}
}
