// Package rowstore is the slow path of stores that keep records as rows of a database. The database offers a few
// operations ([DB], [Tx]); what follows from them and from the decision table of package driver is here.
//
// A store embeds [Store] and overrides what it can do faster: claims in one round trip, completions by a guarded UPDATE.
// Package adapters/sqlite and package adapters/postgres do so. A store that overrides nothing is slower and just as correct.
//
// # Tables
//
// The database has these tables, with the columns that adapters/sqlite/schema describes: semel_record, semel_step,
// semel_audit, semel_duplicate, semel_long_term. What belongs to a record goes with it, by a trigger or in the transaction that
// purges it.
//
// # SQL
//
// Statements are plain SQL that every database reads, with "?" for parameters. Arguments are nil, int64, bool, string,
// []byte, time.Time, driver.Nonce, [Hash], [Text] and [Name]; the adapter turns them into what its columns hold, and quotes the column "key"
// where that is a reserved word. Rows are [Row], which reads whatever the client library made of a column.
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
	// Now is about the database's time: [Store.Sweep] looks for what is due by it, and decides by [Locked]. A store that
	// overrides Sweep need not set it.
	Now func() time.Time
	// LockPeriods is a statement that waits for transactions that have read semel_long_term, and keeps others from it. "":
	// transactions that write come one after the other.
	LockPeriods string
	// Check refuses a work whose effects, messages or acknowledgement the database cannot write.
	Check func(*driver.Work) error
}

// SQL runs statements in a transaction.
type SQL interface {
	// Exec runs a statement whose result does not matter. It may be sent later: with the next Query or Lock, or with COMMIT.
	Exec(query string, args ...any) error
	// Query runs a query and calls row for each of its rows.
	Query(row func(Row) error, query string, args ...any) error
}

// Tx is an open transaction of [DB.Atomic]. It is used by one goroutine. What it writes may be sent later, as with Exec.
type Tx interface {
	SQL
	// Lock locks the records of keys, which are distinct and in the order of their hashes, and returns them in that order.
	Lock(keys []ID, mode Mode) ([]Locked, error)
	// Put writes the record of a key: it replaces the one that was locked, or makes one where there was none.
	Put(l *Locked, after *driver.Record) error
	// Drop removes a locked record, with what belongs to it, and what Lock made where there was none. Where tokens are drawn
	// before records are locked it remembers the record's: no claim that drew a smaller one may make a record of its key.
	Drop(l *Locked) error
	// Works writes effects, emitted messages and acknowledgements of some works, in the order of which. An
	// *driver.ItemError names the work whose effects were refused, as driver.Committer says. It is called once, last.
	Works(w []driver.Work, which []int) error
}

// ID names a record.
type ID struct {
	Key  driver.Key
	Hash Hash
}

// Mode says how records are locked.
type Mode uint8

// The modes of [Tx.Lock].
const (
	// Wait waits for those who have locked a record, for as long as the adapter's options allow.
	Wait Mode = iota
	// Skip waits for nobody: a record that somebody else has locked comes with Err [ErrLocked]. An adapter that cannot tell
	// such a record from none uses ErrLocked for both.
	Skip
	// Make is Wait that locks the key itself: where there is no record, no other transaction can make one.
	Make
)

// Locked is a record under its lock, with the time and a token that were taken behind the lock: a number that was drawn
// before it could be smaller than that of a transaction that was waited for.
type Locked struct {
	// Record is the record of the key; driver.Absent: there is none.
	Record driver.Record
	// Err wraps ErrCollision, driver.ErrUnreadable or ErrLocked. Nothing may be written to such a record; Record is absent.
	Err error
	// Now is in whole microseconds.
	Now   time.Time
	Drawn uint64
}

// before is the record, nil when there is none.
func (l *Locked) before() *driver.Record {
	if l.Record.State == driver.Absent {
		return nil
	}
	return &l.Record
}

// ErrCollision reports that two keys have one hash. Somebody made them so: 128 bits do not meet by chance. A claim of the
// second one fails; all else finds no record.
var ErrCollision = fmt.Errorf("%w: its hash is that of another key", driver.ErrUnreadable)

// ErrLocked reports a record that somebody else has locked, and that was not waited for.
var ErrLocked = errors.New("the record is locked")

// Store is the slow path of a store. Make it with [New].
type Store struct {
	db     DB
	layout Layout
}

// New returns the slow path of a store on db.
func New(db DB) *Store { return &Store{db: db, layout: db.Layout()} }

// Operate does an operator's action and adds it to the audit log in the same transaction. The record returned is the one that
// is stored afterwards.
func (s *Store) Operate(ctx context.Context, op driver.Operation) (r driver.Record, o driver.Outcome, err error) {
	err = s.db.Atomic(ctx, 1, func(tx Tx) error {
		l, err := lockOne(tx, &op.Key)
		if err != nil {
			return err
		}
		var changed bool
		if r, o, changed = driver.DecideOperate(l.Record, op, l.Now, l.Drawn); !changed {
			return nil
		}
		if r.State == driver.Absent { // erased
			err = tx.Drop(l)
		} else {
			err = tx.Put(l, &r)
		}
		if err != nil {
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

// lockOne locks the record of one key.
func lockOne(tx Tx, k *driver.Key) (*Locked, error) {
	locked, err := tx.Lock([]ID{{*k, HashOf(k)}}, Wait)
	if err != nil {
		return nil, err
	}
	return &locked[0], unlessCollision(locked[0].Err)
}

// unlessCollision is the error of a record for whoever holds a key, or wants to know of it: of a key that cannot have a
// record there is none.
func unlessCollision(err error) error {
	if errors.Is(err, ErrCollision) {
		return nil
	}
	return err
}
