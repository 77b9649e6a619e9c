package limits

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	_ "modernc.org/sqlite" // driver of database/sql

	"github.com/semel-dev/semel/bench/internal/harness"
)

// sqliteSettings are those of semel's adapter: a commit is durable, the log is long.
const sqliteSettings = "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(20000)" +
	"&_pragma=cache_size(-16384)&_txlock=immediate"

// The statements of the limit on SQLite. The insert takes a message's id (text) and a time.
const (
	sqliteTable  = "CREATE TABLE inbox (id TEXT PRIMARY KEY, at INTEGER NOT NULL)"
	sqliteInsert = "INSERT INTO inbox (id, at) VALUES (?, ?) ON CONFLICT DO NOTHING"
)

// sqliteInserts is the hand-written inbox on SQLite.
func sqliteInserts(batch, n int) harness.Measure {
	return harness.Measure{
		Name: fmt.Sprintf("sqlite-%d", batch), Title: fmt.Sprintf("SQLite, conditional inserts, batch %d", batch),
		Kind: harness.Limit, Unit: "rows", N: n,
		Settings: "modernc.org/sqlite, one connection, WAL, synchronous FULL, wal_autocheckpoint 20000; text ids and a time",
		Run: func(ctx context.Context, e *harness.Env) (s harness.Sample, err error) {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(e.Dir, "raw.db")+sqliteSettings)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			db.SetMaxOpenConns(1)
			if _, err := db.ExecContext(ctx, sqliteTable); err != nil {
				return s, err
			}
			stmt, err := db.PrepareContext(ctx, sqliteInsert)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, stmt.Close()) }()
			ids := make([]string, e.N)
			for i := range ids {
				ids[i] = text(key())
			}
			stop := e.Watch()
			for from := 0; from < e.N; from += batch {
				if err := insertBatch(ctx, db, stmt, ids[from:min(from+batch, e.N)]); err != nil {
					return s, err
				}
			}
			return harness.Sample{Done: e.N, Usage: stop()}, nil
		},
	}
}

func insertBatch(ctx context.Context, db *sql.DB, stmt *sql.Stmt, ids []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	inTx := tx.StmtContext(ctx, stmt)
	for i, id := range ids {
		if _, err := inTx.ExecContext(ctx, id, i); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}
