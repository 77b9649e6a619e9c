package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/semel-dev/semel/driver"
)

// The errors of the server that the adapter reacts to
// (https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html).
const (
	errLockWait    = 1205
	errLockTable   = 1206
	errDeadlock    = 1213
	errNull        = 1048
	errEmpty       = 1065
	errNoTable     = 1146
	errNoSavepoint = 1305
)

var (
	// outages are errors of a server that can write for nobody: full disk, read-only, shutdown, no connection left, a node of
	// Galera that is not part of its cluster (1047).
	outages = []uint16{3, 1021, 1026, 1040, 1047, 1053, 1114, 1203, 1290, 1792, 1836, 3100}
	// transients need not be the fault of the statement: memory, storage engine, interruption.
	transients = []uint16{errDeadlock, 1030, 1037, 1038, 1041, errLockTable, 1317, 1969, 3024}
)

// ErrClosed reports the use of a database after Close.
var ErrClosed = errors.New("mysql: database is closed")

// code returns the number of an error of the server, or 0.
func code(err error) uint16 {
	var e *mysqldriver.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

func outage(err error) bool { return slices.Contains(outages, code(err)) }

// rollsBack reports an error, other than a deadlock, with which the server rolls back the whole transaction and not the statement.
func (db *DB) rollsBack(err error) bool {
	n := code(err)
	return n == errLockTable || n == errLockWait && db.facts.RollbackOnTimeout
}

// broken reports an error of the connection.
func broken(err error) bool {
	var n net.Error
	return errors.Is(err, mysqldriver.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn) || errors.As(err, &n)
}

// refused returns the error of an item whose statement was refused, or err if that does not concern the item.
func refused(item int, err error) error {
	switch n := code(err); {
	case errors.Is(err, context.DeadlineExceeded): // it may run for too long, and is no outage
		return &driver.ItemError{Index: item, Err: err, Transient: true}
	case errors.Is(err, mysqldriver.ErrPktTooLarge):
		return &driver.ItemError{Index: item, Err: err}
	case n == 0 || n == errDeadlock || outage(err):
		return err
	case n == errLockWait:
		return &driver.ItemError{Index: item, Err: fmt.Errorf("%w: %w; Try: SELECT * FROM information_schema.innodb_trx", driver.ErrBlocked, err)}
	default:
		return &driver.ItemError{Index: item, Err: err, Transient: slices.Contains(transients, n)}
	}
}

// wrote translates an error of a transaction. committing: COMMIT was sent, so that a broken connection leaves the outcome
// unknown. In all other cases nothing was written.
func wrote(err error, committing bool) error {
	item := (*driver.ItemError)(nil)
	switch n := code(err); {
	case err == nil || errors.As(err, &item) || errors.Is(err, driver.ErrNotCommitted):
		return err
	case n == 0 && committing:
		return err
	case outage(err) || broken(err):
		return fmt.Errorf("%w: %w: %w", driver.ErrNotCommitted, driver.ErrOutage, explain(err))
	case n == errLockWait:
		return fmt.Errorf("%w: %w: %w", driver.ErrNotCommitted, driver.ErrBlocked, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrNotCommitted, explain(err))
}

var hints = map[uint16]string{
	1044:       "the user may not use this database: GRANT ALL ON database.* TO user",
	1045:       "check user and password in the URL, and the hosts of the user (SELECT user, host FROM mysql.user)",
	1049:       "create the database (CREATE DATABASE), or correct its name in the URL",
	1142:       "the user lacks a privilege on semel's tables: grant it, or use the user that ran semel migrate",
	errNoTable: "a table is missing: run semel migrate",
	1153:       "raise max_allowed_packet, or keep bodies and results elsewhere",
	1047:       "this node of the cluster is not ready: wait until it has joined (SHOW STATUS LIKE 'wsrep_%'), or use another node",
	1040:       "the server has no connection left: lower Options.MaxConns, or raise max_connections",
	1290:       "the server is read-only: use the primary",
	1836:       "the server is read-only: use the primary",
	1698:       "the user may only connect through the server's socket: create a user with a password",
}

// explain adds a hint to common errors of the server.
func explain(err error) error {
	if hint := hints[code(err)]; hint != "" {
		return fmt.Errorf("%w; Try: %s", err, hint)
	}
	return err
}
