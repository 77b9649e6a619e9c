package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver"
)

// blameless reports that the transaction was refused for something that is in it, and nobody could be named: a deferred
// constraint fails at COMMIT, and arguments and SQL are refused before the first statement is sent.
func blameless(err error) bool {
	if err == nil || !definite(err) {
		return false
	}
	var item *driver.ItemError
	if errors.As(err, &item) || code(err) == codeGuard {
		return false
	}
	return errors.Is(err, errRolledBack) || !environmental(err)
}

// runAlone runs the statements of one item, and ends them; limits hold for those of the next.
func (l *limits) runAlone(ctx context.Context, conn *pgx.Conn, list []driver.Statement) error {
	for i := range list {
		st := &list[i]
		tag, err := execAlone(ctx, conn, st)
		if err == nil {
			err = expect(st, tag)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", effectName(i, st.SQL), err)
		}
	}
	if len(list) == 0 {
		return nil
	}
	p := &pipeline{}
	e := effects{db: l.db, p: p, last: -1}
	e.endRole(list)
	e.end(-1, true, true)
	p.add(step{what: "defer constraints", item: -1}, "SET CONSTRAINTS ALL DEFERRED")
	l.add(p)
	return p.run(ctx, conn)
}

// execAlone runs one statement. What is wrong with its arguments is found before it is sent. It asks with Query, because
// Exec speaks the simple protocol when there are no arguments, and there one text may carry several statements: a COMMIT
// behind an INSERT would part the effect from its record.
func execAlone(ctx context.Context, conn *pgx.Conn, st *driver.Statement) (tag pgconn.CommandTag, err error) {
	defer catch(&err)
	rows, err := conn.Query(ctx, markEffect+st.SQL, st.Args...)
	if err == nil {
		rows.Close()
		tag, err = rows.CommandTag(), rows.Err()
	}
	if err != nil && code(err) == "" && !conn.IsClosed() && ctx.Err() == nil {
		err = &argsError{err}
	}
	return tag, err
}

// argsError reports arguments that could not be sent.
type argsError struct{ error }

func (e *argsError) Unwrap() error { return e.error }

// panicError reports that a method of an argument (Value, MarshalJSON, …) panicked while it was sent.
type panicError struct{ v any }

func (e *panicError) Error() string { return fmt.Sprintf("a method of an argument panicked: %v", e.v) }

// catch turns a panic into an error.
func catch(err *error) {
	if v := recover(); v != nil {
		*err = &panicError{v}
	}
}

// isArgs reports an error that the arguments of a statement made.
func isArgs(err error) bool {
	var (
		early   pgx.ErrPreprocessingBatch
		args    *argsError
		paniced *panicError
	)
	return errors.As(err, &early) || errors.As(err, &args) || errors.As(err, &paniced)
}

// isRows reports a number of rows that was not the one that a statement must change.
func isRows(err error) bool {
	var e *rowsError
	return errors.As(err, &e)
}
