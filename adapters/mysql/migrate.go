package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/semel-dev/semel/driver/rowstore"
)

//go:embed schema/0001.sql
var schema0001 string

// migrations are applied in order; the first makes schema 1. A published one is never edited. DDL commits statement by
// statement, so each migration can be repeated, and its last statement sets the version.
var migrations = []string{schema0001}

// schemaVersion is the version that this program works with.
var schemaVersion = len(migrations)

// migrateWait is how long Migrate waits for another process that migrates, in seconds.
const migrateWait = 60

// SchemaSQL is the SQL that Migrate runs on an empty database.
func SchemaSQL() string { return strings.Join(migrations, "\n") }

// SchemaError reports that the database's schema is not the one that this program works with.
type SchemaError = rowstore.SchemaError

func schemaError(name string, have int) error {
	return &SchemaError{
		Database: name, Have: have, Want: schemaVersion, Adapter: "mysql",
		Migrate: fmt.Sprintf("mysql.Migrate(ctx, url), semel migrate --store '%s'", name),
	}
}

// Migrate updates the schema of the database to the version of this program. It only goes forward, may be repeated, and
// several processes may call it at once. The error is a *[SchemaError] when a newer semel made the tables.
func Migrate(ctx context.Context, address string) (from, to int, err error) {
	o, err := Options{MaxConns: 1}.withDefaults()
	if err != nil {
		return 0, 0, err
	}
	db, _, err := connect(ctx, address, o)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.migrate(ctx)
}

func (db *DB) migrate(ctx context.Context) (from, to int, err error) {
	c, err := db.pool.Conn(ctx)
	if err == nil {
		from, err = migrate(ctx, c, db.name)
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return from, from, fmt.Errorf("migrate database %s: %w", db.name, explain(err))
	}
	return from, schemaVersion, nil
}

func migrate(ctx context.Context, c *sql.Conn, name string) (from int, err error) {
	var locked sql.NullInt64
	const lock = "SELECT GET_LOCK(LEFT(CONCAT('semel-migrate-', DATABASE()), 64), ?)"
	if err := c.QueryRowContext(ctx, lock, migrateWait).Scan(&locked); err != nil {
		return 0, err
	}
	if locked.Int64 != 1 {
		return 0, errors.New("another session migrates this database; Try: again when it has ended (SHOW PROCESSLIST)")
	}
	defer func() {
		_, end := c.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(LEFT(CONCAT('semel-migrate-', DATABASE()), 64))")
		err = errors.Join(err, end)
	}()
	if from, err = schemaOf(ctx, c); err != nil {
		return from, err
	}
	if from > schemaVersion {
		return from, schemaError(name, from)
	}
	for v := from; v < schemaVersion; v++ {
		for _, sql := range strings.Split(migrations[v], ";\n") {
			if _, err := c.ExecContext(ctx, sql); err != nil && code(err) != errEmpty {
				return from, fmt.Errorf("schema %d: %w", v+1, err)
			}
		}
	}
	return from, nil
}

// schemaOf reads the version of the schema; 0 = there are no semel tables.
func schemaOf(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (version int, err error) {
	err = q.QueryRowContext(ctx, "SELECT version FROM semel_schema WHERE one = 1").Scan(&version)
	if code(err) == errNoTable || errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return version, err
}
