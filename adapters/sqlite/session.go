package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/driver/sqltext"
)

// maxUserStatements bounds the prepared statements of handlers. Our own are few and are kept.
const maxUserStatements = 256

// session is one connection with its prepared statements, below database/sql: a write of the hot path is a bind and a step,
// without pool, conversions and locks. One goroutine at a time uses it.
type session struct {
	conn  driver.Conn
	stmts map[string]*stmt
	user  map[string]*userStatement
	clock uint64 // counts uses of user statements
	guard *guard // of a connection that runs handlers' SQL
}

// stmt is a prepared statement with its own argument buffer.
type stmt struct {
	sql  string
	s    driver.Stmt
	e    driver.StmtExecContext
	q    driver.StmtQueryContext
	args []driver.NamedValue
	dest []driver.Value
	row  rowstore.Row
}

func newSession(c driver.Conn) *session {
	return &session{conn: c, stmts: map[string]*stmt{}, user: map[string]*userStatement{}}
}

// background is the context of every statement: a write takes microseconds, and interrupting it would only make its outcome
// unknown.
var background = context.Background()

func prepare(c driver.Conn, query string) (*stmt, error) {
	s, err := c.Prepare(query)
	if err != nil {
		return nil, err
	}
	e, ok1 := s.(driver.StmtExecContext)
	q, ok2 := s.(driver.StmtQueryContext)
	if !ok1 || !ok2 {
		return nil, errors.Join(fmt.Errorf("driver statement %T cannot take a context", s), s.Close())
	}
	return &stmt{sql: query, s: s, e: e, q: q}, nil
}

func (s *session) prepared(query string) (*stmt, error) {
	if st, ok := s.stmts[query]; ok {
		return st, nil
	}
	st, err := prepare(s.conn, query)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", sqltext.Head(query), err)
	}
	s.stmts[query] = st
	return st, nil
}

// exec runs one of our own statements and returns the number of changed rows.
func (s *session) exec(query string, args ...any) (int64, error) {
	st, err := s.prepared(query)
	if err != nil {
		return 0, err
	}
	return st.exec(args)
}

// query calls row for each row. The Row is valid during the call; strings and byte slices stay valid.
func (s *session) query(row func(rowstore.Row) error, query string, args ...any) error {
	st, err := s.prepared(query)
	if err != nil {
		return err
	}
	return st.query(row, args)
}

// one reads a single row; ok is false when there is none.
func (s *session) one(dest []*int64, query string, args ...any) (ok bool, err error) {
	err = s.query(func(v rowstore.Row) error {
		ok = true
		for i, d := range dest {
			*d = v.Int(i)
		}
		return nil
	}, query, args...)
	return ok, err
}

func (st *stmt) bind(args []any) []driver.NamedValue {
	for len(st.args) < len(args) {
		st.args = append(st.args, driver.NamedValue{Ordinal: len(st.args) + 1})
	}
	for i, a := range args {
		st.args[i].Value = a
	}
	return st.args[:len(args)]
}

func (st *stmt) exec(args []any) (int64, error) {
	res, err := st.e.ExecContext(background, st.bind(args))
	if err != nil {
		return 0, err
	}
	if res == nil {
		return 0, nil
	}
	return res.RowsAffected()
}

func (st *stmt) query(row func(rowstore.Row) error, args []any) error {
	rows, err := st.q.QueryContext(background, st.bind(args))
	if err != nil {
		return err
	}
	if n := len(rows.Columns()); len(st.row) != n {
		st.dest, st.row = make([]driver.Value, n), make(rowstore.Row, n)
	}
	for {
		err := rows.Next(st.dest)
		if errors.Is(err, io.EOF) {
			return rows.Close()
		}
		for i, v := range st.dest {
			st.row[i] = v
		}
		if err == nil {
			err = row(st.row)
		}
		if err != nil {
			return errors.Join(err, rows.Close())
		}
	}
}

// close closes prepared statements first, because SQLite keeps a connection alive for them.
func (s *session) close() error {
	defer s.guard.close()
	return errors.Join(s.closeStatements(), s.conn.Close())
}

func (s *session) closeStatements() error {
	var errs []error
	for _, st := range s.stmts {
		errs = append(errs, st.s.Close())
	}
	for _, u := range s.user {
		errs = append(errs, u.close())
	}
	clear(s.stmts)
	clear(s.user)
	return errors.Join(errs...)
}
