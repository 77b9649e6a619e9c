package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
)

// rig is an open queue and store with the ledger beside them: one SQLite file.
type rig struct {
	queue labQueue
	store labStore
	sql   *sql.DB
	close func() error
}

func openRig(ctx context.Context, path, queue string, visibility time.Duration) (*rig, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{Visibility: visibility})
	if err != nil {
		return nil, err
	}
	if _, err := db.SQL().ExecContext(ctx, createLedger); err != nil {
		return nil, errors.Join(fmt.Errorf("create the ledger: %w", err), db.Close())
	}
	return &rig{queue: db.Queue(queue), store: db.Store(), sql: db.SQL(), close: db.Close}, nil
}

// setAside lists what is not done and not lost: letters, and records that wait for a person.
type setAside struct {
	Dead, Parked int
	Keys         map[string]bool
}

func (r *rig) setAside(ctx context.Context) (setAside, error) {
	out := setAside{Keys: map[string]bool{}}
	letters, err := r.queue.Letters(ctx, 0)
	if err != nil {
		return out, fmt.Errorf("read the letters: %w", err)
	}
	for _, l := range letters {
		if l.Kind != driver.LetterUncertain {
			out.Dead++
		}
		key := l.Key.Raw
		if key == "" {
			key = l.Message.Header(orderHeader)
		}
		out.Keys[key] = true
	}
	parked, err := r.store.Records(ctx, driver.RecordFilter{State: driver.Uncertain})
	if err != nil {
		return out, fmt.Errorf("read the records: %w", err)
	}
	out.Parked = len(parked)
	for _, p := range parked {
		out.Keys[p.Key.Raw] = true
	}
	return out, nil
}
