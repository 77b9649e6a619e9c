// Package rowstore is the slow path of stores that keep records as rows of a database. The database offers a few operations
// ([DB], [Tx]). This package implements a store with them and the decision table of package driver.
//
// A store embeds [Store] and overrides the methods that it can do faster: claims in one round trip, completions by a guarded
// UPDATE. Packages adapters/sqlite and adapters/postgres do so. A store that overrides nothing is slower but as correct.
//
// # Tables
//
// The database has these tables, with the columns that adapters/sqlite/schema describes: semel_record, semel_step,
// semel_audit, semel_duplicate, semel_case, semel_long_term, and semel_worker for
// [Workers]. The rows of a record in other tables are removed with it, by a trigger or in
// the transaction that purges it.
//
// # SQL
//
// Statements are plain SQL that every database reads, with "?" for parameters. Arguments are nil, int64, bool, string,
// []byte, time.Time, driver.Nonce, [Place], [Text] and [Name]; the adapter converts them for its columns
// (see [Values]). Columns whose names are reserved words somewhere stand in backticks; an adapter whose database does not know
// these removes them. Rows are [Row], which reads any type that the client library returns for a column.
package rowstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// DB is a database with semel's tables. Its methods may be called concurrently.
type DB interface {
	// Atomic runs f in a transaction and commits. If f returns an error, Atomic rolls back and returns that error or one that
	// wraps it. items is the number of records that f uses. f may be called again after a rollback, so it must reset its
	// results.
	//
	// Errors are those of driver.Committer: one that wraps driver.ErrNotCommitted means that nothing was written. If it also
	// wraps driver.ErrBlocked, another session has locked a record.
	Atomic(ctx context.Context, items int, f func(Tx) error) error
	// Read runs one query on the latest committed state, not on a replica, and calls row for each row. The Row is valid during
	// the call. The values that its methods return stay valid.
	Read(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Layout returns how records are stored.
	Layout() Layout
}

// Layout describes how a database stores records.
type Layout struct {
	// Columns are the selected columns of "semel_record r". Record reads them. Its errors wrap driver.ErrUnreadable.
	Columns string
	Record  func(Row) (driver.Record, error)
	// Now returns approximately the database's time: [Store.Sweep] searches by it for records that are due, and decides by
	// the time in [Locked]. A store that overrides Sweep need not set it.
	Now func(tx SQL) (time.Time, error)
	// LockPeriods is a statement that waits for transactions that have read semel_long_term, and locks the table. "": writing
	// transactions are serialized. SharePeriods is a statement before that reading, for databases whose reads lock nothing.
	LockPeriods, SharePeriods string
	// Check returns an error for a work whose effects, messages or ack the database cannot write.
	Check func(*driver.Work) error
}

// SQL runs statements in a transaction.
type SQL interface {
	// Exec runs a statement whose result does not matter. It may be sent later: with the next Query or Lock, or with COMMIT.
	Exec(query string, args ...any) error
	// Query runs a query and calls row for each of its rows.
	Query(row func(Row) error, query string, args ...any) error
}

// Tx is an open transaction of [DB.Atomic]. One goroutine uses it. Its writes may be sent later, as with Exec.
type Tx interface {
	SQL
	// Lock locks the records of keys, which are distinct and in the order of their places, and returns them in that order.
	Lock(keys []ID, mode Mode) ([]Locked, error)
	// Put writes the record of a key: it replaces the locked one, or inserts one if there was none. It also does what
	// [WriteCase] does.
	Put(l *Locked, after *driver.Record) error
	// Drop removes a locked record and its rows in other tables, or the placeholder that Lock made for a missing record. If
	// tokens are drawn before records are locked, it stores the record's token: no claim that drew a smaller one may make a
	// record of this key.
	Drop(l *Locked) error
	// Works writes effects, emitted messages and acks of some works, in the order of which. An *driver.ItemError names the
	// work whose effects were refused, as for driver.Committer. It is called once, last.
	Works(w []driver.Work, which []int) error
}

// ID identifies a record.
type ID struct {
	Key   driver.Key
	Place Place
}

// Mode is how records are locked.
type Mode uint8

// The modes of [Tx.Lock].
const (
	// Wait waits for locks of other sessions, for as long as the adapter's options allow.
	Wait Mode = iota
	// Skip does not wait: a record that another session has locked has Err [ErrLocked]. An adapter that cannot distinguish
	// such a record from a missing one uses ErrLocked for both.
	Skip
	// Make is Wait that also locks the key: if there is no record, no other transaction can make one.
	Make
)

// Locked is a record under its lock. Time and token were taken after the lock was acquired: a number that was drawn before
// could be smaller than that of a transaction that held the lock.
type Locked struct {
	// Place is that of the key. This package sets it.
	Place Place
	// Record is the record of the key, or driver.Absent.
	Record driver.Record
	// Err wraps ErrCollision, driver.ErrUnreadable or ErrLocked. Record is then absent, and nothing may be written to it.
	Err error
	// Now is in whole microseconds.
	Now   time.Time
	Drawn uint64
}

// Found sets what was read at a place, a record or an error, in those of out whose keys have that place. keys are in the order
// of their places.
func Found(keys []ID, out []Locked, place Place, consumer string, r driver.Record, err error) {
	at, _ := slices.BinarySearchFunc(keys, place, func(id ID, p Place) int { return cmp.Compare(id.Place, p) })
	for ; at < len(keys) && keys[at].Place == place; at++ {
		l, k := &out[at], &keys[at].Key
		l.Record, l.Err = driver.Record{}, err
		switch {
		case k.Consumer != consumer || err == nil && r.Key != *k:
			l.Err = ErrCollision
		case err == nil:
			l.Record = r
		}
	}
}

// before returns the record, or nil if it is absent.
func (l *Locked) before() *driver.Record {
	if l.Record.State == driver.Absent {
		return nil
	}
	return &l.Record
}

// ErrCollision reports that two keys have one [Place]. A claim of the second key fails. Other operations find no record for it.
var ErrCollision = fmt.Errorf("%w: its place is that of another key", driver.ErrUnreadable)

// ErrLocked reports a record that another session has locked, if the caller did not wait for it.
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
		return addAudit(tx, PlaceOf(&e.Key), &e)
	})
	if err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, err)
	}
	return r, o, nil
}

// lockOne locks the record of one key.
func lockOne(tx Tx, k *driver.Key) (*Locked, error) {
	locked, err := tx.Lock([]ID{{*k, PlaceOf(k)}}, Wait)
	if err != nil {
		return nil, err
	}
	return &locked[0], unlessCollision(locked[0].Err)
}

// unlessCollision drops ErrCollision: for all operations but claims, a key that cannot have a record just has none.
func unlessCollision(err error) error {
	if errors.Is(err, ErrCollision) {
		return nil
	}
	return err
}

// CheckWorks checks each work of a call. Its error is a *driver.ItemError.
func CheckWorks(w []driver.Work, check func(*driver.Work) error) error {
	for i := range w {
		if err := check(&w[i]); err != nil {
			return &driver.ItemError{Index: i, Err: err}
		}
	}
	return nil
}

// CheckWork refuses effects other than statements, rows that [driver.Statements.Check] refuses, acknowledgements that ack
// refuses, and messages to no queue. It clears effects that are a nil *driver.Statements.
func CheckWork(w *driver.Work, ack func(*driver.Settlement) error) error {
	if w.Effects != nil {
		e, ok := w.Effects.(*driver.Statements)
		if !ok {
			return fmt.Errorf("effects of type %T: %w", w.Effects, driver.ErrUnsupported)
		}
		if e == nil {
			w.Effects = nil
		} else if err := e.Check(); err != nil {
			return err
		}
	}
	if w.Ack != nil {
		if err := ack(w.Ack); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	for i := range w.Emit {
		if w.Emit[i].Queue == "" {
			return fmt.Errorf("emitted message %d names no queue", i)
		}
	}
	return nil
}

// Offers reports whether effects points to a *driver.Statements, and sets that to an empty buffer.
func (s *Store) Offers(effects any) bool {
	e, ok := effects.(**driver.Statements)
	if ok {
		*e = &driver.Statements{}
	}
	return ok
}

var (
	_ driver.RecordInspector = (*Store)(nil)
	_ driver.CaseLister      = (*Store)(nil)
	_ driver.Operator        = (*Store)(nil)
	_ driver.Sweeper         = (*Store)(nil)
	_ driver.StepStore       = (*Store)(nil)
	_ driver.LongTerm        = (*Store)(nil)
	_ driver.AuditLog        = (*Store)(nil)
	_ driver.RefusalLog      = (*Store)(nil)
	_ driver.DuplicateLog    = (*Store)(nil)
)
