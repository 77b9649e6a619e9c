package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	return &Queue{shared: rowqueue.New(rows{db}, name, &queueSQL, table{db, name}), db: db, name: name, visible: visible}
}

// Features describes the queue.
func (q *Queue) Features() driver.QueueFeatures {
	durable, caveats := q.db.facts.durability()
	return driver.QueueFeatures{
		Name: q.name, Kind: "mysql", MaxBatch: rowqueue.MaxBatch, Durable: durable, Caveats: caveats,
		Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: true, DeadLetters: true,
	}
}

// receipt is a delivery's handle.
type receipt struct {
	rowqueue.Receipt
	nonce [16]byte // of the delivery; the row must still have it
}

// table is what the queue of a name does itself. See [rowqueue.Own].
type table struct {
	db   *DB
	name string
}

func (q table) Send(ctx context.Context, m []driver.Message) error {
	for i := range m {
		if err := q.db.checkMessage(&m[i]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return q.db.atomic(ctx, func(x *rowTx) error {
		if err := x.lockGroups(nil, m); err != nil {
			return err
		}
		return x.send(m)
	})
}

func (q table) Put(ctx context.Context, l *driver.DeadLetter) error {
	return q.db.atomic(ctx, func(x *rowTx) error {
		err := x.queues(q.name)
		if err == nil && l != nil {
			err = x.deadLetter(q.name, l)
		}
		return err
	})
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

// packetRest is what a statement has beside the body of a message.
const packetRest = 64 << 10

// checkMessage refuses what could not be stored exactly.
func (db *DB) checkMessage(m *driver.Message) error {
	most := db.facts.MaxPacket - packetRest
	switch {
	case m.Queue == "":
		return errors.New("it names no queue")
	case len(m.Queue) > maxName || len(m.Group) > maxName:
		return fmt.Errorf("the name of its queue or group has more than %d bytes", maxName)
	case most > 0 && len(m.Body) > most:
		return fmt.Errorf("body of message %q has %d bytes, must have %d at most; Try: raise max_allowed_packet of the server, "+
			"or keep the body elsewhere and send where it is", m.ID, len(m.Body), most)
	}
	return driver.CheckHeaders(m.Headers)
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
		rc := a.Receipt.(*receipt)
		if a.Action == driver.Dead {
			names = append(names, rc.Queue())
		}
		if rc.Group != "" && !rowqueue.Returns(a.Action) {
			all = append(all, group{rc.Queue(), rc.Group})
		}
	}
	if err := x.queues(names...); err != nil {
		return err
	}
	return x.lockAll(all)
}

// lockAll locks groups.
func (x *rowTx) lockAll(all []group) error {
	if len(all) == 0 {
		return nil
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
	args = append(args, []byte(m.Queue), rowstore.Flag(waits))
	switch sent := rowstore.Micro(m.SentAt); {
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
	return append(args, unless(rowstore.Micro(m.SentAt), 0), []byte(cmp.Or(m.ID, driver.NewMessageID())),
		rowstore.OrNull([]byte(m.Group)), rowstore.OrNull(rowqueue.PackHeaders(m.Headers)), body)
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
	return x.Sleep(ctx, wait, db.closing, ErrClosed)
}

// take returns what is deliverable now. If that is nothing, next is how long until there may be something by itself;
// negative: unknown.
func (q *Queue) take(ctx context.Context, limit int) (out []driver.Delivery, next time.Duration, err error) {
	linger, cancel := rowqueue.Linger(ctx)
	defer cancel()
	began := time.Now()
	err = q.db.atomic(linger, func(x *rowTx) error {
		out, err = x.take(q, limit)
		return err
	})
	if err != nil {
		return nil, -1, err
	}
	if len(out) == 0 { // behind the transaction, which has locked the first message that is not due
		next, err = q.next(linger)
		return nil, next, wrote(err, false)
	}
	for i := range out { // the visibility began inside the transaction
		out[i].Visible = max(q.visible-time.Since(began), time.Nanosecond)
	}
	return out, -1, nil
}

func (x *rowTx) take(q *Queue, limit int) (out []driver.Delivery, err error) {
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
		rc := &receipt{rowqueue.Receipt{Of: q.shared, Pos: r.Int(5), Group: m.Group}, nonce}
		out = append(out, driver.Delivery{Message: m, Count: int(r.Int(6)) + 1, Receipt: rc})
		return err
	}, "SELECT id, grp, sent_at, headers, body, pos, count FROM semel_message FORCE INDEX (semel_message_due) WHERE queue = "+queueID+
		" AND waits = 0 AND due_at <= "+x.db.stamp+" ORDER BY due_at, pos LIMIT ? FOR UPDATE SKIP LOCKED", []byte(q.name), min(int64(limit), most))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	x.db.body.Store(size / int64(len(list)))
	hold := q.visible.Microseconds()
	_, err = x.exec("UPDATE semel_message SET due_at = "+x.db.clock+" + ?, hold = ?, held = 1, count = count + 1, nonce = ? WHERE pos IN "+
		values(len(list)), append([]any{hold, hold, nonce[:]}, list...)...)
	return out, err
}

// next returns how long until a message is deliverable by itself. If the server's clock stepped back, nothing stays invisible
// for longer than was asked for.
func (q *Queue) next(ctx context.Context) (time.Duration, error) {
	var now int64
	due := int64(-1)
	err := rows{q.db}.Read(ctx, func(r rowstore.Row) error {
		if now = r.Int(0); r[1] != nil {
			due = r.Int(1)
		}
		return nil
	}, "SELECT "+q.db.clock+", (SELECT due_at FROM semel_message WHERE queue = "+queueID+" AND waits = 0 ORDER BY due_at LIMIT 1)", rowstore.Name(q.name))
	if err != nil {
		return -1, err
	}
	if seen := q.db.seen.Swap(now); now < seen {
		return 0, q.db.atomic(ctx, func(x *rowTx) error {
			return x.Exec("UPDATE semel_message SET due_at = ? + hold WHERE queue = "+queueID+" AND waits = 0 AND due_at > ? + hold",
				now, rowstore.Name(q.name), now)
		})
	}
	if due < 0 {
		return -1, nil
	}
	return max(time.Duration(due-now)*time.Microsecond, 0), nil
}
