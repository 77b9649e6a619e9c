// Package place opens the place in which a run happens: a queue, a store, and next to them the ledger, which knows nothing
// of semel's records, and the marks that the unguarded designs keep.
package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

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

// Place is an open place: queue and store, and next to them the ledger and the marks of the unguarded designs.
type Place struct {
	Queue Queue
	Store Store
	// Outbox is a second queue in the store's database, in which emitted messages commit with the record; nil where the store
	// cannot emit.
	Outbox Queue
	Ledger
	Marks Marks
	// PollInterval is how long a parent waits between two looks at queue and ledger. Quiet is for how long an approximate count
	// must stay at zero before the queue counts as empty.
	PollInterval, Quiet time.Duration

	files   []*sql.DB // those of it that are SQLite files
	closers []func() error
}

// tables sets where the ledger and the marks are.
func (r *Place) tables(ledger, marks table) { r.Ledger, r.Marks = Ledger{ledger}, Marks{marks} }

// Close closes everything.
func (r *Place) Close() error {
	var errs []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i]())
	}
	r.closers = nil
	return errors.Join(errs...)
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
