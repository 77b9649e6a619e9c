package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/internal/virtual"
)

const (
	rowIDs = 24               // records named by a message id: only a mutant makes them
	rows   = maxKeys + rowIDs // records by index
	all    = 2 * rows         // twice: one mutant keeps two buckets
)

// store is the modelled record store: driver.Decide* behind one lock.
type store struct {
	recs    [all]driver.Record
	version [all]uint32
	held    [all]int // by which open transaction, +1
	drawn   uint64
	txs     []*stx
	ntx     int

	jump      time.Duration // of its clock
	downUntil time.Duration
	due       [all]bool // what a mutant's sweep saw
	snap      [all]driver.Record
	snapDrawn uint64
}

func (s *store) reset() {
	for i := range s.recs {
		if s.recs[i].State != driver.Absent {
			s.recs[i] = driver.Record{}
		}
		s.version[i], s.held[i], s.due[i] = 0, 0, false
	}
	s.drawn, s.ntx, s.jump, s.downUntil = 0, 0, 0, 0
}

func (w *simulation) storeNow() time.Time { return w.Time().Add(w.st.jump) }

func (w *simulation) storeDown() bool { return w.Now < w.st.downUntil }

// Keys have the text forms k0, k1, … and, where a mutant takes the message id for the key, m0, m1, ….
var keyText, idText = texts('k', maxKeys), texts('m', 256)

func texts(c byte, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%c%d", c, i)
	}
	return out
}

// rawIndex is the row of a key.
func rawIndex(raw string) int {
	n := 0
	for i := 1; i < len(raw); i++ {
		n = 10*n + int(raw[i]-'0')
	}
	if raw[0] == 'm' {
		return maxKeys + n%rowIDs
	}
	return n
}

// row is where a key's record is.
func (w *simulation) row(raw string) int {
	i := rawIndex(raw)
	if w.mut == mutBuckets && (w.Now/(2*lease))%2 == 1 {
		i += rows
	}
	return i
}

// business is the key behind a row.
func (w *simulation) business(row int) int {
	if row %= rows; row < maxKeys {
		return row
	}
	for i := range w.q.msgs {
		if m := &w.q.msgs[i]; m.id%rowIDs == row-maxKeys {
			return m.key
		}
	}
	return 0
}

// apply performs a request; false = it waits for a row that a transaction holds.
func (s *store) apply(w *simulation, r *request) bool {
	if s.mustWait(w, r) {
		if w.sc.txWaits {
			if r.until == 0 {
				r.until = w.Now + lease/3
			}
			if w.Now < r.until {
				r.due = w.Now + 20*time.Millisecond
				w.push(r.due, evApply, -1, w.refOf(r))
				return false
			}
			r.err = errTimeout
			return true
		}
	}
	switch r.kind {
	case machine.ActionClaim:
		s.claimAll(w, r)
	case machine.ActionExtend:
		s.extendAll(w, r)
	case machine.ActionFinish:
		if w.sc.effect == inTx || w.sc.mode == machine.Joined {
			s.commit(w, r)
		} else {
			s.finishAll(w, r)
		}
	case machine.ActionBegin:
		s.begin(w, r)
	case machine.ActionCommit:
		s.commitTx(w, r)
	case machine.ActionRollback:
		s.rollbackTx(w, r)
	}
	return true
}

func (s *store) mustWait(w *simulation, r *request) bool {
	if s.ntx == 0 || r.kind == machine.ActionCommit || r.kind == machine.ActionRollback {
		return false
	}
	for i := range r.claims {
		if s.heldBy(w, r.claims[i].Key.Raw) {
			return true
		}
	}
	for i := range r.works {
		if s.heldBy(w, r.works[i].Finish.Hold.Key.Raw) {
			return true
		}
	}
	for i := range r.holds {
		if s.heldBy(w, r.holds[i].Key.Raw) {
			return true
		}
	}
	return false
}

func (s *store) heldBy(w *simulation, raw string) bool { return s.held[w.row(raw)] != 0 }

// doubt draws the outcome of an item in a partial response: 0 = the truth, 1 = not applied and unknown, 2 = applied and
// unknown.
func (w *simulation) doubt(r *request) int {
	if r.fate != partialResponse {
		return 0
	}
	return w.IntN(3)
}

func (s *store) claimAll(w *simulation, r *request) {
	w.claimer = r.worker
	for i := range r.claims {
		c := &r.claims[i]
		g := w.claimAt(r, c, func() driver.Grant { return s.claimOne(w, r, c) })
		if w.Broken != nil {
			return
		}
		r.grants = append(r.grants, g)
	}
}

func (s *store) claimOne(w *simulation, r *request, c *driver.Claim) (g driver.Grant) {
	u := w.doubt(r)
	switch {
	case u == 1:
		return driver.Grant{Err: errTimeout}
	case s.heldBy(w, c.Key.Raw):
		g = s.busyHeld(w, c)
	default:
		g = s.claim(w, c)
	}
	if w.Trace != nil && w.Broken == nil {
		w.log(w.business(w.row(c.Key.Raw)), "store: claim %s by worker %d, nonce %x: %v, token %d, attempt %d, takeovers %d, unknown %v, wait %v%s",
			c.Key.Raw, r.worker, c.Nonce[0], g.Verdict, g.Hold.Token, g.Attempt, g.Takeovers, g.Unknown, g.Wait, lateMark(r))
	}
	if u == 2 {
		g = driver.Grant{Err: errTimeout}
	}
	return g
}

func lateMark(r *request) string {
	if r.late {
		return " (late: it timed out for the sender)"
	}
	return ""
}

func (s *store) busyHeld(w *simulation, c *driver.Claim) driver.Grant {
	h := s.recs[w.row(c.Key.Raw)].Hold()
	h.Key = c.Key
	return driver.Grant{Verdict: driver.Busy, Hold: h, Takeover: c.Takeover, Wait: 100 * time.Millisecond}
}

func (s *store) claim(w *simulation, c *driver.Claim) driver.Grant {
	i := w.row(c.Key.Raw)
	before := &s.recs[i]
	after, g, changed := s.decide(w, i, c)
	w.onClaim(before, &after, c, &g)
	if changed && w.Broken == nil {
		s.write(w, i, &after, byClaim)
	}
	return g
}

func (s *store) leaseEnd(r *driver.Record) time.Duration {
	return r.LeaseUntil.Sub(virtual.Epoch) - s.jump
}

func (s *store) write(w *simulation, i int, after *driver.Record, by writer) {
	w.onWrite(i, &s.recs[i], after, by)
	s.recs[i] = *after
	s.version[i]++
}

func (s *store) extendAll(w *simulation, r *request) {
	for i := range r.holds {
		h := &r.holds[i]
		u := w.doubt(r)
		if u == 1 {
			r.outcomes = append(r.outcomes, driver.Unknown)
			continue
		}
		row := w.row(h.Key.Raw)
		after, o := driver.DecideExtend(s.recs[row], *h, lease, w.storeNow())
		if o == driver.Applied {
			w.onGuarded(&s.recs[row], h)
			s.write(w, row, &after, byExtend)
		}
		if w.Trace != nil {
			w.log(w.business(row), "store: extend %s token %d: %v%s", h.Key.Raw, h.Token, o, lateMark(r))
		}
		if u == 2 {
			o = driver.Unknown
		}
		r.outcomes = append(r.outcomes, o)
	}
}

func (s *store) finishAll(w *simulation, r *request) {
	for i := range r.works {
		f := &r.works[i].Finish
		u := w.doubt(r)
		if u == 1 {
			w.finishedAt(r, f, driver.Unknown)
			r.outcomes = append(r.outcomes, driver.Unknown)
			continue
		}
		row := w.row(f.Hold.Key.Raw)
		after, o, changed := s.decideFinish(w, row, f)
		if changed {
			w.onGuarded(&s.recs[row], &f.Hold)
			s.write(w, row, &after, byFinish)
		}
		if w.Trace != nil {
			w.log(w.business(row), "store: %v %s token %d (%v, %s): %v%s", f.Final, f.Hold.Key.Raw, f.Hold.Token, f.Ran, f.Reason, o, lateMark(r))
		}
		if w.Broken != nil {
			return
		}
		if u == 2 {
			o = driver.Unknown
		}
		w.finishedAt(r, f, o)
		r.outcomes = append(r.outcomes, o)
	}
}

// commit is mode A2: all works in one write, each guarded; refused effects take the whole call back.
func (s *store) commit(w *simulation, r *request) {
	for i := range r.works {
		wk := &r.works[i]
		row := w.row(wk.Finish.Hold.Key.Raw)
		_, _, changed := s.decideWork(w, row, wk)
		if e, ok := wk.Effects.(*run); ok && changed && w.refuses(e) {
			r.err = w.refusal(e.key, i)
			if w.Trace != nil {
				w.log(e.key, "store: the effects of k%d are refused (%v); nothing of the call is written%s", e.key, r.err, lateMark(r))
			}
			if w.mut == mutRowSurvives {
				s.survive(w, row, s.recs[row], wk.Finish.Hold)
			}
			return
		}
	}
	for i := range r.works {
		wk := &r.works[i]
		f := &wk.Finish
		row := w.row(f.Hold.Key.Raw)
		after, o, changed := s.decideWork(w, row, wk)
		if w.Trace != nil {
			w.log(w.business(row), "store: commit %v %s token %d (%v, %s): %v%s", f.Final, f.Hold.Key.Raw, f.Hold.Token, f.Ran, f.Reason, o, lateMark(r))
		}
		w.finishedAt(r, f, o)
		r.outcomes = append(r.outcomes, o)
		if !changed {
			continue
		}
		if wk.Claim == nil {
			w.onGuarded(&s.recs[row], &f.Hold)
		} else if w.onInsert(&s.recs[row], &after, wk.Claim); w.Broken == nil {
			s.drawn = max(s.drawn, after.Token)
		}
		if e, ok := wk.Effects.(*run); ok && w.Broken == nil {
			w.happened(e.key, e.hold.Token)
		}
		s.write(w, row, &after, byFinish)
		if w.Broken != nil {
			return
		}
		if ack := &r.acks[i]; ack.Receipt != nil {
			w.q.settle(w, ack, r)
		}
		if w.Broken != nil {
			return
		}
	}
}

// refuses reports whether the database refuses a run's effects. It is called once a commit.
func (w *simulation) refuses(e *run) bool {
	ks := &w.keys[e.key]
	switch w.sc.conduct[e.key] {
	case conductRefused:
		return true
	case conductRefusedFirst:
		ks.refusals++
		return ks.refusals <= w.sc.times[e.key]
	}
	return false
}

// refusalKind is how the database refuses a key's effects.
type refusalKind uint8

const (
	refusesItem      refusalKind = iota // the item is the cause
	refusesTransient                    // the item need not be the cause
	refusesAll                          // no item is named, and none need be the cause
	refusesLocked                       // another transaction holds a lock, for a while
	refusalKinds
)

func (w *simulation) refusalKind(key int) refusalKind {
	kind := refusalKind((w.Seed/7 + uint64(key)) % uint64(refusalKinds))
	if kind == refusesLocked && w.sc.conduct[key] != conductRefusedFirst {
		return refusesTransient
	}
	return kind
}

// refusal is the error of a commit with the effects of a key that the database refuses.
func (w *simulation) refusal(key, i int) error {
	w.stats.Refused++
	switch kind := w.refusalKind(key); {
	case kind == refusesLocked && w.mut == mutLockBlamed:
		return &driver.ItemError{Index: i, Err: errors.New(driver.ErrBlocked.Error())}
	case kind == refusesLocked:
		return &driver.ItemError{Index: i, Err: driver.ErrBlocked}
	case kind == refusesItem:
		return &driver.ItemError{Index: i, Err: errRefusedBy}
	case w.mut == mutRefusalOutage:
		return fmt.Errorf("%w: %w: %w", driver.ErrNotCommitted, driver.ErrOutage, errRefusedBy)
	case kind == refusesTransient:
		return &driver.ItemError{Index: i, Err: errRefusedBy, Transient: true}
	}
	return fmt.Errorf("%w: %w", driver.ErrNotCommitted, errRefusedBy)
}

// sweep purges or expires what is past its retention.
func (s *store) sweep(w *simulation) {
	now := w.storeNow()
	if w.mut == mutPurgeEarly {
		now = now.Add(keep)
	}
	for i := range s.recs {
		if s.recs[i].State == driver.Absent || s.held[i] != 0 {
			continue
		}
		switch after, v := s.decideSweep(w, i, now); v {
		case driver.SweepPurge:
			w.onPurge(i)
			s.recs[i] = driver.Record{}
			s.version[i]++
		case driver.SweepAbandon:
			s.write(w, i, &after, bySweep)
		case driver.SweepExpire:
			w.onExpire(i, &after)
			s.write(w, i, &after, bySweep)
		}
	}
}
