package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/semel-dev/semel"
)

// sqlTable is a table of an SQL database.
type sqlTable struct {
	db   *sql.DB
	name string
	// mysql: MySQL's SQL has other placeholders, and another form to insert a row that may be there.
	mysql bool
}

const (
	createTable = `CREATE TABLE IF NOT EXISTS %s (id VARCHAR(255) PRIMARY KEY, body TEXT NOT NULL, at BIGINT NOT NULL)`
	insertRow   = `INSERT INTO %s (id, body, at) VALUES ($1, $2, $3)`
	updateRow   = `UPDATE %s SET body = $1, at = $2 WHERE id = $3 AND at <= $4`
	selectBody  = `SELECT body FROM %s WHERE id = $1`
	selectAll   = `SELECT body FROM %s`
	countRows   = `SELECT count(*) FROM %s`
	deleteRow   = `DELETE FROM %s WHERE id = $1`
)

var placeholder = regexp.MustCompile(`\$\d`)

func (t sqlTable) sql(statement string) string {
	statement = fmt.Sprintf(statement, t.name)
	if t.mysql {
		return placeholder.ReplaceAllString(statement, "?")
	}
	return statement
}

func (t sqlTable) create(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, t.sql(createTable)); err != nil {
		return fmt.Errorf("create the table %s: %w", t.name, err)
	}
	return nil
}

func (t sqlTable) put(ctx context.Context, r row, until int64) (bool, error) {
	insert := t.sql(insertRow) + " ON CONFLICT (id) DO NOTHING"
	if t.mysql {
		insert = strings.Replace(t.sql(insertRow), "INSERT", "INSERT IGNORE", 1)
	}
	wrote, err := t.exec(ctx, insert, r.id, r.text, r.at)
	if wrote || err != nil || until == never {
		return wrote, err
	}
	return t.exec(ctx, t.sql(updateRow), r.text, r.at, r.id, until)
}

// exec reports whether the statement wrote anything.
func (t sqlTable) exec(ctx context.Context, statement string, args ...any) (bool, error) {
	res, err := t.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func (t sqlTable) get(ctx context.Context, id string) (text string, err error) {
	err = t.db.QueryRowContext(ctx, t.sql(selectBody), id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return text, err
}

func (t sqlTable) remove(ctx context.Context, id string) error {
	_, err := t.exec(ctx, t.sql(deleteRow), id)
	return err
}

func (t sqlTable) all(ctx context.Context) (out []string, err error) {
	rows, err := t.db.QueryContext(ctx, t.sql(selectAll))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

func (t sqlTable) count(ctx context.Context) (n int, err error) {
	err = t.db.QueryRowContext(ctx, t.sql(countRows)).Scan(&n)
	return n, err
}

func (t sqlTable) handler(work func(context.Context, *semel.Attempt) (row, error)) semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error {
		r, err := work(ctx, a)
		if err != nil {
			return err
		}
		tx.ExecRows(1, t.sql(insertRow), r.id, r.text, r.at)
		return nil
	})
}
