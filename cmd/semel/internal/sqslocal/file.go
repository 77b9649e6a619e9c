package sqslocal

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/sqlite"
)

// ErrTaken tells that a later server has the file now.
var ErrTaken = errors.New("another semel sqs was started on this file and has it now")

// tables are the rows of the fake, and whose they are: two servers that write one file would each keep half.
const tables = `
CREATE TABLE IF NOT EXISTS local_sqs (
  kind TEXT NOT NULL, queue TEXT NOT NULL, id TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, queue, id)
);
CREATE TABLE IF NOT EXISTS local_sqs_owner (one INTEGER PRIMARY KEY CHECK (one = 1), owner TEXT NOT NULL);`

// File keeps the rows of a server in an SQLite file. It implements [fakesqs.Keeper].
type File struct {
	db    *sqlite.DB
	conn  *sql.Conn
	owner string
	prior string // whose it was before, "" = nobody's
	log   *slog.Logger

	once  sync.Once
	taken chan struct{}

	failing bool // the last Save failed
}

// NewFile takes the file of db for one server; whoever had it before is refused from now on. The File closes db, also when
// there is none for an error.
func NewFile(ctx context.Context, db *sqlite.DB, log *slog.Logger) (*File, error) {
	conn, err := db.SQL().Conn(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the file: %w", err), db.Close())
	}
	if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = FULL`); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the connection: %w", err), conn.Close(), db.Close())
	}
	f := &File{db: db, conn: conn, owner: rand.Text(), log: log, taken: make(chan struct{})}
	err = f.within(ctx, func() error {
		if _, err := conn.ExecContext(ctx, tables); err != nil {
			return fmt.Errorf("make the tables of the local SQS: %w", err)
		}
		err := conn.QueryRowContext(ctx, `SELECT owner FROM local_sqs_owner`).Scan(&f.prior)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("ask whose the file is: %w", err)
		}
		_, err = conn.ExecContext(ctx, `INSERT INTO local_sqs_owner VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET owner = excluded.owner`, f.owner)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close(), db.Close())
	}
	return f, nil
}

// Release returns the file to the server that had it before: this one does not start.
func (f *File) Release() error {
	if f.prior == "" {
		return nil
	}
	ctx := context.Background() // whoever asked may be gone
	_, err := f.conn.ExecContext(ctx, `UPDATE local_sqs_owner SET owner = ? WHERE owner = ?`, f.prior, f.owner)
	if err != nil {
		return fmt.Errorf("give the file back: %w", err)
	}
	return nil
}

// Taken is closed when another server took the file.
func (f *File) Taken() <-chan struct{} { return f.taken }

// Close closes the file.
func (f *File) Close() error { return errors.Join(f.conn.Close(), f.db.Close()) }

// within runs do in a transaction that has the write lock from its beginning.
func (f *File) within(ctx context.Context, do func() error) error {
	if _, err := f.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin to write: %w", err)
	}
	err := do()
	if err == nil {
		if _, err = f.conn.ExecContext(ctx, "COMMIT"); err == nil {
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	_, _ = f.conn.ExecContext(ctx, "ROLLBACK") // SQLite may have rolled back by itself
	return err
}

// Save writes rows in one transaction.
func (f *File) Save(rows []fakesqs.Row) error {
	ctx := context.Background() // whoever asked may be gone: what changed is written all the same
	err := f.within(ctx, func() error {
		var owner string
		if err := f.conn.QueryRowContext(ctx, `SELECT owner FROM local_sqs_owner`).Scan(&owner); err != nil {
			return fmt.Errorf("ask whose the file is: %w", err)
		}
		if owner != f.owner {
			f.once.Do(func() { close(f.taken) })
			return ErrTaken
		}
		for _, r := range rows {
			var err error
			if r.Value == nil {
				_, err = f.conn.ExecContext(ctx, `DELETE FROM local_sqs WHERE kind = ? AND queue = ? AND id = ?`, r.Kind, r.Queue, r.ID)
			} else {
				_, err = f.conn.ExecContext(ctx, `INSERT INTO local_sqs VALUES (?, ?, ?, ?)
					ON CONFLICT (kind, queue, id) DO UPDATE SET value = excluded.value`, r.Kind, r.Queue, r.ID, r.Value)
			}
			if err != nil {
				return fmt.Errorf("write a %s: %w", r.Kind, err)
			}
		}
		return nil
	})
	switch {
	case err != nil && !f.failing:
		f.log.Error("the file cannot be written: requests are refused until it can", "error", err)
	case err == nil && f.failing:
		f.log.Info("the file can be written again")
	}
	f.failing = err != nil
	return err
}

// Load reads all rows.
func (f *File) Load(row func(fakesqs.Row) error) (err error) {
	rows, err := f.conn.QueryContext(context.Background(), `SELECT kind, queue, id, value FROM local_sqs`)
	if err != nil {
		return fmt.Errorf("read the rows of the local SQS: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r fakesqs.Row
		if err := rows.Scan(&r.Kind, &r.Queue, &r.ID, &r.Value); err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		if err := row(r); err != nil {
			return err
		}
	}
	return rows.Err()
}
