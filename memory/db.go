// Package memory is a queue and a record store in memory: for tests and examples, and as the reference for other adapters.
// Nothing survives the process.
//
// [NewQueue] and [NewStore] make a queue or a store alone. [Open] makes a [DB] whose queues and store share one mutex, so that
// effects, record, emitted messages and ack commit together (protocol section 3):
//
//	db := memory.Open()
//	queue, store := db.Queue("orders"), db.Store()
//
// Time comes from [WithClock], by default time.Now. The package waits on channels and timers only, so it runs in virtual time
// under testing/synctest. If you inject a clock, call [DB.Wake] after moving it.
package memory

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// DB is an in-memory database: named queues, one store and some tables, all under one mutex.
type DB struct {
	mu      sync.Mutex
	clock   func() time.Time
	visible time.Duration
	// standalone: made by NewQueue or NewStore. No other part can join it.
	standalone bool
	queues     map[string]*Queue
	store      *Store
	tables     Tables
	ids        uint64 // of messages that were sent without one
	sql        bool   // WithStatements
	ran        []driver.Statement
	deliveries uint64 // the latest delivery number, which no other receipt gets
}

// An Option changes what [Open], [NewQueue] and [NewStore] make.
type Option func(*DB)

// WithClock sets the clock that decides leases, visibility and delays. Defaults to time.Now.
func WithClock(now func() time.Time) Option { return func(db *DB) { db.clock = now } }

// WithVisibility sets how long a delivery is kept from others. Defaults to 30 s.
func WithVisibility(d time.Duration) Option { return func(db *DB) { db.visible = d } }

// WithStatements lets handlers that take *Statements run in a unit test. Their SQL is not executed: [DB.Statements] returns the
// statements that were committed with records. No statement is refused, and the numbers of ExecRows are not checked. Run the
// statements on the real database in an integration test.
func WithStatements() Option { return func(db *DB) { db.sql = true } }

// Open makes an empty database.
func Open(opts ...Option) *DB {
	db := &DB{clock: time.Now, visible: 30 * time.Second, queues: map[string]*Queue{}}
	for _, o := range opts {
		o(db)
	}
	db.tables = Tables{db: db, byName: map[string]*table{}}
	db.store = newStore(db)
	return db
}

// NewQueue makes a queue without a DB: no store joins it.
func NewQueue(name string, opts ...Option) *Queue {
	db := Open(opts...)
	db.standalone = true
	return db.Queue(name)
}

// NewStore makes a store without a DB: it emits nothing, and no queue joins it.
func NewStore(opts ...Option) *Store {
	db := Open(opts...)
	db.standalone = true
	return db.store
}

// Queue returns the queue of that name with the visibility of [WithVisibility]. It is made on first use.
func (db *DB) Queue(name string) *Queue {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.queue(name)
}

// QueueWith returns the queue of that name. visible is how long its Receive keeps a message from others (0 = as in
// [WithVisibility]). The visibility belongs to the returned value, not to the queue.
func (db *DB) QueueWith(name string, visible time.Duration) *Queue {
	q := db.Queue(name)
	if visible <= 0 {
		return q
	}
	return &Queue{messages: q.messages, visible: visible}
}

func (db *DB) queue(name string) *Queue {
	q := db.queues[name]
	if q == nil {
		q = newQueue(db, name)
		db.queues[name] = q
	}
	return q
}

// Store returns the record store.
func (db *DB) Store() *Store { return db.store }

// Tables returns what [Effects] and [Tx] wrote.
func (db *DB) Tables() *Tables { return &db.tables }

// Statements returns the statements that were committed, in order. See [WithStatements].
func (db *DB) Statements() []driver.Statement {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.ran)
}

// Wake makes every waiting Receive read the clock again. Call it after you move an injected clock. With the default clock it is
// not needed.
func (db *DB) Wake() {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, q := range db.queues {
		q.wakeAll()
	}
}

func (db *DB) newID() string {
	db.ids++
	return fmt.Sprintf("m-%d", db.ids)
}

var (
	_ driver.Queue             = (*Queue)(nil)
	_ driver.Sender            = (*Queue)(nil)
	_ driver.QueueInspector    = (*Queue)(nil)
	_ driver.DeadLetterQueue   = (*Queue)(nil)
	_ driver.Transactor        = (*Store)(nil)
	_ driver.RecordInspector   = (*Store)(nil)
	_ driver.Operator          = (*Store)(nil)
	_ driver.Sweeper           = (*Store)(nil)
	_ driver.RefusalLog        = (*Store)(nil)
	_ driver.AuditLog          = (*Store)(nil)
	_ driver.DuplicateLog      = (*Store)(nil)
	_ driver.WorkerLog         = (*Store)(nil)
	_ driver.CaseLister        = (*Store)(nil)
	_ driver.DeadLetterPager   = (*Queue)(nil)
	_ driver.DeadLetterGrouper = (*Queue)(nil)
	_ driver.QueueCounter      = (*Queue)(nil)
	_ driver.StepStore         = (*Store)(nil)
	_ driver.LongTerm          = (*Store)(nil)
)
