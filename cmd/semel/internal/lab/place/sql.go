package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
)

// database is an open SQL database.
type database struct {
	queue func(name string) Queue
	store Store
	sql   *sql.DB
	// id is the column of the ledger that counts.
	id    string
	close func() error
}

// lockWait is how long a process of the lab waits for SQLite's write lock: on a busy machine others may have it often.
const lockWait = time.Minute

func openSQLite(ctx context.Context, path string, visibility time.Duration) (*database, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{Create: true, Visibility: visibility, BusyTimeout: lockWait})
	if err != nil {
		return nil, err
	}
	return &database{
		queue: func(name string) Queue { return db.Queue(name) }, store: db.Store(), sql: db.SQL(),
		id: "INTEGER PRIMARY KEY AUTOINCREMENT", close: db.Close,
	}, nil
}

// maxConns are enough for a worker of the lab: one committer, and the unguarded one's own transactions.
const maxConns = 8

func openPostgres(ctx context.Context, url string, visibility time.Duration) (*database, error) {
	db, err := postgres.Open(ctx, url, postgres.Options{Visibility: visibility, MaxConns: maxConns})
	if err != nil {
		return nil, err
	}
	std := stdlib.OpenDBFromPool(db.Pool())
	return &database{
		queue: func(name string) Queue { return db.Queue(name) }, store: db.Store(), sql: std,
		id: "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", close: func() error { return errors.Join(std.Close(), closeSoon(db)) },
	}, nil
}

// closeWait is how long closing waits for connections that are being cut off: one whose request was cancelled in the middle
// of a write over TLS is waited for by the client library for 15 s, for nothing.
const closeWait = 3 * time.Second

// closeSoon closes a database, or leaves what is left of it to the end of the process.
func closeSoon(db *postgres.DB) error {
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	late := time.NewTimer(closeWait)
	defer late.Stop()
	select {
	case err := <-closed:
		return err
	case <-late.C:
		return nil
	}
}

func makeTables(ctx context.Context, db *database) error {
	for _, statement := range []string{fmt.Sprintf(createLedger, db.id), createEffectKeys, createMarks} {
		if _, err := db.sql.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the ledger: %w", err)
		}
	}
	return nil
}
