package sqlite

import (
	"errors"
	"fmt"
	"net/url"

	sqlite3 "modernc.org/sqlite"
	sqlite3lib "modernc.org/sqlite/lib"

	"github.com/semel-dev/semel/driver"

	"github.com/semel-dev/semel/driver/rowstore"
)

// ErrClosed reports the use of a database after Close.
var ErrClosed = errors.New("sqlite: database is closed")

// SchemaError reports that the file's schema is not the one that this program works with, or that there is no file.
type SchemaError = rowstore.SchemaError

func schemaError(path string, have int, absent bool) error {
	escaped := (&url.URL{Path: path}).EscapedPath()
	return &SchemaError{
		Database: path, Have: have, Want: schemaVersion, Absent: absent, Adapter: "sqlite",
		Migrate: fmt.Sprintf("sqlite.Migrate(ctx, %q), semel migrate --store 'sqlite:%s'", path, escaped),
	}
}

// code returns SQLite's primary result code of an error (https://www.sqlite.org/rescode.html), 0 when it is not SQLite's.
func code(err error) int {
	var e *sqlite3.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// busy reports an error that passes and after which nothing was written: another process holds the lock.
func busy(err error) bool {
	c := code(err)
	return c == sqlite3lib.SQLITE_BUSY || c == sqlite3lib.SQLITE_LOCKED || c == sqlite3lib.SQLITE_PROTOCOL
}

// outage reports an error of a file that nobody can write.
func outage(err error) bool {
	switch code(err) {
	case sqlite3lib.SQLITE_READONLY, sqlite3lib.SQLITE_IOERR, sqlite3lib.SQLITE_FULL, sqlite3lib.SQLITE_CANTOPEN, sqlite3lib.SQLITE_NOTADB:
		return true
	}
	return false
}

// environmental reports an error that need not be the fault of the statement: the disk, the memory, the file. It can be, if
// it recurs while other statements succeed: a damaged full-text index, too much memory.
func environmental(err error) bool {
	switch code(err) {
	case sqlite3lib.SQLITE_BUSY, sqlite3lib.SQLITE_LOCKED, sqlite3lib.SQLITE_NOMEM, sqlite3lib.SQLITE_INTERRUPT, sqlite3lib.SQLITE_CORRUPT, sqlite3lib.SQLITE_PROTOCOL:
		return true
	}
	return outage(err)
}

// refusedBy returns an error of an item whose effects were refused, or of the store.
func refusedBy(item int, err error) error {
	if outage(err) || busy(err) && code(err) != sqlite3lib.SQLITE_LOCKED {
		return err
	}
	return &driver.ItemError{Index: item, Err: err, Transient: environmental(err)}
}

// explain adds a hint to common errors. The caller fails closed: nothing was written, and nothing may be acknowledged.
func explain(path string, err error) error {
	if item := (*driver.ItemError)(nil); errors.As(err, &item) {
		return err
	}
	if outage(err) {
		err = fmt.Errorf("%w: %w", driver.ErrOutage, err)
	}
	if busy(err) {
		return fmt.Errorf("database %s is locked by another process: %w: %w: %w", path, driver.ErrNotCommitted, driver.ErrBlocked, err)
	}
	if format, ok := hints[code(err)]; ok {
		return fmt.Errorf(format, path, err)
	}
	return err
}

var hints = map[int]string{
	sqlite3lib.SQLITE_FULL:     "database %s is full (disk or max_page_count): %w",
	sqlite3lib.SQLITE_READONLY: "database %s is read-only: %w",
	sqlite3lib.SQLITE_NOTADB:   "file %s is not an SQLite database: %w",
	sqlite3lib.SQLITE_CORRUPT:  "database %s is damaged: %w",
	sqlite3lib.SQLITE_CANTOPEN: "open database %s: %w",
}
