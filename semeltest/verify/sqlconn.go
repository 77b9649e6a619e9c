package verify

import (
	"context"
	sqldriver "database/sql/driver"
	"math"
	"strings"
)

// This file passes the calls of database/sql on to the inner driver, whatever optional interfaces that has.

// writes reports whether a query writes, by its first words.
func writes(query string) bool {
	words := strings.FieldsFunc(strings.ToUpper(query), func(r rune) bool {
		return (r < 'A' || r > 'Z') && r != '_'
	})
	for i, w := range words {
		switch w {
		case "INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "CALL":
			return i == 0 || words[0] == "WITH"
		}
	}
	return false
}

// changed returns how many rows an Exec changed. If the driver does not know, it returns the greatest number.
func changed(r sqldriver.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	n, bad := r.RowsAffected()
	if bad != nil {
		return math.MaxInt64, nil //nolint:nilerr // not known is not none
	}
	return n, nil
}

// ExecContext executes a statement as one effect.
func (c *conn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (r sqldriver.Result, err error) {
	in, ok := c.inner.(sqldriver.ExecerContext)
	if !ok {
		return nil, sqldriver.ErrSkip // database/sql prepares it
	}
	err = c.write(query, args, func() (int64, error) {
		err := c.call(func() (err error) {
			r, err = in.ExecContext(ctx, query, args)
			return err
		})
		return changed(r, err)
	})
	return r, err
}

// QueryContext queries; one that writes is an effect.
func (c *conn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (r sqldriver.Rows, err error) {
	in, ok := c.inner.(sqldriver.QueryerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	do := func() error {
		return c.call(func() (err error) {
			r, err = in.QueryContext(ctx, query, args)
			return err
		})
	}
	err = c.query(query, args, &r, do)
	return r, err
}

// query does a query, as an effect when it writes: how many rows it changed is not known before they are read.
func (c *conn) query(query string, args []sqldriver.NamedValue, rows *sqldriver.Rows, do func() error) error {
	c.p.alive()
	if !writes(query) {
		return do()
	}
	err := c.write(query, args, func() (int64, error) { return 1, do() })
	if err != nil && *rows != nil {
		_ = (*rows).Close() // the response is lost
		*rows = nil
	}
	return err
}

// Prepare prepares a statement.
func (c *conn) Prepare(query string) (sqldriver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext prepares a statement.
func (c *conn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	c.p.alive()
	s := &stmt{c: c, query: query}
	err := c.call(func() (err error) {
		if in, ok := c.inner.(sqldriver.ConnPrepareContext); ok {
			s.inner, err = in.PrepareContext(ctx, query)
		} else {
			s.inner, err = c.inner.Prepare(query)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Ping asks the inner connection.
func (c *conn) Ping(ctx context.Context) error {
	if in, ok := c.inner.(sqldriver.Pinger); ok {
		return c.call(func() error { return in.Ping(ctx) })
	}
	return nil
}

// ResetSession resets the inner connection.
func (c *conn) ResetSession(ctx context.Context) error {
	return c.call(func() error {
		if in, ok := c.inner.(sqldriver.SessionResetter); ok {
			return in.ResetSession(ctx)
		}
		return nil
	})
}

// IsValid asks the inner connection.
func (c *conn) IsValid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	in, ok := c.inner.(sqldriver.Validator)
	return !ok || in.IsValid()
}

// CheckNamedValue asks the inner connection.
func (c *conn) CheckNamedValue(v *sqldriver.NamedValue) error {
	if in, ok := c.inner.(sqldriver.NamedValueChecker); ok {
		return in.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}

// stmt is a prepared statement.
type stmt struct {
	c     *conn
	inner sqldriver.Stmt
	query string
}

// Close closes it.
func (s *stmt) Close() error { return s.c.call(s.inner.Close) }

// NumInput is the inner one's.
func (s *stmt) NumInput() int { return s.inner.NumInput() }

// CheckNamedValue asks the inner statement, then the connection.
func (s *stmt) CheckNamedValue(v *sqldriver.NamedValue) error {
	if in, ok := s.inner.(sqldriver.NamedValueChecker); ok {
		return in.CheckNamedValue(v)
	}
	return s.c.CheckNamedValue(v)
}

// Exec is not called: there is ExecContext.
func (s *stmt) Exec([]sqldriver.Value) (sqldriver.Result, error) { return nil, sqldriver.ErrSkip }

// Query is not called: there is QueryContext.
func (s *stmt) Query([]sqldriver.Value) (sqldriver.Rows, error) { return nil, sqldriver.ErrSkip }

// ExecContext executes it as one effect.
func (s *stmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (r sqldriver.Result, err error) {
	err = s.c.write(s.query, args, func() (int64, error) {
		err := s.c.call(func() (err error) {
			if in, ok := s.inner.(sqldriver.StmtExecContext); ok {
				r, err = in.ExecContext(ctx, args)
			} else {
				r, err = s.inner.Exec(values(args)) //nolint:staticcheck // what an old driver offers
			}
			return err
		})
		return changed(r, err)
	})
	return r, err
}

// QueryContext queries it; one that writes is an effect.
func (s *stmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (r sqldriver.Rows, err error) {
	do := func() error {
		return s.c.call(func() (err error) {
			if in, ok := s.inner.(sqldriver.StmtQueryContext); ok {
				r, err = in.QueryContext(ctx, args)
			} else {
				r, err = s.inner.Query(values(args)) //nolint:staticcheck // what an old driver offers
			}
			return err
		})
	}
	err = s.c.query(s.query, args, &r, do)
	return r, err
}

func values(args []sqldriver.NamedValue) []sqldriver.Value {
	out := make([]sqldriver.Value, len(args))
	for i := range args {
		out[i] = args[i].Value
	}
	return out
}
