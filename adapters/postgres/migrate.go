package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver/rowstore"
)

//go:embed schema/0001.sql
var schema0001 string

// migrations are applied in order, each once; the first makes schema 1. A published one is never edited.
var migrations = []string{schema0001}

// schemaVersion is what this program works with.
var schemaVersion = len(migrations)

// migrateLock is the advisory lock that migrating processes take in turn ("semel" in ASCII).
const migrateLock = 0x73656d656c

// sqlThere reports whether the tables exist. It reads the catalog itself: to_regclass could remember the time before the
// lock was taken.
const sqlThere = `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relname = 'semel_schema' AND n.nspname = ANY (current_schemas(false)))`

// SchemaSQL is the SQL that Migrate runs on an empty database.
func SchemaSQL() string { return strings.Join(migrations, "\n") }

// Migrate updates the schema of the database to the version of this program. It only goes forward, in one transaction, may
// be repeated, and several processes may call it at once. The error is a *[SchemaError] when a newer semel made the tables.
//
// Existing tables are changed while no other transaction uses them. Migrate waits and gives way in turn, so that running
// workers are never held up for long, and gives up after a minute.
func Migrate(ctx context.Context, url string) (from, to int, err error) {
	cfg, err := parse(url, Options{MaxConns: 1})
	if err != nil {
		return 0, 0, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return 0, 0, fmt.Errorf("migrate database %s: %w", shown(cfg), explain(err))
	}
	defer pool.Close()
	return MigratePool(ctx, pool)
}

// MigratePool is [Migrate] with a connection of the program's own pool.
func MigratePool(ctx context.Context, pool *pgxpool.Pool) (from, to int, err error) {
	from, to, err = migrate(ctx, pool)
	return from, to, rowstore.Wrap(explain(err), "migrate database %s", shown(pool.Config()))
}

const (
	// changeWait is how long a table that is to be changed is waited for. Others that need it wait meanwhile.
	changeWait = time.Second
	// changePause is how long Migrate then gives way, changeTries how often it tries.
	changePause = time.Second
	changeTries = 30
)

func migrate(ctx context.Context, pool *pgxpool.Pool) (from, to int, err error) {
	for try := 1; ; try++ {
		from, to, err = migrateOnce(ctx, pool)
		if code(err) != codeLocked {
			return from, to, err
		}
		if try == changeTries {
			return from, to, fmt.Errorf("%w; Try: end what has the tables open for so long (SELECT * FROM pg_stat_activity), "+
				"or stop the workers", err)
		}
		select {
		case <-ctx.Done():
			return from, to, ctx.Err()
		case <-time.After(changePause):
		}
	}
}

func migrateOnce(ctx context.Context, pool *pgxpool.Pool) (from, to int, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// The lock goes with the transaction, so that this works behind a pooler too.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrateLock)); err != nil {
			return err
		}
		there := false
		if err := tx.QueryRow(ctx, sqlThere).Scan(&there); err != nil {
			return err
		}
		if there {
			if from, err = schemaOf(ctx, tx); err != nil {
				return err
			}
		}
		if from > schemaVersion {
			return schemaError(pool.Config(), from)
		}
		if from > 0 {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", changeWait.Milliseconds())); err != nil {
				return err
			}
		}
		for v := from; v < schemaVersion; v++ {
			// Several statements at once need the simple protocol.
			_, err := tx.Conn().PgConn().Exec(ctx, migrations[v]).ReadAll()
			if err == nil {
				_, err = tx.Exec(ctx, "UPDATE semel_schema SET version = $1", v+1)
			}
			if err != nil {
				return fmt.Errorf("schema %d: %w", v+1, err)
			}
		}
		return nil
	})
	if err != nil {
		return from, from, err
	}
	return from, schemaVersion, nil
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func schemaOf(ctx context.Context, q querier) (version int, err error) {
	err = q.QueryRow(ctx, "SELECT version FROM semel_schema").Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errors.New("table semel_schema has no row")
	}
	return version, err
}
