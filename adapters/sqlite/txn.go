package sqlite

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/driver"
)

// clockSlack is how far the host's clock may step back unnoticed. A lease or a visibility lives longer by that much.
const clockSlack = time.Second

// txn is one open write transaction: the counters and queues that it changes. It is discarded after a rollback.
type txn struct {
	db  *DB
	s   *session
	now time.Time // whole microseconds

	loaded              bool // the row of semel_state
	dirty               bool
	token, clock, swept int64
	purged              int64
	tokens              *reservation // set in synchronous transactions: where tokens come from

	queues map[string]*queueRow
	wakes  []*queueRow // queues that may have something deliverable now
}

// queueRow is a row of semel_queue.
type queueRow struct {
	id           int64
	name         string
	next, taken  int64
	dirty, woken bool
}

// queueShift is where the queue's id is in a position.
const (
	queueShift = 44
	posMask    = 1<<queueShift - 1
)

func (q *queueRow) low() int64  { return q.id << queueShift }
func (q *queueRow) high() int64 { return q.id<<queueShift | posMask }

func newTxn(db *DB, s *session) *txn {
	return &txn{db: db, s: s, now: time.UnixMicro(db.now().UnixMicro())}
}

func (t *txn) micros() int64 { return t.now.UnixMicro() }

// load reads the counters, once. A clock that stepped back is noticed here.
func (t *txn) load() error {
	if t.loaded {
		return nil
	}
	ok, err := t.s.one([]*int64{&t.token, &t.clock, &t.swept, &t.purged},
		"SELECT token, clock, swept, purged FROM semel_state WHERE one = 1")
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("table semel_state has no row")
	}
	t.loaded = true
	if t.micros() < t.clock-clockSlack.Microseconds() {
		t.clock, t.dirty = t.micros(), true
		return t.clockBack()
	}
	return nil
}

// clockBack is law 7 for the queues: nothing may stay invisible for longer than was asked for. Claims rewrite records that
// they find.
func (t *txn) clockBack() error {
	now := t.micros()
	for _, table := range []string{"semel_timed", "semel_flight"} {
		// hold is what was asked for. The clock before the step back wrote rows that are further ahead.
		if _, err := t.s.exec("UPDATE "+table+" SET until = ? + hold WHERE until > ? + hold", now, now); err != nil {
			return err
		}
	}
	return nil
}

// draw returns the next token, and use makes it used. Synchronous transactions have reserved tokens.
func (t *txn) draw() (int64, error) {
	if t.tokens != nil {
		return t.tokens.next, nil
	}
	err := t.load()
	return t.token + 1, err
}

func (t *txn) use(token int64) {
	if t.tokens != nil {
		t.tokens.next = max(t.tokens.next, token+1)
		return
	}
	if token > t.token {
		t.token, t.dirty = token, true
	}
}

// queue returns the row of a queue, nil when there is none and make is false.
func (t *txn) queue(name string, make bool) (*queueRow, error) {
	if q := t.queues[name]; q != nil {
		return q, nil
	}
	q := &queueRow{name: name}
	dest := []*int64{&q.id, &q.next, &q.taken}
	ok, err := t.s.one(dest, "SELECT id, next, taken FROM semel_queue WHERE name = ?", name)
	if err != nil {
		return nil, err
	}
	if !ok {
		if !make {
			return nil, nil
		}
		const sqlMake = "INSERT INTO semel_queue (name, next, taken) VALUES (?, 1, 0) RETURNING id, next, taken"
		if _, err := t.s.one(dest, sqlMake, name); err != nil {
			return nil, fmt.Errorf("make queue %q: %w", name, err)
		}
		if q.id >= 1<<(62-queueShift) {
			return nil, fmt.Errorf("make queue %q: the file has too many queues", name)
		}
	}
	if t.queues == nil {
		t.queues = map[string]*queueRow{}
	}
	t.queues[name] = q
	return q, nil
}

// wake marks a queue that may have something deliverable after the commit.
func (t *txn) wake(q *queueRow) {
	if !q.woken {
		q.woken = true
		t.wakes = append(t.wakes, q)
	}
}

// handNumber draws the number of a delivery. It is random: positions and counters repeat when an older backup replaces the
// file below running processes, whose receipts must not settle new messages.
func (q *queueRow) handNumber() int64 {
	q.dirty = true
	return q.low() | (1 + rand.Int64N(posMask))
}

// flush writes the counters that moved: once per transaction, however many items it has.
func (t *txn) flush() error {
	for _, q := range t.queues {
		if !q.dirty {
			continue
		}
		if _, err := t.s.exec("UPDATE semel_queue SET next = ?, taken = ? WHERE id = ?",
			q.next, q.taken, q.id); err != nil {
			return fmt.Errorf("write queue %q: %w", q.name, err)
		}
		if err := t.load(); err != nil {
			return err
		}
		t.dirty = true // every delivery stores the clock
		q.dirty = false
	}
	if !t.dirty {
		return nil
	}
	t.clock = max(t.clock, t.micros())
	_, err := t.s.exec("UPDATE semel_state SET token = ?, clock = ?, swept = ?, purged = ? WHERE one = 1",
		t.token, t.clock, t.swept, t.purged)
	t.dirty = false
	return err
}

// committed wakes the waiting receivers of this process.
func (t *txn) committed() {
	for _, q := range t.wakes {
		t.db.watch.waiters.WakeQueue(q.name)
	}
	t.db.log.committed()
}

// interface checks.
var (
	_ driver.Queue           = (*Queue)(nil)
	_ driver.Sender          = (*Queue)(nil)
	_ driver.QueueInspector  = (*Queue)(nil)
	_ driver.DeadLetterQueue = (*Queue)(nil)
	_ driver.Transactor      = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
)
