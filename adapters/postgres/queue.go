package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
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
	durable, caveats := q.db.caveats()
	return driver.QueueFeatures{
		Name: q.name, Kind: "postgres", MaxBatch: rowqueue.MaxBatch, Durable: durable, Caveats: caveats,
		Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: true, DeadLetters: true,
	}
}

// receipt is a delivery's handle, the driver.Delivery's Receipt.
type receipt struct {
	rowqueue.Receipt
	// count and nonce are those of the delivery. The row must still have them: positions and counts repeat after a failover
	// that lost messages, nonces do not. The nonce is zero if the message was received inside a transaction, which has it
	// locked.
	count int32
	nonce [16]byte
}

// table is what the queue of a name does itself. See [rowqueue.Own].
type table struct {
	db   *DB
	name string
}

// Put writes a dead letter, or only makes the queue.
func (q table) Put(ctx context.Context, l *driver.DeadLetter) error {
	if l == nil {
		return q.db.queueMade(ctx, q.name)
	}
	if err := checkDeadLetter(l); err != nil {
		return err
	}
	return q.db.inQueues(ctx, func(p *pipeline) error {
		addDeadLetter(p, q.name, l)
		return q.db.queueMade(ctx, q.name)
	})
}

// isText reports that a column of type text can hold s.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func checkText(what, s string) error {
	if !isText(s) {
		return fmt.Errorf("%s %q is not UTF-8 without NUL", what, s)
	}
	return nil
}

// sqlQueueMake makes a queue that does not exist. 1 name
const sqlQueueMake = `INSERT INTO semel_queue (name) SELECT $1::text
  WHERE NOT EXISTS (SELECT FROM semel_queue WHERE name = $1::text) ON CONFLICT (name) DO NOTHING`

// queueMade makes a queue that does not exist yet. It does so in a transaction of its own, so that no transaction that sends
// holds the name. It remembers which queues exist, because they are never removed. A server that failed over can have lost
// one. The statements that write to it find that out (codeQueue), see [DB.forgetQueues].
func (db *DB) queueMade(ctx context.Context, name string) error {
	return db.makeQueue(ctx, name, func(ctx context.Context, name string) error {
		return db.once(ctx, func(p *pipeline) error { p.exec("make queue", sqlQueueMake, name); return nil })
	})
}

// queueApart is queueMade for a caller that holds a connection of the pool. It opens a connection of its own:
//
//  1. As many transactions are open as the pool has connections, and each emits to a queue that is new here.
//  2. Each waits for a connection to look for the queue, and none ends before it has it.
func (db *DB) queueApart(ctx context.Context, name string) error {
	return db.makeQueue(ctx, name, db.queueOnDial)
}

func (db *DB) makeQueue(ctx context.Context, name string, create func(ctx context.Context, name string) error) error {
	if _, ok := db.queues.Load(name); ok {
		return nil
	}
	if err := checkQueueName(name); err != nil {
		return err
	}
	err := create(ctx, name)
	if err == nil {
		db.queues.Store(name, true)
	}
	return err
}

func (db *DB) queueOnDial(ctx context.Context, name string) error {
	db.apart.Lock()
	defer db.apart.Unlock()
	if _, ok := db.queues.Load(name); ok {
		return nil
	}
	c, err := db.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", db.name, explain(err))
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
		defer cancel()
		_ = c.Close(end)
	}()
	_, err = c.Exec(ctx, sqlQueueMake, name)
	return explain(err)
}

// forgetQueues forgets which queues exist when an error says that one does not. The failed write works when it is repeated.
func (db *DB) forgetQueues(err error) {
	if code(err) == codeQueue {
		db.queues.Clear()
	}
}

func checkQueueName(name string) error {
	if name == "" {
		return errors.New("the queue has no name")
	}
	return checkText("queue name", name)
}

// scanner is the current row of a result.
type scanner interface{ Scan(dest ...any) error }

// Queues lists the names of the queues in the database, sorted by byte.
func (db *DB) Queues(ctx context.Context) ([]string, error) { return rowqueue.List(ctx, rows{db}) }
