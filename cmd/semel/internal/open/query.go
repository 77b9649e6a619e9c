package open

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/adapters/mysql"
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
) error {
	t, err := Parse(flag, raw)
	if err != nil {
		return err
	}
	q := querying{flag: flag, query: query, columns: columns, each: each}
	switch t.kind {
	case sqliteKind:
		return q.sqlite(ctx, t)
	case postgresKind:
		return q.postgres(ctx, t)
	case mysqlKind:
		return q.mysql(ctx, t)
	}
	return output.Usage("--%s %s:// takes no query", flag, t.Scheme).WithHint("--%s 'sqlite:app.db', or a file of JSON lines", flag)
}

type querying struct {
	flag, query string
	columns     func([]string) error
	each        func([]any) error
}

// refused is a statement that the database does not take: the user's mistake.
func refused(err error) error {
	return output.Usage("--query: %w", err)
}

func (q querying) sqlite(ctx context.Context, t Target) (err error) {
	if _, err := os.Stat(t.Path); err != nil {
		return unreachableFile(t, err)
	}
	params := url.Values{"mode": {"rw"}, "_pragma": {"query_only(1)", "busy_timeout(5000)"}}
	path := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(t.Path)
	db, err := sql.Open("sqlite", "file:"+path+"?"+params.Encode())
	if err != nil {
		return unreachableFile(t, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return q.run(ctx, db)
}

func (q querying) mysql(ctx context.Context, t Target) (err error) {
	cfg, err := mysql.ParseURL(*t.conn)
	if err != nil {
		return output.Usage("--%s %s: %w", q.flag, t.Shown, err)
	}
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return mysqlError(t, err)
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return mysqlError(t, err)
	}
	defer func() { _ = tx.Rollback() }() // it wrote nothing
	each := q.each
	q.each = func(values []any) error {
		for i, v := range values {
			if text, ok := v.([]byte); ok {
				values[i] = string(text)
			}
		}
		return each(values)
	}
	return q.run(ctx, tx)
}

// run runs the query of database/sql.
func (q querying) run(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (err error) {
	rows, err := db.QueryContext(ctx, q.query)
	if err != nil {
		return refused(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return refused(err)
	}
	if err := q.columns(names); err != nil {
		return err
	}
	values, dest := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return refused(err)
		}
		if err := q.each(values); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return refused(err)
	}
	return nil
}

func (q querying) postgres(ctx context.Context, t Target) error {
	cfg, err := pgxpool.ParseConfig(*t.conn) // a pool's, because the URL may have the parameters of one
	if err != nil {
		return output.Usage("--%s %s: %w", q.flag, t.Shown, err)
	}
	c, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return unreachableServer(t, err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	tx, err := c.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return unreachableServer(t, err)
	}
	rows, err := tx.Query(ctx, q.query)
	if err != nil {
		return refused(err)
	}
	defer rows.Close()
	more := rows.Next() // the server's refusal comes with the first row
	if err := rows.Err(); err != nil {
		return refused(err)
	}
	var names []string
	for _, f := range rows.FieldDescriptions() {
		names = append(names, f.Name)
	}
	if err := q.columns(names); err != nil {
		return err
	}
	for ; more; more = rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return refused(err)
		}
		if err := q.each(values); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return refused(err)
	}
	return nil
}
