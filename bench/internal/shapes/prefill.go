package shapes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/driver"
)

// A prefill copies one completed record n times, inside of the database: claims of as many keys would take hours. The keys are
// 36 bytes in ascending order with random ends, as UUIDv7 are, and reach from 00000000-… to efffffff-…: random keys fall
// anywhere between them, and what an order returns comes after them.

// The columns of semel_record that differ between copies: SQL of i (from 0), k (the key of the copy) and r (the record that is
// copied). All others are copied. A column that the table does not have is skipped.
var (
	postgresCopies = map[string]string{
		"place": "substring(r.place FROM 1 FOR 7) || convert_to(k, 'UTF8')", // consumer, no tenant, key
	}
	sqliteCopies = map[string]string{
		"token": "r.token + 1 + i",
		"place": "CAST(substr(r.place, 1, 7) || k AS BLOB)",
	}
)

// The keys of copies. Arguments: the first i, the last one, n.
const (
	postgresKeys = `SELECT i, format('%s-%s-7%s', lpad(to_hex(i * 4026531840 / $3::bigint), 8, '0'), lpad(to_hex(i & 65535), 4, '0'),
  substr(gen_random_uuid()::text, 16)) AS k FROM generate_series($1::bigint, $2::bigint) AS i`
	sqliteKeys = `WITH RECURSIVE c(i) AS (VALUES (?1) UNION ALL SELECT i + 1 FROM c WHERE i < ?2)
  SELECT i, printf('%08x-%04x-7%03x-8%03x-%012x', i * 4026531840 / ?3, i & 65535, random() & 4095, random() & 4095,
    random() & 0xffffffffffff) AS k FROM c`
	prefillPart = 250_000 // records in a transaction
)

// copyColumns returns the columns of the table, and what a copy has in them.
func copyColumns(names []string, differ map[string]string) (columns, values string) {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = "r." + name
		if v, ok := differ[name]; ok {
			list[i] = v
		}
	}
	return strings.Join(names, ", "), strings.Join(list, ", ")
}

// prefilled is a store to be filled; fill copies its one record.
type prefilled struct {
	store driver.Store
	fill  func(ctx context.Context, n int) error
}

// prefill makes the record that is copied, and n copies.
func (p *prefilled) prefill(ctx context.Context, e *harness.Env, n int) (u harness.Usage, err error) {
	first := newClaim()
	first.Key.Raw = "f" + first.Key.Raw[1:]
	if err := complete(ctx, p.store, []driver.Claim{first}, retention); err != nil {
		return u, err
	}
	stop := e.Watch()
	if err := p.fill(ctx, n); err != nil {
		return u, fmt.Errorf("copy %d records: %w", n, err)
	}
	return stop(), nil
}

// parts calls do with the first and the last of each part of n copies.
func parts(n int, do func(from, to int) error) error {
	for from := 0; from < n; from += prefillPart {
		if err := do(from, min(from+prefillPart, n)-1); err != nil {
			return err
		}
	}
	return nil
}

func prefilledPostgres(d *harness.Database, db *postgres.DB) *prefilled {
	return &prefilled{store: db.Store(), fill: func(ctx context.Context, n int) error {
		pool, err := d.Pool(ctx, 1)
		if err != nil {
			return err
		}
		rows, _ := pool.Query(ctx, "SELECT attname::text FROM pg_attribute WHERE attrelid = 'semel_record'::regclass "+
			"AND attnum > 0 AND NOT attisdropped ORDER BY attnum")
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		columns, values := copyColumns(names, postgresCopies)
		// The record that is copied is the only one of its key, which no copy has.
		if _, err := pool.Exec(ctx, "CREATE TEMP TABLE first AS SELECT * FROM semel_record"); err != nil {
			return err
		}
		err = parts(n, func(from, to int) error {
			_, err := pool.Exec(ctx, "INSERT INTO semel_record ("+columns+") SELECT "+values+" FROM ("+postgresKeys+") AS c, first AS r",
				from, to, n)
			return err
		})
		if err != nil {
			return err
		}
		_, err = pool.Exec(ctx, "VACUUM (ANALYZE) semel_record")
		return err
	}}
}

func prefilledSQLite(db *sqlite.DB) *prefilled {
	return &prefilled{store: db.Store(), fill: func(ctx context.Context, n int) (err error) {
		conn, err := db.SQL().Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		names, err := sqliteColumns(ctx, conn)
		if err != nil {
			return err
		}
		columns, values := copyColumns(names, sqliteCopies)
		for _, statement := range []string{
			"CREATE TEMP TABLE first AS SELECT * FROM semel_record",
			fmt.Sprintf("UPDATE semel_state SET token = token + %d", n),
		} {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return parts(n, func(from, to int) error {
			_, err := conn.ExecContext(ctx, "INSERT INTO semel_record ("+columns+") SELECT "+values+" FROM ("+sqliteKeys+") AS c, temp.first AS r",
				from, to, n)
			return err
		})
	}}
}

func sqliteColumns(ctx context.Context, conn *sql.Conn) (names []string, err error) {
	rows, err := conn.QueryContext(ctx, "SELECT name FROM pragma_table_info('semel_record')")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// order makes keys of 36 bytes.
type order struct {
	name string
	next func() string
}

// orders are random keys, and keys in ascending order after those of a prefill.
func orders() []order {
	var n atomic.Int64
	return []order{{"ordered", func() string {
		i := n.Add(1)
		return fmt.Sprintf("f%07x-%04x-7%s", i>>16, i&0xffff, newID()[15:])
	}}, {"random", newID}}
}

// value sets a figure of the order: the median of what was measured.
func (o *order) value(v map[string]float64, name string, list []float64) {
	v[o.name+"_"+name] = harness.Median(list)
}
