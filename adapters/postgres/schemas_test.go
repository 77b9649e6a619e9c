package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/semeltest/server"
)

// Making semel's schema takes the server 0.1 s of processor time, more than most tests need for the rest. So a schema
// that a test leaves as it was made is emptied and used again.

// schemas are those that no test uses at the moment.
var schemas struct {
	sync.Mutex
	base string // the server
	free []*schema
}

// schema is one with semel's tables and an empty table "ledger".
type schema struct {
	name string
	// rows are those that the migration inserts, by table; catalog is what the server's catalogs say of the schema.
	rows    map[string]json.RawMessage
	catalog string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := dropSchemas(); err != nil {
		fmt.Fprintln(os.Stderr, "drop the schemas of the tests:", err)
		code = 1
	}
	os.Exit(code)
}

func dropSchemas() error {
	if len(schemas.free) == 0 {
		return nil
	}
	return connected(schemas.base, func(ctx context.Context, c *pgx.Conn) error {
		for _, s := range schemas.free {
			if _, err := c.Exec(ctx, "DROP SCHEMA "+s.name+" CASCADE"); err != nil {
				return err
			}
		}
		return nil
	})
}

// schemaURL returns a URL of a schema with semel's tables, without rows, that no other test uses.
func schemaURL(t testing.TB) string {
	t.Helper()
	base := server.Shared(t, "postgres")
	s := takeSchema(base)
	if s == nil {
		s = makeSchema(t, base)
	}
	t.Cleanup(func() {
		if !t.Failed() && s.empty(base) == nil {
			schemas.Lock()
			defer schemas.Unlock()
			schemas.free = append(schemas.free, s)
			return
		}
		onServer(t, base, "DROP SCHEMA "+s.name+" CASCADE")
	})
	return withParam(t, base, "search_path", s.name)
}

// emptySchema returns a URL of a new schema without semel's tables: for tests that make or change them, or that look at
// pages and plans of tables that were never used.
func emptySchema(t testing.TB) string {
	t.Helper()
	base := server.Shared(t, "postgres")
	name := newSchema(t, base)
	t.Cleanup(func() { onServer(t, base, "DROP SCHEMA "+name+" CASCADE") })
	return withParam(t, base, "search_path", name)
}

func newSchema(t testing.TB, base string) string {
	t.Helper()
	name := fmt.Sprintf("semel_test_%016x", rand.Uint64())
	onServer(t, base, "CREATE SCHEMA "+name)
	return name
}

func takeSchema(base string) *schema {
	schemas.Lock()
	defer schemas.Unlock()
	schemas.base = base
	n := len(schemas.free)
	if n == 0 {
		return nil
	}
	s := schemas.free[n-1]
	schemas.free = schemas.free[:n-1]
	return s
}

func makeSchema(t testing.TB, base string) *schema {
	t.Helper()
	s := &schema{name: newSchema(t, base)}
	u := withParam(t, base, "search_path", s.name)
	_, _, err := Migrate(context.Background(), u)
	if err == nil {
		err = connected(u, func(ctx context.Context, c *pgx.Conn) (err error) {
			if _, err = c.Exec(ctx, ledgerTables); err != nil {
				return err
			}
			if s.catalog, err = readCatalog(ctx, c); err != nil {
				return err
			}
			s.rows, err = readRows(ctx, c)
			return err
		})
	}
	if err != nil {
		onServer(t, base, "DROP SCHEMA "+s.name+" CASCADE")
		t.Fatal(err)
	}
	return s
}

// errChanged: the schema is not as it was made.
var errChanged = errors.New("the schema was changed")

// empty makes the schema as it was after the migration. It is an error when a test changed more than rows, or left big
// tables or locks.
func (s *schema) empty(base string) error {
	return connected(base, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "SET search_path = "+s.name+"; SET lock_timeout = '2s'"); err != nil {
			return err
		}
		catalog, err := readCatalog(ctx, c)
		if err != nil {
			return err
		}
		if catalog != s.catalog {
			return errChanged
		}
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, sqlEmpty); err != nil {
				return err
			}
			for table, rows := range s.rows {
				sql := fmt.Sprintf("INSERT INTO %[1]s SELECT * FROM jsonb_populate_recordset(NULL::%[1]s, $1)", table)
				if _, err := tx.Exec(ctx, sql, rows); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// sqlEmpty deletes all rows and starts all sequences again. It does neither truncate nor ALTER: that changes the catalog.
const sqlEmpty = `DO $$ DECLARE t record; BEGIN
  FOR t IN SELECT oid, relname, relkind FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'S')
  LOOP
    IF t.relkind = 'r' THEN
      EXECUTE format('DELETE FROM %I', t.relname);
    ELSE
      PERFORM setval(t.oid, seqstart, false) FROM pg_sequence WHERE seqrelid = t.oid;
    END IF;
  END LOOP;
END $$`

// readCatalog sums up what the catalogs say of the current schema. Whatever is created, altered or dropped changes it, and
// so do tables that grew.
func readCatalog(ctx context.Context, c *pgx.Conn) (sum string, err error) {
	const kin = " WHERE relnamespace = current_schema()::regnamespace"
	objects := []string{
		"SELECT oid, xmin, relkind, pg_relation_size(oid) / 262144 AS size FROM pg_class" + kin,
		"SELECT oid, xmin, ' ', 0 FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
		"SELECT oid, xmin, ' ', 0 FROM pg_constraint WHERE connamespace = current_schema()::regnamespace",
		"SELECT oid, xmin, ' ', 0 FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM pg_class" + kin + ")",
		"SELECT attrelid, xmin, ' ', attnum FROM pg_attribute WHERE attrelid IN (SELECT oid FROM pg_class" + kin + ")",
		"SELECT oid, xmin, ' ', 0 FROM pg_namespace WHERE oid = current_schema()::regnamespace",
	}
	err = c.QueryRow(ctx, "SELECT md5(string_agg(o::text, ',' ORDER BY o::text)) FROM ("+
		strings.Join(objects, " UNION ALL ")+") AS o").Scan(&sum)
	return sum, err
}

// readRows reads the rows of all tables that have any.
func readRows(ctx context.Context, c *pgx.Conn) (map[string]json.RawMessage, error) {
	names, err := c.Query(ctx, "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'")
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(names, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	for _, table := range tables {
		var rows json.RawMessage
		if err := c.QueryRow(ctx, "SELECT jsonb_agg(to_jsonb(t)) FROM "+table+" AS t").Scan(&rows); err != nil {
			return nil, err
		}
		if len(rows) > 0 && string(rows) != "null" {
			all[table] = rows
		}
	}
	return all, nil
}

// onServer runs a statement on a connection of its own, also during cleanup.
func onServer(t testing.TB, address, sql string) {
	t.Helper()
	err := connected(address, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// connected runs f with a connection of its own.
func connected(address string, f func(ctx context.Context, c *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, c), c.Close(ctx))
}

// ledgerTables are the tables of the ledger.
const ledgerTables = "CREATE TABLE ledger (id text); CREATE TABLE ledger_parent (id text PRIMARY KEY); " +
	"CREATE TABLE ledger_child (id text, parent text REFERENCES ledger_parent ON UPDATE CASCADE)"
