package rig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
)

// KeyHeader carries the key: the business identity that a producer's retry shares with its first copy.
const KeyHeader = "idempotency-key"

// QueueName is the queue of every run.
const QueueName = "orders"

// Queue is what the lab needs of a queue: to consume, send, watch and read letters.
type Queue interface {
	driver.Queue
	driver.Sender
	driver.QueueInspector
	driver.LetterBox
}

// Store is what the lab needs of a store: claim mode, mode A2, journals of steps, and a look at the records.
type Store interface {
	driver.Committer
	driver.StepStore
	driver.RecordInspector
}

// Rig is an open queue and store with the ledger beside them: one SQLite file, or one schema of a PostgreSQL database.
type Rig struct {
	Queue Queue
	Store Store
	// SQL leads to the ledger and to the marks of the unguarded designs.
	SQL   *sql.DB
	close func() error
}

// Close closes everything.
func (r *Rig) Close() error { return r.close() }

// Open opens the place: the path of an SQLite file, or a postgres:// URL. It makes the ledger where there is none.
func Open(ctx context.Context, place string, visibility time.Duration) (*Rig, error) {
	if strings.HasPrefix(place, "postgres://") {
		return openPostgres(ctx, place, visibility)
	}
	db, err := sqlite.Open(ctx, place, sqlite.Options{Visibility: visibility})
	if err != nil {
		return nil, err
	}
	r := &Rig{Queue: db.Queue(QueueName), Store: db.Store(), SQL: db.SQL(), close: db.Close}
	return r, r.makeTables(ctx, "INTEGER PRIMARY KEY AUTOINCREMENT")
}

func (r *Rig) makeTables(ctx context.Context, id string) error {
	for _, statement := range []string{fmt.Sprintf(createLedger, id), createEffectKeys, createMarks} {
		if _, err := r.SQL.ExecContext(ctx, statement); err != nil {
			return errors.Join(fmt.Errorf("create the ledger: %w", err), r.Close())
		}
	}
	return nil
}

// Aside lists what is not done and not lost: letters, and records that wait for a person.
type Aside struct {
	Dead, Parked int
	Keys         map[string]bool
}

// Aside reads what was set aside.
func (r *Rig) Aside(ctx context.Context) (Aside, error) {
	out := Aside{Keys: map[string]bool{}}
	letters, err := r.Queue.Letters(ctx, 0)
	if err != nil {
		return out, fmt.Errorf("read the letters: %w", err)
	}
	for _, l := range letters {
		if l.Kind != driver.LetterUncertain {
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
