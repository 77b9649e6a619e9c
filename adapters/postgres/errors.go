package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"

	"github.com/semel-dev/semel/driver/rowstore"
)

// ErrClosed reports the use of a database after Close.
var ErrClosed = errors.New("postgres: database is closed")

// SchemaError reports that the database's schema is not the one that this program works with.
type SchemaError = rowstore.SchemaError

func schemaError(cfg *pgxpool.Config, have int) error {
	return &SchemaError{
		Database: shown(cfg), Have: have, Want: schemaVersion, Adapter: "postgres",
		Migrate: fmt.Sprintf("postgres.Migrate(ctx, url), semel migrate --store '%s'", storeURL(cfg)),
	}
}

// errRolledBack reports a COMMIT that the server rolled back without an error, because the transaction was aborted before.
var errRolledBack = errors.New("the server rolled the transaction back: an earlier statement of it had failed")

// SQLSTATEs that the adapter acts on. semel's own functions raise those of class SE.
const (
	codeLocked    = "55P03" // a lock was waited for in vain
	codeCancelled = "57014" // a statement took too long, or a person cancelled it
	codeGuard     = "SEM01" // a guarded write did not match every item
	codeFloor     = "SEM02" // a token was overtaken by a purge: draw again
	codeForeign   = "SEM03" // the handler ended the transaction
	codeQueue     = "SEM04" // a queue is not there any more: make it again
	codeReadOnly  = "25006"
	codeUnique    = "23505"
	codeDamaged   = "XX001" // a page cannot be read
)

// code returns the SQLSTATE of an error, "" when it is not the server's
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// isTaken reports that a record is there already whose insert was to come first.
func isTaken(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == codeUnique && e.TableName == "semel_record"
}

// definite reports that nothing of the transaction was committed: the server refused, or COMMIT was never sent. After a
// broken connection, a deadline or a FATAL message (a backend that was terminated while it committed) the outcome is
// unknown.
func definite(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.SeverityUnlocalized == "ERROR" || (e.SeverityUnlocalized == "" && e.Severity == "ERROR")
	}
	return isArgs(err) || isRows(err) || errors.Is(err, errRolledBack) || pgconn.SafeToRetry(err)
}

// notSent marks an error before anything was sent.
func notSent(err error) error {
	if isItem(err) || errors.Is(err, driver.ErrNotCommitted) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrNotCommitted, err)
}

// outage reports an error of a server that can write for nobody: its disk is full or broken, it has no connection left, it
// is read-only, or it shuts down.
func outage(err error) bool {
	switch c := code(err); c {
	case "53100", "53300", "58030", codeReadOnly:
		return true
	default:
		return strings.HasPrefix(c, "08") && c != "08P01" || strings.HasPrefix(c, "57P")
	}
}

// environmental reports an error that need not be the fault of the statement: another transaction, the server, the disk. It
// can be, if it recurs while other statements succeed: a function that raises such a code, a damaged page of one table, a
// statement that needs too much time or memory.
func environmental(err error) bool {
	c := code(err)
	if c == "" {
		return !isRows(err) && !isArgs(err)
	}
	switch c {
	case "08P01", // another number of arguments than the statement has
		"25001", // VACUUM and its like in a transaction
		"55000", // currval before nextval, a view that takes no rows
		"55P02", // a setting that cannot be changed here
		"55P04": // a new value of an enum, before it was committed
		return false
	case "0A000":
		return isStale(err)
	case "26000", "42P05", codeQueue: // prepared statements got lost (see explain), or a queue
		return true
	}
	// Connection, transaction state, serialization and deadlock, disk and memory, locks, cancelled, I/O, internal.
	classes := []string{"08", "25", "40", "53", "55", "57", "58", "XX"}
	return slices.ContainsFunc(classes, func(class string) bool { return strings.HasPrefix(c, class) })
}

// isStale reports a statement that was prepared before its table changed. The connection forgets it, so that the next
// attempt works.
func isStale(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "0A000" && e.Routine == "RevalidateCachedQuery"
}

// wrote translates an error of a write. If certainly nothing was committed it wraps driver.ErrNotCommitted.
func wrote(err error) error {
	if err == nil || isItem(err) || errors.Is(err, driver.ErrNotCommitted) {
		return err
	}
	switch {
	case !definite(err):
	case outage(err):
		return fmt.Errorf("%w: %w: %w", driver.ErrNotCommitted, driver.ErrOutage, explain(err))
	case code(err) == codeLocked:
		return fmt.Errorf("%w: %w: %w", driver.ErrNotCommitted, driver.ErrBlocked, explain(err))
	default:
		return fmt.Errorf("%w: %w", driver.ErrNotCommitted, explain(err))
	}
	return explain(err)
}

// explain adds a hint to common errors of the server.
func explain(err error) error {
	hint := ""
	switch code(err) {
	case "28P01", "28000":
		hint = "check user and password (URL, PGPASSWORD or ~/.pgpass) and the server's pg_hba.conf"
	case "3D000":
		hint = "create the database, or correct its name in the URL"
	case "42P01", "3F000":
		hint = "a table is missing: run semel migrate, and check search_path"
	case "42501":
		hint = "the role lacks a privilege on semel's tables: grant it, or use the role that ran semel migrate"
	case codeReadOnly:
		hint = "the server is read-only (a standby, or default_transaction_read_only): use the primary"
	case "53300":
		hint = "the server has no connection left: lower pool_max_conns (semel's MaxConns), or raise max_connections"
	case "53100":
		hint = "the server's disk is full: nothing was written; free space"
	case "26000", "42P05":
		hint = "prepared statements got lost, as behind a pooler in transaction mode: " +
			"add default_query_exec_mode=exec to the URL, or enable prepared statements in the pooler"
	}
	if hint == "" {
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("no response in time: %w", err)
		}
		return err
	}
	return fmt.Errorf("%w; Try: %s", err, hint)
}
