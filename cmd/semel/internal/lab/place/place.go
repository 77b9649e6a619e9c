package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// KeyHeader carries the key: the business identity that a producer's retry shares with its first copy.
const KeyHeader = "idempotency-key"

// QueueName is the queue of every run, where the place does not name queues by itself.
const QueueName = "orders"

// OutboxName is the queue of what handlers emit.
const OutboxName = "mails"

// Queue is what the lab needs of a queue: to consume, send, watch and read dead letters.
type Queue interface {
	driver.Queue
	driver.Sender
	driver.QueueInspector
	driver.DeadLetterQueue
}

// Store is what the lab needs of a store: claim mode, journals of steps, and a look at the records.
type Store interface {
	driver.Store
	driver.StepStore
	driver.RecordInspector
}

// Ledger is where the effects go: one row per charge, written next to semel's records and never by semel. Only an effect
// key stops a second charge, as the Idempotency-Key header of a payment service does. All methods may be called
// concurrently.
type Ledger interface {
	// Effects reads the ledger in the order in which the effects were made.
	Effects(ctx context.Context) ([]Effect, error)
	// CountEffects counts them.
	CountEffects(ctx context.Context) (int, error)
	// AddEffect adds a row outside of any transaction, as a call of a service does. With an effect key it is added once, and
	// one whose key exists is accepted and not added.
	AddEffect(ctx context.Context, e Effect, effectKey string) error
}

// TxLedger is a ledger in the database of the records. With another ledger, only the effect key prevents a second effect.
type TxLedger interface {
	Ledger
	// InTx makes a handler whose effect commits with the record of the attempt. An error of work is the handler's.
	InTx(work func(ctx context.Context, a *semel.Attempt) (Effect, error)) semel.Handler
}

// Marks is the table of ids that hand-written guards keep: an id, a status, and when it was written. Get may return
// an old status where the store has reads that lag behind. All methods may be called concurrently.
type Marks interface {
	// Get returns "" for an id without a mark.
	Get(ctx context.Context, id string) (status string, err error)
	// Add writes a mark where there is none, and reports whether it did: the attribute_not_exists of DynamoDB.
	Add(ctx context.Context, id, status string) (bool, error)
	// Put writes a mark over whatever is there.
	Put(ctx context.Context, id, status string) error
	// Take writes a mark where there is none, or one older than ttl: a lock that expires.
	Take(ctx context.Context, id, status string, ttl time.Duration) (bool, error)
	// Delete removes a mark, whoever wrote it.
	Delete(ctx context.Context, id string) error
}

// Place is an open place: queue and store, and next to them the ledger and the marks of the unguarded designs.
type Place struct {
	Queue Queue
	Store Store
	// Outbox is a second queue in the store's database, in which emitted messages commit with the record; nil where the store
	// cannot emit.
	Outbox Queue
	Ledger
	// PollInterval is how long a parent waits between two looks at queue and ledger. Quiet is for how long an approximate count
	// must stay at zero before the queue counts as empty.
	PollInterval, Quiet time.Duration

	marks   Marks
	files   []*sql.DB // those of it that are SQLite files
	closers []func() error
}

// Marks returns the marks of the run.
func (r *Place) Marks() Marks { return r.marks }

// Close closes everything.
func (r *Place) Close() error {
	var errs []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i]())
	}
	r.closers = nil
	return errors.Join(errs...)
}

// Effect is one row of the ledger: one charge.
type Effect struct {
	ID           int64
	Key, Message string
	Amount       int64
	// Version is that of the message, 0 where there are none.
	Version      int
	Attempt      int
	Worker, Life int
	PID          int
	At           time.Time
}

// Reversed is the effect that takes e back: the same, with its amount negated.
func (e Effect) Reversed() Effect {
	e.Amount = -e.Amount
	return e
}

// Aside lists what is not done and not lost: dead letters, and records that wait for a person.
type Aside struct {
	Dead, Parked int
	Keys         map[string]bool
}

// Aside reads what was set aside.
func (r *Place) Aside(ctx context.Context) (Aside, error) {
	out := Aside{Keys: map[string]bool{}}
	deadLetters, err := r.deadLetters(ctx)
	if err != nil {
		return out, fmt.Errorf("read the dead letters: %w", err)
	}
	for _, l := range deadLetters {
		if l.Kind != driver.DeadLetterUncertain {
			out.Dead++
		}
		key := l.Key.Raw
		if key == "" {
			key = l.Message.Header(KeyHeader)
		}
		out.Keys[key] = true
	}
	parked, err := r.Store.Records(ctx, driver.RecordFilter{State: driver.Uncertain})
	if err != nil {
		return out, fmt.Errorf("read the records: %w", err)
	}
	out.Parked = len(parked)
	for _, p := range parked {
		out.Keys[p.Key.Raw] = true
	}
	return out, nil
}

// deadLetters reads the dead letters. Where counts are exact, it reads them only if there are some: SQS needs a long poll
// for them.
func (r *Place) deadLetters(ctx context.Context) ([]driver.DeadLetter, error) {
	if r.Quiet == 0 {
		stats, err := r.Queue.Stats(ctx)
		if err != nil || stats.DeadLetters == 0 {
			return nil, err
		}
	}
	return r.Queue.DeadLetters(ctx, 0)
}
