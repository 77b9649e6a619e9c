package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Queue is a queue in the database. It keeps counts, delays, ordered groups and dead letters.
type Queue struct {
	*shared
	db      *DB
	name    string
	visible time.Duration
}

// shared is embedded under a name that programs do not see.
type shared = rowqueue.Queue

// maxName is the longest name of a queue or an ordered group, in bytes.
const maxName = 1024

// queueID is the id of the queue that a parameter names.
const queueID = "(SELECT id FROM semel_queue WHERE name = ?)"

// Queue returns the queue of that name with the visibility of [Options]. The first message creates it.
func (db *DB) Queue(name string) *Queue { return db.QueueWith(name, db.o.Visibility) }

// QueueWith returns the queue of that name. visible is how long its Receive hides a message from others (0 = as in
// [Options]). It belongs to the receiver, not to the queue.
func (db *DB) QueueWith(name string, visible time.Duration) *Queue {
	if visible <= 0 {
		visible = db.o.Visibility
	}
	return &Queue{shared: rowqueue.New(rows{db}, name, &queueSQL), db: db, name: name, visible: visible}
}

// Features describes the queue.
func (q *Queue) Features() driver.QueueFeatures {
	durable, caveats := q.db.facts.durability()
	return driver.QueueFeatures{
		Name: q.name, Kind: "mysql", MaxBatch: rowqueue.MaxBatch, Durable: durable, Caveats: caveats,
		Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: true, DeadLetters: true,
	}
}

// receipt is a delivery's handle. It stays valid until the message is delivered again, even after its visibility has expired.
type receipt struct {
	q     *Queue
	pos   int64
	nonce [16]byte // of the delivery; the row must still have it
	group string
	// settled is the action (from 1) that spent this receipt, so that a repetition returns Applied.
	settled atomic.Uint32
}

// mine checks that a receipt is of this queue.
func (q *Queue) mine(r any) (*receipt, error) {
	rc, ok := r.(*receipt)
	if !ok || rc == nil || rc.q.db != q.db || rc.q.name != q.name {
		return nil, fmt.Errorf("receipt %T is not of queue %q", r, q.name)
	}
	return rc, nil
}

// check refuses settlements that no queue could carry out.
func (q *Queue) check(s *driver.Settlement) error {
	if _, err := q.mine(s.Receipt); err != nil {
		return err
	}
	return s.Check()
}

// Create makes the queue before its first message, so that [DB.Queues] lists it. It leaves an existing queue alone.
func (q *Queue) Create(ctx context.Context) error {
	return rowqueue.Wrap(q.db.atomic(ctx, func(x *rowTx) error { return x.queues(q.name) }), "create", q.name)
}

// queues makes queues that do not exist yet. A process remembers those that it has made or used.
func (x *rowTx) queues(names ...string) error {
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if _, ok := x.db.queues.Load(name); ok || name == "" {
			continue
		}
		_, err := x.exec("INSERT INTO semel_queue (name) VALUES (?) ON DUPLICATE KEY UPDATE name = VALUES(name)", []byte(name))
		if err != nil {
			return err
		}
		x.wake(name, true)
	}
	return nil
}

// wake marks a queue that has something deliverable after the commit. made: the transaction made the queue.
func (x *rowTx) wake(queue string, made bool) {
	if x.wakes == nil {
		x.wakes = map[string]bool{}
	}
	x.wakes[queue] = x.wakes[queue] || made
}

// committed wakes the receivers of this process.
func (x *rowTx) committed() {
	for name, made := range x.wakes {
		if made {
			x.db.queues.Store(name, true)
		}
		x.db.waiters.WakeQueue(name)
	}
}

// checkMessage refuses what could not be stored exactly.
func checkMessage(m *driver.Message) error {
	switch {
	case m.Queue == "":
		return errors.New("it names no queue")
	case len(m.Queue) > maxName || len(m.Group) > maxName:
		return fmt.Errorf("the name of its queue or group has more than %d bytes", maxName)
	}
	return driver.CheckHeaders(m.Headers)
}

// Send accepts all messages or none. It sets a missing ID, and SentAt to now.
func (q *Queue) Send(ctx context.Context, m ...driver.Message) error {
	if len(m) == 0 {
		return nil
	}
	list := rowqueue.Own(q.name, m)
	for i := range list {
		if err := checkMessage(&list[i]); err != nil {
			return fmt.Errorf("send to queue %q: message %d: %w", q.name, i, err)
		}
	}
	return rowqueue.Wrap(q.db.atomic(ctx, func(x *rowTx) error {
		if err := x.lockGroups(nil, list); err != nil {
			return err
		}
		return x.send(list)
	}), "send to", q.name)
}

// group is an ordered group.
type group struct{ queue, name string }

func compareGroups(a, b group) int {
	return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.name, b.name))
}

// lockGroups makes missing queues, and locks the groups of messages that are sent or removed, in one order. It is what makes the order
// of commits the order of positions inside a group, and a follower that is sent while its head is removed see that.
func (x *rowTx) lockGroups(s []*driver.Settlement, m []driver.Message) error {
	var all []group
	names := make([]string, len(m))
	for i := range m {
		if names[i] = m[i].Queue; m[i].Group != "" {
			all = append(all, group{m[i].Queue, m[i].Group})
		}
	}
	for _, a := range s {
		if a.Action == driver.Dead {
			names = append(names, a.Receipt.(*receipt).q.name)
		}
		if rc := a.Receipt.(*receipt); rc.group != "" && !back(a.Action) {
			all = append(all, group{rc.q.name, rc.group})
		}
	}
	if err := x.queues(names...); err != nil || len(all) == 0 {
		return err
	}
	slices.SortFunc(all, compareGroups)
	all = slices.Compact(all)
	args := make([]any, 0, 2*len(all))
	for _, g := range all {
		args = append(args, []byte(g.queue), []byte(g.name))
	}
	const row = "(" + queueID + ", ?)"
	_, err := x.exec("INSERT INTO semel_group (queue, grp) VALUES "+row+strings.Repeat(", "+row, len(all)-1)+
		" ON DUPLICATE KEY UPDATE grp = VALUES(grp)", args...)
	return x.lostQueue(err)
}

// lostQueue handles an error of a server that lost a queue: it failed over, or was restored. The next attempt makes it again.
func (x *rowTx) lostQueue(err error) error {
	if code(err) == errNull {
		x.db.queues.Clear()
		return fmt.Errorf("%w: a queue does not exist any more: %w", driver.ErrNotCommitted, err)
	}
	return err
}

// send accepts messages, whose groups are locked.
func (x *rowTx) send(m []driver.Message) error {
	behind := map[group]bool{} // whether a message of the group is there
	for i := range m {
		g := group{m[i].Queue, m[i].Group}
		if _, known := behind[g]; known || g.name == "" {
			continue
		}
		behind[g] = false
		err := x.query(func(rowstore.Row) error { behind[g] = true; return nil },
			"SELECT 1 FROM semel_message WHERE queue = "+queueID+" AND grp = ? LIMIT 1", []byte(g.queue), []byte(g.name))
		if err != nil {
			return err
		}
	}
	var sql strings.Builder
	var args []any
	size := 0
	for i := range m {
		if sql.Len() == 0 {
			sql.WriteString("INSERT INTO semel_message (queue, waits, due_at, hold, sent_at, id, grp, headers, body) VALUES ")
		} else {
			sql.WriteString(", ")
		}
		g := group{m[i].Queue, m[i].Group}
		args = x.message(&sql, args, &m[i], behind[g])
		if g.name != "" {
			behind[g] = true
		}
		x.wake(g.queue, false)
		if size += len(m[i].Body); size < flushBytes && i < len(m)-1 {
			continue
		}
		if _, err := x.exec(sql.String(), args...); err != nil {
			return x.lostQueue(err)
		}
		sql.Reset()
		args, size = args[:0], 0
	}
	return nil
}

// message adds the row of a message.
func (x *rowTx) message(sql *strings.Builder, args []any, m *driver.Message, waits bool) []any {
	sql.WriteString("(" + queueID + ", ?, ")
	args = append(args, []byte(m.Queue), flag(waits))
	switch sent := micro(m.SentAt); {
	case m.Delay <= 0:
		sql.WriteString(x.db.clock + ", 0, ")
	case sent == 0:
		sql.WriteString(x.db.clock + " + ?, ?, ")
		args = append(args, m.Delay.Microseconds(), m.Delay.Microseconds())
	default:
		due := sent + m.Delay.Microseconds()
		sql.WriteString("GREATEST(" + x.db.clock + ", ?), GREATEST(? - " + x.db.clock + ", 0), ")
		args = append(args, due, due)
	}
	sql.WriteString("COALESCE(?, " + x.db.clock + "), ?, ?, ?, ?)")
	body := m.Body
	if body == nil {
		body = []byte{}
	}
	return append(args, unless(micro(m.SentAt), 0), []byte(cmp.Or(m.ID, driver.NewMessageID())),
		orNull([]byte(m.Group)), orNull(rowqueue.PackHeaders(m.Headers)), body)
}

// Receive returns up to limit messages, roughly the longest deliverable first. It blocks until there is one or ctx is done,
// and then returns ctx's error. It notices messages of other processes within Options.PollInterval.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	return q.db.waiters.Receive(ctx, q.name, limit, q.take, q.db.sleep)
}

// fastPolls is how many looks at an idle queue come at a tenth of Options.PollInterval.
const fastPolls = 10

// sleep waits for a message of this process, for next, or until it is time to look.
func (db *DB) sleep(ctx context.Context, x *rowqueue.Waiter, idle int, next time.Duration) (woken bool, err error) {
	wait := db.o.PollInterval
	if idle < fastPolls {
		wait /= 10
	}
	if next >= 0 {
		wait = min(wait, next+time.Microsecond)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-x.Signal:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-db.closing:
		return false, ErrClosed
	}
}

// lingerWait is how long a look may last after ctx is done: messages of a look that is cut off are hidden for their visibility.
const lingerWait = 2 * time.Second

// take returns what is deliverable now. If that is nothing, next is how long until there may be something by itself;
// negative: unknown.
func (q *Queue) take(ctx context.Context, limit int) (out []driver.Delivery, next time.Duration, err error) {
	linger, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lingerWait, cancel) })
	defer stop()
	began := time.Now()
	err = q.db.atomic(linger, func(x *rowTx) error {
		out, next, err = x.take(q, limit)
		return err
	})
	if err != nil {
		return nil, -1, err
	}
	for i := range out { // the visibility began inside the transaction
		out[i].Visible = max(q.visible-time.Since(began), time.Nanosecond)
	}
	return out, next, nil
}

func (x *rowTx) take(q *Queue, limit int) (out []driver.Delivery, next time.Duration, err error) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	var list []any
	size := int64(0)
	most := max(x.db.o.ReceiveBytes/max(x.db.body.Load(), 1), 1) // bodies that are not delivered would be sent in vain
	err = x.query(func(r rowstore.Row) error {
		if size += int64(len(r.Bytes(4))); size > x.db.o.ReceiveBytes && len(list) > 0 {
			return nil
		}
		list = append(list, r.Int(5))
		m, err := rowqueue.Message(r, 0, q.name)
		out = append(out, driver.Delivery{Message: m, Count: int(r.Int(6)) + 1, Receipt: &receipt{q: q, pos: r.Int(5), nonce: nonce, group: m.Group}})
		return err
	}, "SELECT id, grp, sent_at, headers, body, pos, count FROM semel_message FORCE INDEX (semel_message_due) WHERE queue = "+queueID+
		" AND waits = 0 AND due_at <= "+x.db.stamp+" ORDER BY due_at, pos LIMIT ? FOR UPDATE SKIP LOCKED", []byte(q.name), min(int64(limit), most))
	if err != nil {
		return nil, -1, err
	}
	if len(list) == 0 {
		next, err = x.next(q)
		return nil, next, err
	}
	x.db.body.Store(size / int64(len(list)))
	hold := q.visible.Microseconds()
	_, err = x.exec("UPDATE semel_message SET due_at = "+x.db.clock+" + ?, hold = ?, held = 1, count = count + 1, nonce = ? WHERE pos IN "+
		values(len(list)), append([]any{hold, hold, nonce[:]}, list...)...)
	return out, -1, err
}

// next returns how long until a message is deliverable by itself. If the server's clock stepped back, nothing stays invisible
// for longer than was asked for.
func (x *rowTx) next(q *Queue) (time.Duration, error) {
	var now int64
	due := int64(-1)
	err := x.query(func(r rowstore.Row) error {
		if now = r.Int(0); r[1] != nil {
			due = r.Int(1)
		}
		return nil
	}, "SELECT "+x.db.clock+", (SELECT due_at FROM semel_message WHERE queue = "+queueID+" AND waits = 0 ORDER BY due_at LIMIT 1)", []byte(q.name))
	if err != nil {
		return -1, err
	}
	if seen := x.db.seen.Swap(now); now < seen {
		_, err = x.exec("UPDATE semel_message SET due_at = ? + hold WHERE queue = "+queueID+" AND waits = 0 AND due_at > ? + hold",
			now, []byte(q.name), now)
		return 0, err
	}
	if due < 0 {
		return -1, nil
	}
	return max(time.Duration(due-now)*time.Microsecond, 0), nil
}
