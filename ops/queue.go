// Package ops has what operators of semel do and ask, each once: redrive, discard, edit and resolve dead letters; reopen, release
// and erase keys; explain what happened to a key; compare records with effects; compute settings. The command semel and package
// console are faces of it.
//
// Functions that take a context block on the queue or the store until it responds or the context ends. They are safe for
// concurrent use unless they say otherwise. Texts that they return can contain what senders wrote: escape them before they reach
// a terminal or a page.
package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Queue is a queue whose dead letters can be worked on, with the store of their records. Make it with [NewQueue].
type Queue struct {
	Name string
	// Horizon is how late the queue itself can deliver a copy of a message: records are kept for longer (law 10). 0 = no
	// bound is known.
	Horizon time.Duration
	// CLI makes the commands that errors and refusals propose; nil leaves out which queue and store.
	CLI         *CLI
	DeadLetters driver.DeadLetterQueue
	Records     driver.RecordInspector

	sender   driver.Sender
	operator driver.Operator
}

// NewQueue finds what working on dead letters needs. The error wraps [driver.ErrUnsupported] if the queue keeps no dead letters or
// takes no messages, or the store shows no records or takes no operations.
func NewQueue(queue driver.Queue, store driver.Store) (Queue, error) {
	is := queue.Features()
	q := Queue{Name: is.Name, Horizon: is.LateBy(0)}
	var ok [4]bool
	q.DeadLetters, ok[0] = driver.DeadLettersOf(queue)
	q.sender, ok[1] = driver.As[driver.Sender](queue)
	q.Records, ok[2] = driver.As[driver.RecordInspector](store)
	q.operator, ok[3] = driver.As[driver.Operator](store)
	for i, what := range []string{"keeps no dead letters", "takes no messages", "shows no records", "takes no operations"} {
		if !ok[i] {
			where := "queue " + q.Name
			if i > 1 {
				where = "store " + store.Features().Name
			}
			return q, fmt.Errorf("%s %s: %w", where, what, driver.ErrUnsupported)
		}
	}
	return q, nil
}

// record reads the record of a dead letter; a dead letter about an unusable key has none.
func (q Queue) record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	if k.Raw == "" {
		return driver.Record{}, false, nil
	}
	r, ok, err := q.Records.Record(ctx, k)
	if err != nil {
		return r, false, fmt.Errorf("read record of key %q: %w", k.Raw, err)
	}
	return r, ok && r.State != driver.Absent, nil
}

// keep is how long an operation keeps a record.
func (q Queue) keep(o Options) time.Duration {
	if o.Keep > 0 {
		return o.Keep
	}
	return RetentionFor(q.Horizon)
}
