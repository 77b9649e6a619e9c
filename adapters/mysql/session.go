package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver/rowstore"
)

// setup are the statements that a new session begins with, and each session that a handler had. They name all that a handler
// may have changed and that semel's statements depend on. DSN parameters do not do: the variable of the isolation level has
// another name on each server.
func setup(o Options, database string) []string {
	seconds := func(d time.Duration) int64 { return max(int64(d.Round(time.Second)/time.Second), 1) }
	return []string{
		"USE `" + strings.ReplaceAll(database, "`", "``") + "`",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
		fmt.Sprintf("SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', "+
			"time_zone = '+00:00', foreign_key_checks = 1, unique_checks = 1, innodb_lock_wait_timeout = %[1]d, "+
			"lock_wait_timeout = %[1]d, wait_timeout = %[2]d, timestamp = DEFAULT, sql_select_limit = DEFAULT, "+
			"character_set_client = utf8mb4, character_set_results = utf8mb4, collation_connection = utf8mb4_general_ci", seconds(o.LockWait), seconds(o.MaxTx)),
	}
}

// connector opens sessions.
type connector struct {
	sqldriver.Connector
	setup []string
}

// Connect opens a session.
func (c *connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s, ok := base.(driverSession)
	if !ok {
		return nil, errors.Join(fmt.Errorf("driver connection is a %T", base), base.Close())
	}
	x := &session{driverSession: s, setup: c.setup, lent: true}
	if err := x.clean(ctx); err != nil {
		return nil, errors.Join(err, base.Close())
	}
	return x, nil
}

// driverSession is what database/sql looks for in a connection.
type driverSession interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.NamedValueChecker
	sqldriver.Pinger
	sqldriver.SessionResetter
	sqldriver.Validator
}

// session is a connection that is set up again after a handler had it.
type session struct {
	driverSession
	setup []string
	lent  bool
}

func (s *session) clean(ctx context.Context) error {
	for _, statement := range s.setup {
		if _, err := s.ExecContext(ctx, statement, nil); err != nil {
			return err
		}
	}
	s.lent = false
	return nil
}

// ResetSession is called before each use of the connection.
func (s *session) ResetSession(ctx context.Context) error {
	err := s.driverSession.ResetSession(ctx)
	if err != nil || !s.lent {
		return err
	}
	// If the handler ended its transaction, it may have begun another one, which the setting of autocommit would commit.
	if _, err = s.ExecContext(ctx, "ROLLBACK", nil); err == nil {
		err = s.clean(ctx)
	}
	if err != nil {
		return sqldriver.ErrBadConn
	}
	return nil
}

// lend marks the session of c as one that handlers use.
func lend(c *sql.Conn) error {
	return c.Raw(func(dc any) error {
		s, ok := dc.(*session)
		if !ok {
			return fmt.Errorf("driver connection is a %T", dc)
		}
		s.lent = true
		return nil
	})
}

// runner is a connection or a transaction of database/sql.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	rowstore.Querier
}

// rollbackWait bounds a rollback after ctx is done.
const rollbackWait = 2 * time.Second

// rollback ends a transaction on c. A session that does not respond is closed, which ends it too.
func rollback(ctx context.Context, c *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
	defer cancel()
	if _, err := c.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = c.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
}
