package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Offers reports whether effects points to a *driver.Statements, and sets that to an empty buffer. Placeholders are
// PostgreSQL's: $1, $2 (which SQLite understands too).
func (s *Store) Offers(effects any) bool {
	e, ok := effects.(**driver.Statements)
	if ok {
		*e = &driver.Statements{}
	}
	return ok
}

// Joins reports that q is a queue of the same [DB], so that its acknowledgements commit with the record.
func (s *Store) Joins(q driver.Queue) bool {
	mine, ok := q.(*Queue)
	return ok && mine.db == s.db
}

// committing is one call of Commit.
type committing struct {
	db   *DB
	w    []driver.Work
	keys keyed
	out  []driver.Outcome
	// fresh are the items that this call writes, in the order of the call; those that were applied before are left out.
	fresh []int
}

// Commit writes works in one transaction: record, effects, emitted messages, acknowledgement. See [driver.Committer].
//
// It takes one round trip when every work completes what it holds: the completion fails on the server when one does not,
// and with it all that follows. Then, and when a work ends otherwise, the records are locked and the table decides each:
// two round trips, and one more when a statement must change a certain number of rows, because a COMMIT in the same
// pipeline would not wait for us to count.
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if len(w) == 0 {
		return nil, nil
	}
	if err := s.db.checkWorks(ctx, w, false); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	out := make([]driver.Outcome, len(w))
	for nr, part := range transactions(w) {
		c := &committing{db: s.db, w: w, out: out}
		if part != nil {
			c.w, c.out = make([]driver.Work, len(part)), make([]driver.Outcome, len(part))
			for at, i := range part {
				c.w[at] = w[i]
			}
		}
		c.keys = sortKeys(len(c.w), func(i int) *driver.Key { return &c.w[i].Finish.Hold.Key })
		if err := c.run(ctx); err != nil {
			return nil, fmt.Errorf("commit: %w", ofPart(err, part, nr > 0))
		}
		c.after()
		for at, i := range part {
			out[i] = c.out[at]
		}
	}
	return out, nil
}

// transactions parts works into those that share a transaction; nil: all do. One that changes settings has its own: they
// last until the end of the transaction, and the effects of the next message would be those of another role, tenant or
// search_path. These come first. When a later part is refused, what they wrote answers Applied when it is repeated.
func transactions(w []driver.Work) (parts [][]int) {
	var own, shared []int
	for i := range w {
		if sets(&w[i]) {
			own = append(own, i)
		}
	}
	if len(own) == 0 || len(w) == 1 {
		return [][]int{nil}
	}
	for i := range w {
		if slices.Contains(own, i) {
			parts = append(parts, []int{i})
		} else {
			shared = append(shared, i)
		}
	}
	if len(shared) > 0 {
		parts = append(parts, shared)
	}
	return parts
}

// ofPart is the error of a part for the call. some: of what came before it, something is committed.
func ofPart(err error, part []int, some bool) error {
	var item *driver.ItemError
	switch {
	case errors.As(err, &item):
		if part != nil {
			return &driver.ItemError{Index: part[item.Index], Err: item.Err, Suspect: item.Suspect}
		}
	case some:
		return errors.New(err.Error()) // not certain for all: repeat
	}
	return err
}

func (c *committing) run(ctx context.Context) error {
	err := error(nil)
	fast := c.isPlain()
	if fast {
		err = c.plain(ctx)
	}
	skip := code(err) == codeLocked && !isItem(err)
	if !fast || skip || code(err) == codeGuard {
		err = c.careful(ctx, skip, c.send)
		if code(err) == codeLocked && !isItem(err) && !skip {
			err = c.careful(ctx, true, c.send)
		}
	}
	if blameless(err) {
		err = c.careful(ctx, skip, c.oneByOne)
	}
	return err
}

// isPlain reports that every work completes a record of its own, which has no versions.
func (c *committing) isPlain() bool {
	for i := range c.w {
		if f := &c.w[i].Finish; f.Final != driver.Complete || f.Hold.Version != "" {
			return false
		}
	}
	for at := 1; at < len(c.keys.hashes); at++ {
		if c.keys.hashes[at] == c.keys.hashes[at-1] {
			return false
		}
	}
	return true
}

func (c *committing) plain(ctx context.Context) error {
	p := &pipeline{}
	if counts(c.w) {
		p.beginLong(c.db)
	} else {
		p.exec("begin", sqlBegin)
	}
	p.complete(c.keys, func(i int) *driver.Finish { return &c.w[i].Finish }, driver.InProgress, c.db.o.LockWait)
	c.fresh = c.fresh[:0]
	for i := range c.w {
		c.out[i], c.fresh = driver.Applied, append(c.fresh, i)
	}
	c.limit(ctx, p)
	if err := c.db.addWorks(ctx, p, c.w, c.fresh); err != nil {
		return notSent(err)
	}
	return c.with(ctx, func(conn *pgxpool.Conn) error { return c.finish(ctx, p, conn) })
}

// hasEffects reports that a work has statements.
func hasEffects(w []driver.Work) bool {
	return slices.ContainsFunc(w, func(w driver.Work) bool { return len(statements(&w)) > 0 })
}

// with lends a connection to fn.
func (c *committing) with(ctx context.Context, fn func(conn *pgxpool.Conn) error) error {
	if hasEffects(c.w) {
		return c.db.withEffects(ctx, fn)
	}
	return c.db.with(ctx, fn)
}

// finish sends the last pipeline of a transaction, with COMMIT in it where nothing has to be counted before.
func (c *committing) finish(ctx context.Context, p *pipeline, conn *pgxpool.Conn) error {
	if counts(c.w) {
		if err := p.run(ctx, conn); err != nil {
			return err
		}
		p = &pipeline{}
	}
	p.commit()
	err := p.run(ctx, conn)
	if err != nil && len(c.fresh) == 1 && blameless(err) {
		// A deferred constraint or trigger, and nobody else to blame.
		return &driver.ItemError{Index: c.fresh[0], Err: err}
	}
	return err
}

// writer sends a pipeline that has the records in it already, and what else there is, and commits.
type writer func(ctx context.Context, p *pipeline, conn *pgxpool.Conn) error

// careful locks the records, lets the table decide, and has write send what the winners bring. skip leaves those Unknown
// whose records somebody else has locked: the others shall not wait for them.
func (c *committing) careful(ctx context.Context, skip bool, write writer) error {
	return c.with(ctx, func(conn *pgxpool.Conn) error {
		locked := make([]rowstore.Locked, len(c.keys.index))
		p := &pipeline{}
		p.beginLong(c.db)
		c.db.addLock(p, c.keys, skip, locked)
		if err := p.run(ctx, conn); err != nil {
			return err
		}
		p = &pipeline{}
		p.store(c.decide(locked, skip))
		return write(ctx, p, conn)
	})
}

// decide sets the outcomes and answers the records to store.
func (c *committing) decide(locked []rowstore.Locked, skip bool) (changes []driver.Record) {
	writes := make([]bool, len(c.w))
	for at, i := range c.keys.index {
		l := &locked[at]
		twin := at > 0 && c.keys.hashes[at] == c.keys.hashes[at-1]
		if twin {
			*l = locked[at-1] // the same record, as the item before left it
		}
		f := &c.w[i].Finish
		switch {
		case l.Err != nil || l.Record.State == driver.Absent && skip:
			c.out[i] = driver.Unknown // unreadable, locked, or gone
		case l.Record.Key != f.Hold.Key:
			c.out[i] = driver.Lost
		default:
			var changed bool
			l.Record, c.out[i], changed = driver.DecideFinish(l.Record, *f, l.Now)
			if writes[i] = changed; !changed {
				continue
			}
			if twin && len(changes) > 0 && changes[len(changes)-1].Key == l.Record.Key {
				changes = changes[:len(changes)-1]
			}
			changes = append(changes, l.Record)
		}
	}
	c.fresh = c.fresh[:0]
	for i, yes := range writes {
		if yes {
			c.fresh = append(c.fresh, i)
		}
	}
	return changes
}

// send adds what the winners bring, and commits.
func (c *committing) send(ctx context.Context, p *pipeline, conn *pgxpool.Conn) error {
	c.limit(ctx, p)
	if err := c.db.addWorks(ctx, p, c.w, c.fresh); err != nil {
		return notSent(err)
	}
	return c.finish(ctx, p, conn)
}

// limit bounds the effects of the winners, if there are any.
func (c *committing) limit(ctx context.Context, p *pipeline) {
	if slices.ContainsFunc(c.fresh, func(i int) bool { return len(statements(&c.w[i])) > 0 }) {
		p.limit(ctx, c.db, len(c.w) == 1)
	}
}

// after tells queues what was committed.
func (c *committing) after() {
	c.db.settled(c.w, c.out)
	c.db.emitted(c.w, c.fresh)
}

// emitted wakes receivers of emitted messages.
func (db *DB) emitted(w []driver.Work, which []int) {
	for _, i := range which {
		for j := range w[i].Emit {
			db.signal(w[i].Emit[j].Queue)
		}
	}
}

// addWorks adds effects, emitted messages and acknowledgements of some works, in their order. Effects that change settings
// come last: semel's tables and rights are those of the connection.
func (db *DB) addWorks(ctx context.Context, p *pipeline, w []driver.Work, which []int) error {
	last := slices.ContainsFunc(which, func(i int) bool { return sets(&w[i]) })
	if last {
		if err := db.addRest(ctx, p, w, which); err != nil {
			return err
		}
	}
	e := effects{db: db, p: p}
	for _, i := range which {
		e.add(i, statements(&w[i]))
	}
	e.close()
	if last {
		return nil
	}
	return db.addRest(ctx, p, w, which)
}

// addRest adds what follows the effects.
func (db *DB) addRest(ctx context.Context, p *pipeline, w []driver.Work, which []int) error {
	var (
		emits  []driver.Message
		of     []int
		queues []*Queue
		acks   = map[*Queue][]*driver.Settlement{}
		all    []*driver.Settlement
	)
	for _, i := range which {
		for j := range w[i].Emit {
			emits, of = append(emits, w[i].Emit[j]), append(of, i)
		}
		if w[i].Ack == nil {
			continue
		}
		q := w[i].Ack.Receipt.(*receipt).q
		if acks[q] == nil {
			queues = append(queues, q)
		}
		acks[q] = append(acks[q], w[i].Ack)
		all = append(all, w[i].Ack)
	}
	db.addLocks(p, all, emits)
	if len(emits) > 0 {
		if err := db.addSends(ctx, p, func(i int) int { return of[i] }, emits); err != nil {
			return err
		}
	}
	for _, q := range queues {
		db.addAcks(p, q, acks[q])
	}
	return nil
}

// checkWorks refuses what this store cannot write, before anything is sent, and makes the queues of emitted messages and
// letters: a transaction of its own. held says that the caller has a connection of the pool already.
func (db *DB) checkWorks(ctx context.Context, w []driver.Work, held bool) error {
	for i := range w {
		if err := db.checkWork(&w[i]); err != nil {
			return &driver.ItemError{Index: i, Err: err}
		}
	}
	ensure := func(name string) error {
		made := db.queueMade
		if held {
			made = db.queueApart
		}
		if err := made(ctx, name); err != nil {
			return notSent(fmt.Errorf("queue %q: %w", name, err))
		}
		return nil
	}
	for i := range w {
		if a := w[i].Ack; a != nil && a.Action == driver.Dead {
			if err := ensure(a.Receipt.(*receipt).q.name); err != nil {
				return err
			}
		}
		for j := range w[i].Emit {
			if err := ensure(w[i].Emit[j].Queue); err != nil {
				return err
			}
		}
	}
	return nil
}

func (db *DB) checkWork(w *driver.Work) error {
	if w.Effects != nil {
		e, ok := w.Effects.(*driver.Statements)
		if !ok {
			return fmt.Errorf("effects of type %T: %w", w.Effects, driver.ErrUnsupported)
		}
		if e == nil {
			w.Effects = nil
		}
	}
	for i, st := range statements(w) {
		if err := checkStatement(st.SQL); err != nil {
			return fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	if w.Ack != nil {
		rc, ok := w.Ack.Receipt.(*receipt)
		if !ok || rc.q.db != db {
			return fmt.Errorf("ack with a receipt of another queue (%T): %w", w.Ack.Receipt, driver.ErrUnsupported)
		}
		if err := rc.q.check(w.Ack); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	for i := range w.Emit {
		if w.Emit[i].Queue == "" {
			return fmt.Errorf("emitted message %d names no queue", i)
		}
		if err := checkText("queue name", w.Emit[i].Queue); err != nil {
			return fmt.Errorf("emitted message %d: %w", i, err)
		}
		if err := checkMessage(&w.Emit[i]); err != nil {
			return fmt.Errorf("emitted message %d: %w", i, err)
		}
	}
	return nil
}
