package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"

	"github.com/semel-dev/semel/driver/rowqueue"
)

const (
	// sqlLock takes the locks of groups until the end of the transaction. 1 locks, sorted
	sqlLock = "SELECT count(pg_advisory_xact_lock(l)) FROM unnest($1::bigint[]) AS l"
	// sqlRemove removes messages and releases the next of their groups. It returns the positions of those that it removed.
	// 1 positions 2 counts 3 nonces 4 queue name 5 groups of those that have one
	sqlRemove = "SELECT semel_remove($1, $2, $3, $4, $5)"
	// sqlReturn makes messages deliverable later. It returns positions as sqlRemove does. 1 positions 2 counts 3 nonces 4
	// after, in microseconds
	sqlReturn = "SELECT semel_return($1, $2, $3, $4)"
	// sqlExtend hides messages from others. It returns positions as sqlRemove does. 1 positions 2 counts 3 nonces 4
	// visible, in microseconds
	sqlExtend = "SELECT semel_keep($1, $2, $3, $4)"
)

// Settle ends deliveries in one transaction. A receipt stays valid until its message is delivered again, even after its
// visibility has expired. Repeating the action that spent a receipt returns Applied, another action Lost. Settlement.Close
// and the dead letter of Dead are written even when the receipt is lost: both follow from the record, and a dead letter is
// written once per id.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	list, err := q.settlements(s)
	if err != nil {
		return nil, err
	}
	out := make([]driver.Outcome, len(s))
	if len(s) == 0 {
		return out, nil
	}
	done := changed{}
	err = q.db.inQueues(ctx, func(p *pipeline) error {
		for _, x := range list {
			if x.Action == driver.Dead {
				if err := q.db.queueMade(ctx, q.name); err != nil {
					return err
				}
			}
		}
		clear(done)
		q.db.addLocks(p, list, nil)
		q.addSettle(p, list, done)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settle in queue %q: %w", q.name, err)
	}
	q.outcomes(list, done, out)
	return out, nil
}

// settlements checks settlements.
func (q *Queue) settlements(s []driver.Settlement) ([]*driver.Settlement, error) {
	list := make([]*driver.Settlement, len(s))
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", q.name, i, err)
		}
		list[i] = &s[i]
	}
	return list, nil
}

// outcomes sets the outcomes of settlements and marks spent receipts.
func (q *Queue) outcomes(s []*driver.Settlement, done changed, out []driver.Outcome) {
	wake := false
	for i := range s {
		rc := s[i].Receipt.(*receipt)
		out[i] = rc.spent(s[i].Action)
		if out[i] != driver.Unknown {
			continue
		}
		if out[i] = done.outcome(rc, back(s[i].Action)); out[i] == driver.Applied {
			rc.settled.Store(uint32(s[i].Action) + 1)
			wake = wake || rc.group != "" || back(s[i].Action)
		}
	}
	if wake {
		q.db.signal(q.name)
	}
}

// spent returns the outcome for a receipt that was used before, else Unknown.
func (rc *receipt) spent(a driver.Action) driver.Outcome {
	switch before := rc.settled.Load(); before {
	case 0:
		return driver.Unknown
	case uint32(a) + 1:
		return driver.Applied
	default:
		return driver.Lost
	}
}

// change is what a statement did to a message.
type change struct {
	pos  int64
	back bool
}

type changed map[change]bool

func (d changed) outcome(rc *receipt, back bool) driver.Outcome {
	if d[change{rc.pos, back}] {
		return driver.Applied
	}
	return driver.Lost
}

// read collects the result of a statement. A nil d ignores it.
func (d changed) read(back bool) func(pgx.Rows) error {
	if d == nil {
		return nil
	}
	return func(rows pgx.Rows) error {
		for rows.Next() {
			c := change{back: back}
			if err := rows.Scan(&c.pos); err != nil {
				return fmt.Errorf("%w: %w", errClient, err)
			}
			d[c] = true
		}
		return nil
	}
}

// back reports that an action returns the message to the queue.
func back(a driver.Action) bool { return a == driver.Retry || a == driver.Defer }

// addAcks adds the statements that settle s, deliveries of q, to a pipeline inside a transaction. A message that was
// delivered again is no error: the record decides. After the commit call [DB.settled]. A transaction that sends messages of
// groups too calls addLocks first.
func (db *DB) addAcks(p *pipeline, q *Queue, s []*driver.Settlement) {
	db.addLocks(p, s, nil)
	q.addSettle(p, s, nil)
}

// addSettle adds what settlements do: dead letters, then messages. done may be nil.
func (q *Queue) addSettle(p *pipeline, s []*driver.Settlement, done changed) {
	var gone, given settleRows
	s = slices.Clone(s)
	slices.SortStableFunc(s, func(a, b *driver.Settlement) int {
		return byPlace(a.Receipt.(*receipt), b.Receipt.(*receipt))
	})
	for _, x := range s {
		if x.Close != "" {
			p.exec("delete a dead letter", numbered(rowqueue.DeleteDeadLetter), q.name, x.Close)
		}
		if x.Action == driver.Dead {
			q.addDeadLetter(p, x.DeadLetter)
		}
		rc := x.Receipt.(*receipt)
		if rc.settled.Load() != 0 {
			continue
		}
		if back(x.Action) {
			given.add(rc, max(x.After, 0))
		} else {
			gone.add(rc, 0)
		}
	}
	if len(gone.pos) > 0 {
		p.query("remove messages", done.read(false), sqlRemove, gone.pos, gone.count, gone.nonces, q.name, distinct(gone.groups))
	}
	if len(given.pos) > 0 {
		p.query("return messages", done.read(true), sqlReturn, given.pos, given.count, given.nonces, given.after)
	}
}

// byPlace is the order in which all statements lock messages. The heartbeat extends some while others of them are settled.
func byPlace(a, b *receipt) int { return cmp.Compare(a.pos, b.pos) }

// settleRows are receipts on their way into one statement, as columns.
type settleRows struct {
	pos    int64s
	count  int32s
	after  int64s
	nonces uuids
	groups []string
}

func (r *settleRows) add(rc *receipt, after time.Duration) {
	r.pos, r.count, r.nonces = append(r.pos, rc.pos), append(r.count, rc.count), append(r.nonces, rc.nonce)
	r.after = append(r.after, after.Microseconds())
	if rc.group != "" {
		r.groups = append(r.groups, rc.group)
	}
}

// addLocks adds a statement that takes the locks of all groups that settlements and messages have. It is what makes the
// order of commits the order of positions inside a group, and what keeps a waiting follower from being forgotten:
//
//  1. S sends a follower. It sees the head of the group, so that the follower has to wait.
//  2. T settles the head and looks for a follower that waits: S has not committed, there is none.
//  3. S commits: a follower that is never released.
//
// With the lock 2 comes before 1 or after 3. All locks of a transaction are taken by one statement in one order, so that
// transactions do not wait for each other in a ring. Taking a lock twice does no harm.
func (db *DB) addLocks(p *pipeline, s []*driver.Settlement, m []driver.Message) {
	var locks []int64
	for _, x := range s {
		if rc := x.Receipt.(*receipt); rc.group != "" && !back(x.Action) {
			locks = append(locks, lockOf(rc.q.name, rc.group))
		}
	}
	for i := range m {
		if m[i].Group != "" {
			locks = append(locks, lockOf(m[i].Queue, m[i].Group))
		}
	}
	if len(locks) > 0 {
		slices.Sort(locks)
		p.exec("lock groups", sqlLock, int64s(slices.Compact(locks)))
	}
}

// lockOf is the advisory lock of a group. Two groups that share one only wait for each other.
func lockOf(queue, group string) int64 {
	b := make([]byte, 0, 64)
	for _, s := range [...]string{"semel-group", queue, group} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// settled marks the receipts of committed acks, and wakes receivers of what became deliverable.
func (db *DB) settled(w []driver.Work, out []driver.Outcome) {
	for i := range w {
		if w[i].Ack == nil || out[i] != driver.Applied && out[i] != driver.Recovered {
			continue
		}
		rc := w[i].Ack.Receipt.(*receipt)
		rc.settled.Store(uint32(w[i].Ack.Action) + 1)
		if rc.group != "" || back(w[i].Ack.Action) {
			db.signal(rc.q.name)
		}
	}
}

// Extend hides deliveries from others for visible from now, even after their visibility has expired, unless they were
// delivered again.
func (q *Queue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	var list []*receipt
	for i, r := range receipts {
		rc, err := q.mine(r)
		if err != nil {
			return nil, fmt.Errorf("extend in queue %q: item %d: %w", q.name, i, err)
		}
		if rc.settled.Load() == 0 {
			list = append(list, rc)
		}
	}
	slices.SortFunc(list, byPlace)
	var rows settleRows
	for _, rc := range list {
		rows.add(rc, visible)
	}
	out := make([]driver.Outcome, len(receipts))
	done := changed{}
	if len(rows.pos) > 0 {
		err := q.db.once(ctx, func(p *pipeline) error {
			p.query("extend", done.read(false), sqlExtend, rows.pos, rows.count, rows.nonces, visible.Microseconds())
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("extend in queue %q: %w", q.name, err)
		}
	}
	for i, r := range receipts {
		rc := r.(*receipt)
		if out[i] = driver.Lost; rc.settled.Load() == 0 {
			out[i] = done.outcome(rc, false)
		}
	}
	return out, nil
}

// distinct sorts names and leaves each once.
func distinct(names []string) bytess {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	out := make(bytess, len(names))
	for i, s := range names {
		out[i] = []byte(s)
	}
	return out
}
