package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// txWait is the Grant.Wait of a key that an open transaction holds, because its end is unknown.
const txWait = 100 * time.Millisecond

// Tx is an open transaction as handlers see it (modes B and C): the T of semel.InTx for synchronous effects. Its writes are
// visible only inside, and commit with the records that it holds. Its methods return an error after the end.
type Tx struct{ t *transaction }

// Get returns the value of a keyed row as this transaction sees it.
func (x *Tx) Get(table, key string) (value string, ok bool, err error) {
	x.t.s.db.mu.Lock()
	defer x.t.s.db.mu.Unlock()
	if x.t.ended {
		return "", false, errEnded
	}
	value, ok = x.t.get(table, key)
	return value, ok, nil
}

// Put writes a row, new or not.
func (x *Tx) Put(table, key, value string) error { return x.do(put, table, Row{key, value}) }

// Insert writes a new row. It returns [ErrExists] if the row exists. If another transaction inserts it before the commit, the
// commit returns [driver.ErrNotCommitted].
func (x *Tx) Insert(table, key, value string) error { return x.do(insert, table, Row{key, value}) }

// Append writes a row without a key.
func (x *Tx) Append(table, value string) error { return x.do(appendRow, table, Row{"", value}) }

func (x *Tx) do(v verb, table string, r Row) error {
	x.t.s.db.mu.Lock()
	defer x.t.s.db.mu.Unlock()
	if x.t.ended {
		return errEnded
	}
	if _, there := x.t.get(table, r.Key); v == insert && there {
		return fmt.Errorf("insert %q into %q: %w", r.Key, table, ErrExists)
	}
	x.t.staged = append(x.t.staged, effect{verb: v, table: table, row: r})
	return nil
}

// transaction holds claims that are invisible to others until it commits. Duplicates of its keys are Busy. It does not lock
// the records themselves: a late write of an earlier holder is applied, and the commit then returns ErrNotCommitted.
type transaction struct {
	s      *Store
	held   []heldClaim
	staged []effect
	ended  bool
}

type heldClaim struct {
	record  driver.Record // as claimed
	version uint64        // of the stored record at the claim; 0 = there was none
}

func (t *transaction) get(table, key string) (string, bool) {
	for i := len(t.staged) - 1; i >= 0; i-- {
		if e := &t.staged[i]; e.verb != appendRow && e.table == table && e.row.Key == key {
			return e.row.Value, true
		}
	}
	return t.s.db.tables.get(table, key)
}

// Begin opens a transaction and decides the claims inside it. It does not block: a key that another transaction holds is Busy
// with a short wait, also for its own nonce. Changes of claims that do not acquire (an expired claim under Once is parked, a
// lease too far ahead is shortened) are stored at once. The Tx is nil if nothing was acquired.
func (s *Store) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	t := &transaction{s: s}
	out := make([]driver.Grant, len(c))
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	now := s.db.clock()
	for i := range c {
		if s.held[c[i].Key] != nil {
			out[i] = s.busy(&c[i])
			continue
		}
		rec := s.records[c[i].Key]
		after, g, changed := driver.DecideClaim(rec.value(), c[i], now, s.token+1)
		out[i] = g
		switch {
		case g.Verdict == driver.Acquired:
			h := heldClaim{record: after}
			if rec != nil {
				h.version = rec.version
			}
			s.token = max(s.token, after.Token) // a rollback does not return the number
			s.held[c[i].Key] = t
			t.held = append(t.held, h)
		case changed:
			s.write(rec, &after)
		}
	}
	if len(t.held) == 0 {
		return nil, out, nil
	}
	return t, out, nil
}

func (s *Store) busy(c *driver.Claim) driver.Grant {
	r := s.records[c.Key].value()
	h := r.Hold()
	h.Key = c.Key
	return driver.Grant{Verdict: driver.Busy, Hold: h, Takeover: max(r.Takeover, c.Takeover), Wait: txWait, Created: r.CreatedAt}
}

// OffersTx reports whether handle is a **[Tx].
func (s *Store) OffersTx(handle any) bool {
	_, ok := handle.(**Tx)
	return ok
}

// As sets a **[Tx].
func (t *transaction) As(handle any) bool {
	h, ok := handle.(**Tx)
	if ok {
		*h = &Tx{t: t}
	}
	return ok
}

// Rollback rolls everything back, including the claims.
func (t *transaction) Rollback(context.Context) error {
	t.s.db.mu.Lock()
	defer t.s.db.mu.Unlock()
	t.end()
	return nil
}

func (t *transaction) end() {
	if t.ended {
		return
	}
	t.ended = true
	for i := range t.held {
		delete(t.s.held, t.held[i].record.Key)
	}
}

// Commit writes the works and the writes of the handle. A claim without a work leaves no record: its item failed or did not
// run. The transaction has ended afterwards, whatever the result.
func (t *transaction) Commit(ctx context.Context, w ...driver.Work) error {
	s := t.s
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if t.ended {
		return fmt.Errorf("commit: %w", errEnded)
	}
	defer t.end()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w: %w", driver.ErrNotCommitted, err)
	}
	if _, err := s.checkWorks(w); err != nil {
		return err
	}
	for i := range t.held {
		h := &t.held[i]
		if rec := s.records[h.record.Key]; (rec == nil) != (h.version == 0) || rec != nil && rec.version != h.version {
			return fmt.Errorf("commit: key %q was written meanwhile: %w", h.record.Key.Raw, driver.ErrNotCommitted)
		}
	}
	now := s.db.clock()
	defer s.end()
	var err error
	if s.undo, err = s.db.tables.apply(t.staged, s.undo); err != nil {
		s.takeBack(s.undo)
		return fmt.Errorf("commit: %w: %w", driver.ErrNotCommitted, err)
	}
	for i := range w {
		if err := t.write(&w[i], i, now); err != nil {
			s.takeBack(s.undo)
			return &driver.ItemError{Index: i, Err: err, Transient: errors.Is(err, driver.ErrNotCommitted)}
		}
	}
	s.publish(w, now)
	return nil
}

// write stores the record of one work with its effects.
func (t *transaction) write(w *driver.Work, i int, now time.Time) error {
	for j := range t.held {
		h := &t.held[(i+j)%len(t.held)] // works mostly come in the order of the claims
		if h.record.Key != w.Finish.Hold.Key {
			continue
		}
		after, o, changed := driver.DecideFinish(h.record, w.Finish, now)
		if o == driver.Lost {
			break
		}
		if !changed {
			return nil
		}
		t.s.fresh[i] = true
		h.record = after
		return t.s.writeWork(t.s.records[after.Key], &after, w)
	}
	return fmt.Errorf("key %q is not held by this transaction", w.Finish.Hold.Key.Raw)
}
