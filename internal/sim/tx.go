package sim

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// stx is an open transaction of modes B and C: it holds claims, and stages the effects of the handlers in it.
type stx struct {
	gen   uint32 // of this slot: a late end of an earlier transaction is void
	open  bool
	items []txItem
}

type txItem struct {
	row     int
	rec     driver.Record // as claimed
	version uint32
	runs    []*run // whose effects are staged
}

func (s *store) begin(w *simulation, r *request) {
	if s.ntx == len(s.txs) {
		s.txs = append(s.txs, &stx{})
	}
	t := s.txs[s.ntx]
	t.gen++
	t.open = true
	t.items = t.items[:0]
	w.claimer = r.worker
	for i := range r.claims {
		c := &r.claims[i]
		row := w.row(c.Key.Raw)
		if s.held[row] != 0 {
			if w.mut != mutInDoubtIgnored {
				r.grants = append(r.grants, s.busyHeld(w, c))
				continue
			}
		}
		before := s.recs[row]
		after, g, changed := s.decide(w, row, c)
		w.onClaim(&before, &after, c, &g)
		if w.Broken != nil {
			return
		}
		if w.Trace != nil {
			w.log(w.business(row), "store: claim %s by worker %d in transaction %d: %v, token %d, attempt %d%s", c.Key.Raw, r.worker, s.ntx, g.Verdict, g.Hold.Token, g.Attempt, lateMark(r))
		}
		r.grants = append(r.grants, g)
		switch {
		case g.Verdict == driver.Acquired:
			s.held[row] = s.ntx + 1
			if len(t.items) < cap(t.items) {
				t.items = t.items[:len(t.items)+1]
			} else {
				t.items = append(t.items, txItem{})
			}
			it := &t.items[len(t.items)-1]
			it.row, it.rec, it.version, it.runs = row, after, s.version[row], it.runs[:0]
		case changed:
			s.write(w, row, &after, byClaim)
		}
	}
	if len(t.items) == 0 {
		t.open = false
		return
	}
	r.tx = s.ntx
	s.ntx++
}

// stage adds a handler's effect to its lane's transaction; false = it is gone.
func (s *store) stage(w *simulation, r *run) bool {
	n := w.workers[r.worker].open[r.job.Lane]
	if n < 0 || !s.txs[n].open {
		return false
	}
	for i := range s.txs[n].items {
		if it := &s.txs[n].items[i]; it.row == r.raw%rows || it.row == r.raw%rows+rows {
			it.runs = append(it.runs, r)
			return true
		}
	}
	return false
}

func (s *store) endTx(t *stx, gen uint32) {
	if t.open && t.gen == gen {
		t.open = false
		for i := range s.held {
			if s.held[i] != 0 && s.txs[s.held[i]-1] == t {
				s.held[i] = 0
			}
		}
	}
}

func (s *store) rollbackTx(w *simulation, r *request) {
	if r.tx < 0 {
		return
	}
	t := s.txs[r.tx]
	if t.open && w.mut == mutRowSurvives {
		// The item that failed is the last that ran: its row stays.
		for i := range t.items {
			if it := &t.items[i]; len(it.runs) == 0 {
				s.survive(w, it.row, it.rec, it.rec.Hold())
				break
			}
		}
	}
	if t.open && w.mut == mutHalfSurvives && len(t.items) > 1 && w.sc.cfg.Batched {
		s.survive(w, t.items[0].row, t.items[0].rec, t.items[0].rec.Hold())
	}
	s.endTx(t, t.gen)
}

var errSerialization = fmt.Errorf("could not serialize: %w", driver.ErrNotCommitted)

// commitTx writes the works and commits: effects and records become visible together, or not at all.
func (s *store) commitTx(w *simulation, r *request) {
	shared := sharedEffects(r.works)
	if r.tx < 0 || !s.txs[r.tx].open {
		r.err = errSerialization
		if w.mut == mutSharedBlind && shared != nil {
			w.shareHappens(shared)
		}
		if w.mut == mutRollbackTag {
			r.err = nil
		}
		return
	}
	t := s.txs[r.tx]
	defer s.endTx(t, t.gen)
	if r.fate == partialResponse || r.fate == refusedWrite {
		r.err = errSerialization
	}
	for i := range t.items {
		if it := &t.items[i]; s.version[it.row] != it.version && w.mut != mutInDoubtIgnored {
			r.err = errSerialization
		}
	}
	for i := range r.works {
		it := t.item(&r.works[i].Finish)
		if it == nil {
			r.err = errSerialization
			continue
		}
		for _, e := range it.runs {
			if r.err == nil && w.refuses(e) {
				r.err = w.refusal(e.key, i)
			}
		}
	}
	if shared != nil && r.err == nil {
		for _, e := range shared.order {
			if r.err == nil && e.did && w.refuses(e) {
				r.err = w.refusal(e.key, 0) // they are shared by all
			}
		}
	}
	if w.Trace != nil {
		w.log(-1, "store: transaction %d of worker %d commits: %v%s", r.tx, r.worker, r.err, lateMark(r))
	}
	if r.err != nil {
		if w.mut == mutRollbackTag && errors.Is(r.err, errSerialization) {
			r.err = nil // COMMIT returned ROLLBACK, and the tag was not checked
		}
		if w.mut == mutSharedBlind && shared != nil && errors.Is(r.err, errSerialization) {
			w.shareHappens(shared) // one hold was lost, and the shared effects are written nevertheless
		}
		return
	}
	if shared != nil {
		w.shareHappens(shared)
	}
	for i := range r.works {
		s.commitItem(w, r, i, t.item(&r.works[i].Finish))
		if w.Broken != nil {
			return
		}
	}
}

func (t *stx) item(f *driver.Finish) *txItem {
	raw := rawIndex(f.Hold.Key.Raw)
	for i := range t.items {
		if t.items[i].row%rows == raw {
			return &t.items[i]
		}
	}
	return nil
}

func (s *store) commitItem(w *simulation, r *request, i int, it *txItem) {
	f := &r.works[i].Finish
	after, o, changed := driver.DecideFinish(it.rec, *f, w.storeNow())
	if o == driver.Lost || !changed {
		w.fail("I7", w.business(it.row), "a transaction's own claim was lost inside it")
		return
	}
	w.onGuarded(&it.rec, &f.Hold)
	// The last run of the item in this transaction is the one whose effects count: earlier ones were rolled back with
	// their transaction.
	if n := len(it.runs); n > 0 {
		w.happened(it.runs[n-1].key, after.Token)
	}
	s.write(w, it.row, &after, byFinish)
	if w.Trace != nil {
		w.log(w.business(it.row), "store: %s is COMPLETED with its effects, token %d", f.Hold.Key.Raw, after.Token)
	}
	if ack := &r.acks[i]; w.Broken == nil && ack.Receipt != nil {
		w.q.settle(w, ack, r)
	}
}
