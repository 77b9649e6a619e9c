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

// Settle ends deliveries in one transaction and one round trip.
func (q table) Settle(ctx context.Context, s []*driver.Settlement) ([]driver.Outcome, error) {
	for i, x := range s {
		if err := checkDead(x); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	done := changed{}
	err := q.db.inQueues(ctx, func(p *pipeline) error {
		for _, x := range s {
			if x.Action == driver.Dead {
				if err := q.db.queueMade(ctx, q.name); err != nil {
					return err
				}
			}
		}
		clear(done)
		q.db.addLocks(p, s, nil)
		addSettle(p, q.name, s, done)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out, wake := make([]driver.Outcome, len(s)), false
	for i, x := range s {
		out[i] = done.outcome(x.Receipt.(*receipt), rowqueue.Returns(x.Action))
		wake = wake || out[i] == driver.Applied && releases(x)
	}
	if wake {
		q.db.signal(q.name)
	}
	return out, nil
}

// checkDead refuses a dead letter that cannot be stored.
func checkDead(s *driver.Settlement) error {
	if s.Action != driver.Dead {
		return nil
	}
	return checkDeadLetter(s.DeadLetter)
}

// releases reports a settlement that can make a message deliverable.
func releases(s *driver.Settlement) bool {
	return rowqueue.Returns(s.Action) || s.Receipt.(*receipt).Group != ""
}

// change is what a statement did to a message.
type change struct {
	pos  int64
	back bool
}

type changed map[change]bool

func (d changed) outcome(rc *receipt, back bool) driver.Outcome {
	if d[change{rc.Pos, back}] {
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

// addSettle adds what settlements in a queue do to a pipeline inside a transaction: dead letters, then messages. A message that
// was delivered again is no error: the record decides. done may be nil. The caller has added the locks, and calls [DB.written]
// after the commit.
func addSettle(p *pipeline, queue string, s []*driver.Settlement, done changed) {
	var gone, given settleRows
	s = slices.Clone(s)
	slices.SortStableFunc(s, func(a, b *driver.Settlement) int {
		return byPlace(a.Receipt.(*receipt), b.Receipt.(*receipt))
	})
	for _, x := range s {
		if x.Close != "" {
			p.exec("delete a dead letter", numbered(rowqueue.DeleteDeadLetter), queue, x.Close)
		}
		if x.Action == driver.Dead {
			addDeadLetter(p, queue, x.DeadLetter)
		}
		rc := x.Receipt.(*receipt)
		if rc.Settled() {
			continue
		}
		if rowqueue.Returns(x.Action) {
			given.add(rc, max(x.After, 0))
		} else {
			gone.add(rc, 0)
		}
	}
	if len(gone.pos) > 0 {
		p.query("remove messages", done.read(false), sqlRemove, gone.pos, gone.count, gone.nonces, queue, distinct(gone.groups))
	}
	if len(given.pos) > 0 {
		p.query("return messages", done.read(true), sqlReturn, given.pos, given.count, given.nonces, given.after)
	}
}

// byPlace is the order in which all statements lock messages. The heartbeat extends some while others of them are settled.
func byPlace(a, b *receipt) int { return cmp.Compare(a.Pos, b.Pos) }

// settleRows are receipts on their way into one statement, as columns.
type settleRows struct {
	pos    int64s
	count  int32s
	after  int64s
	nonces uuids
	groups []string
}

func (r *settleRows) add(rc *receipt, after time.Duration) {
	r.pos, r.count, r.nonces = append(r.pos, rc.Pos), append(r.count, rc.count), append(r.nonces, rc.nonce)
	r.after = append(r.after, after.Microseconds())
	if rc.Group != "" {
		r.groups = append(r.groups, rc.Group)
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
		if rc := x.Receipt.(*receipt); rc.Group != "" && !rowqueue.Returns(x.Action) {
			locks = append(locks, lockOf(rc.Queue(), rc.Group))
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

// written marks the receipts of committed acks, and wakes receivers of what became deliverable.
func (db *DB) written(w []driver.Work, out []driver.Outcome) {
	rowqueue.Settled(w, out)
	for i, o := range out {
		if o != driver.Applied && o != driver.Recovered {
			continue
		}
		if a := w[i].Ack; a != nil && releases(a) {
			db.signal(a.Receipt.(*receipt).Queue())
		}
		for j := range w[i].Emit {
			db.signal(w[i].Emit[j].Queue)
		}
	}
}

// Extend hides deliveries in one round trip.
func (q table) Extend(ctx context.Context, visible time.Duration, receipts []any) ([]driver.Outcome, error) {
	list, out, done := make([]*receipt, len(receipts)), make([]driver.Outcome, len(receipts)), changed{}
	for i, r := range receipts {
		list[i] = r.(*receipt)
	}
	slices.SortFunc(list, byPlace)
	var rows settleRows
	for _, rc := range list {
		rows.add(rc, visible)
	}
	err := q.db.once(ctx, func(p *pipeline) error {
		p.query("extend", done.read(false), sqlExtend, rows.pos, rows.count, rows.nonces, visible.Microseconds())
		return nil
	})
	for i, r := range receipts {
		out[i] = done.outcome(r.(*receipt), false)
	}
	return out, err
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
