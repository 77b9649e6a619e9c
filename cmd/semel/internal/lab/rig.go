package lab

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

// rig is an open queue and store with the ledger beside them: one SQLite file, or one schema of a PostgreSQL database.
type rig struct {
	queue labQueue
	store labStore
	sql   *sql.DB
	close func() error
}

// openRig opens the place: the path of an SQLite file, or a postgres:// URL.
func openRig(ctx context.Context, place, queue string, visibility time.Duration) (*rig, error) {
	if strings.HasPrefix(place, "postgres://") {
		return openPostgresRig(ctx, place, queue, visibility)
	}
	db, err := sqlite.Open(ctx, place, sqlite.Options{Visibility: visibility})
	if err != nil {
		return nil, err
	}
	r := &rig{queue: db.Queue(queue), store: db.Store(), sql: db.SQL(), close: db.Close}
	return r, r.makeLedger(ctx, "INTEGER PRIMARY KEY AUTOINCREMENT")
}

func (r *rig) makeLedger(ctx context.Context, id string) error {
	if _, err := r.sql.ExecContext(ctx, fmt.Sprintf(createLedger, id)); err != nil {
		return errors.Join(fmt.Errorf("create the ledger: %w", err), r.close())
	}
	return nil
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
