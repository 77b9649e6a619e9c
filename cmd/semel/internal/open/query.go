package open

import (
	"context"
	"database/sql"
	"errors"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// IsURL tells a URL of a database from the path of a file.
func IsURL(s string) bool {
	if keywordDSN(s) {
		return true // what opens it says that it has to be one
	}
	for _, k := range kinds {
		if k.matches(s) {
			return true
		}
	}
	return false
}

// Query runs one statement on the database of a URL, which need not have tables of semel, and calls each with every row
// as it comes. The statement cannot write: SQLite's query_only, a read-only transaction elsewhere. columns is called
// once before. Errors of either end it and are returned as they are.
func Query(
	ctx context.Context, flag, raw, query string, columns func([]string) error, each func([]any) error,
) (err error) {
	t, err := Parse(flag, raw)
	if err != nil {
		return err
	}
	if t.kind.sql == nil {
		return output.Usage("--%s %s:// takes no query", flag, t.Scheme).WithHint("--%s 'sqlite:app.db', or a file of JSON lines", flag)
	}
	db, err := t.kind.sql(t, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// SQLite's driver has no read-only transactions: its connections are read-only.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: t.kind != sqliteKind})
	if err != nil {
		return t.explain("open", err)
	}
	defer func() { _ = tx.Rollback() }() // it wrote nothing
	err = rows(ctx, tx, query, columns, each)
	if refused := (*queryError)(nil); errors.As(err, &refused) {
		return output.Usage("--query: %w", refused.err)
	}
	return err
}

// queryError is a statement that the database does not take: the user's mistake.
type queryError struct{ err error }

func (r *queryError) Error() string { return r.err.Error() }

func rows(ctx context.Context, tx *sql.Tx, query string, columns func([]string) error, each func([]any) error) (err error) {
	found, err := tx.QueryContext(ctx, query)
	if err != nil {
		return &queryError{err}
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	names, err := found.Columns()
	if err != nil {
		return &queryError{err}
	}
	if err := columns(names); err != nil {
		return err
	}
	values, dest := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		dest[i] = &values[i]
	}
	for found.Next() {
		if err := found.Scan(dest...); err != nil {
			return &queryError{err}
		}
		for i, v := range values {
			if text, ok := v.([]byte); ok {
				values[i] = string(text)
			}
		}
		if err := each(values); err != nil {
			return err
		}
	}
	if err := found.Err(); err != nil {
		return &queryError{err}
	}
	return nil
}

// Execute runs the statements of a file on the database of a URL, in one transaction: the tables of the application. PostgreSQL
// refuses statements that cannot run in one.
func Execute(ctx context.Context, raw, statements string) (err error) {
	t, err := Parse("store", raw)
	if err != nil {
		return err
	}
	if t.kind.sql == nil || t.kind == mysqlKind {
		return output.Usage("--sql: %s:// takes no SQL", t.Scheme).WithHint("--store 'sqlite:orders.db'")
	}
	db, err := t.kind.sql(t, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return t.explain("open", err)
	}
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		return errors.Join(output.Failed("--sql: %w", err), tx.Rollback())
	}
	return tx.Commit()
}
