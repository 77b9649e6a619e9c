// Package rowstore is the slow path of stores that keep records as rows of a database. The database offers a few
// operations ([DB], [Tx]); what follows from them and from the decision table of package driver is here.
//
// A store embeds [Store] and overrides what it can do faster: claims in one round trip, completions by a guarded UPDATE.
// Package adapters/sqlite and package adapters/postgres do so. A store that overrides nothing is slower and just as correct.
//
// # Tables
//
// The database has these tables, with the columns that adapters/sqlite/schema describes: semel_record, semel_step,
// semel_audit, semel_duplicate. What belongs to a record goes with it, by a trigger or in the transaction that purges it.
//
// # SQL
//
// Statements are plain SQL that every database reads, with "?" for parameters. Arguments are nil, int64, bool, string,
// []byte, time.Time, [Hash] and [Text]; the adapter turns them into what its columns hold, and quotes the column "key"
// where that is a reserved word. Rows come back as [Row], which reads whatever the client library made of a column.
package rowstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// DB is a database with semel's tables. Its methods may be called concurrently.
type DB interface {
	// Atomic runs f in a transaction and commits. An error of f rolls back; Atomic returns it, or one that wraps it. items
	// is how many records f is about. f may be called again after a rollback: it sets its results anew.
	//
	// Errors are those of driver.Committer: one that wraps driver.ErrNotCommitted says that nothing was written, one that
	// wraps driver.ErrBlocked besides that somebody else has locked a record.
	Atomic(ctx context.Context, items int, f func(Tx) error) error
	// Read runs one query on what was committed last, never on a replica, and calls row for each of its rows. The Row is
	// valid during the call; what its methods return stays valid.
	Read(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Layout says how records are stored.
	Layout() Layout
}

// Layout says how a database stores records.
type Layout struct {
	// Columns are what is selected of "semel_record r". Record reads them; its errors wrap driver.ErrUnreadable.
	Columns string
	Record  func(Row) (driver.Record, error)
	// Uncertain is a query of the UNCERTAIN records, oldest first, that reads no others. Its parameters are a consumer and
	// a limit; nil is no restriction. "": an index does it, and the ordinary query is used.
	Uncertain string
}

// Tx is an open transaction of [DB.Atomic]. It is used by one goroutine.
type Tx interface {
	// Lock locks the records of keys, which come in the order of their hashes, and returns them in that order. With skip it
	// waits for nobody: a record that somebody else has locked comes with Err [ErrLocked]. An adapter that cannot tell such a
	// record from none uses ErrLocked for both.
	Lock(keys []driver.Key, skip bool) ([]Locked, error)
	// Put replaces a locked record. Like Exec, it may be sent later: with the next Query or Lock, or with COMMIT.
	Put(l *Locked, after *driver.Record) error
	// Exec runs a statement whose result does not matter.
	Exec(query string, args ...any) error
	// Query runs a query and calls row for each of its rows.
	Query(row func(Row) error, query string, args ...any) error
}

// Locked is a record under its lock, with the time and a token that were taken behind the lock: a number that was drawn
// before it could be smaller than that of a transaction that was waited for.
type Locked struct {
	// Record is the record of the key; driver.Absent: there is none.
	Record driver.Record
	// Err wraps driver.ErrUnreadable or ErrLocked. Nothing may be written to such a record.
	Err   error
	Now   time.Time
	Drawn uint64
}

// ErrLocked reports a record that somebody else has locked, and that was not waited for.
var ErrLocked = errors.New("the record is locked")

// Store is the slow path of a store. Make it with [New].
type Store struct {
	db     DB
	layout Layout
}

// New returns the slow path of a store on db.
func New(db DB) *Store { return &Store{db: db, layout: db.Layout()} }

// Operate does an operator's act and adds it to the audit log in the same transaction. The record returned is the one that
// is stored afterwards.
func (s *Store) Operate(ctx context.Context, op driver.Operation) (r driver.Record, o driver.Outcome, err error) {
	err = s.db.Atomic(ctx, 1, func(tx Tx) error {
		locked, err := tx.Lock([]driver.Key{op.Key}, false)
		if err != nil {
			return err
		}
		l := &locked[0]
		if l.Err != nil {
			return l.Err
		}
		var changed bool
		if r, o, changed = driver.DecideOperate(l.Record, op, l.Now, l.Drawn); !changed {
			return nil
		}
		if err := tx.Put(l, &r); err != nil {
			return err
		}
		e := op.Entry(l.Record, r, l.Now)
		return addAudit(tx, &e)
	})
	if err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, err)
	}
	return r, o, nil
}
