package postgres

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// refusesToOpen wants an error that says what to do.
func refusesToOpen(t *testing.T, url string, o Options, says ...string) error {
	t.Helper()
	db, err := Open(t.Context(), url, o)
	if err == nil {
		_ = db.Close()
		t.Fatalf("it opened; wanted an error with %q", says)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error is %q, wanted %q in it", err, s)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows the password: %q", err)
	}
	return err
}

func TestOpenRefuses(t *testing.T) {
	base := server.Shared(t, "postgres")
	gone, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	gone.Path = "/semel_no_such_database"
	refusesToOpen(t, gone.String(), Options{}, "semel_no_such_database", "does not exist", "Try:")
	refusesToOpen(t, "postgres://nobody:secret@127.0.0.1:1/x?connect_timeout=2", Options{}, "127.0.0.1:1/x", "refused")
	refusesToOpen(t, "postgres://user:secret@host:port/x", Options{}, "connection URL")
	refusesToOpen(t, withParam(t, base, "sslmode", "nonsense"), Options{}, "sslmode")
	refusesToOpen(t, withParam(t, base, "no_such_setting", "1"), Options{}, "no_such_setting")
	refusesToOpen(t, withParam(t, base, "default_query_exec_mode", "simple_protocol"), Options{}, "exec")
	refusesToOpen(t, base, Options{LockWait: -1}, "Options.LockWait")
	refusesToOpen(t, base, Options{MaxConns: -1}, "MaxConns")
	var schema *SchemaError
	if err := refusesToOpen(t, emptySchema(t), Options{}, "postgres.Migrate(ctx, url)", "postgres.Options{Create: true}",
		"semel migrate --store 'postgres://", "search_path=semel_test_"); !errors.As(err, &schema) || schema.Have != 0 ||
		strings.Count(err.Error(), "database "+schema.Database) != 1 {
		t.Errorf("a schema without tables returned %v", err)
	}
}

// TestOtherSchemas: a program works with the schema that it knows, and with no other.
func TestOtherSchemas(t *testing.T) {
	db := openFor(t, Options{})
	url := sameSchema(db)
	execSQL(t, db, "UPDATE semel_schema SET version = $1", schemaVersion+1)
	var schema *SchemaError
	if err := refusesToOpen(t, url, Options{Create: true}, "newer semel"); !errors.As(err, &schema) || schema.Have != schemaVersion+1 {
		t.Errorf("a newer schema returned %v", err)
	}
	if _, _, err := Migrate(t.Context(), url); !errors.As(err, &schema) {
		t.Errorf("migrating a newer schema returned %v", err)
	}
	execSQL(t, db, "DELETE FROM semel_schema")
	refusesToOpen(t, url, Options{}, "semel_schema has no row")
}

// TestMigrate brings an older schema up to date, once, whoever does it, and repeating it does nothing.
func TestMigrate(t *testing.T) {
	url := emptySchema(t)
	if from, to, err := Migrate(t.Context(), url); from != 0 || to != schemaVersion || err != nil {
		t.Fatal(from, to, err)
	}
	if from, to, err := Migrate(t.Context(), url); from != schemaVersion || to != schemaVersion || err != nil {
		t.Fatal(from, to, err)
	}
	db := openURL(t, url, Options{})
	mustClaim(t, db.Store(), claimOf(driver.Key{Raw: "kept"}, long))
	migrations = append(migrations, "CREATE TABLE semel_next (id int); INSERT INTO semel_next VALUES (1)")
	schemaVersion++
	defer func() { migrations, schemaVersion = migrations[:len(migrations)-1], schemaVersion-1 }()
	refusesToOpen(t, url, Options{}, "semel migrate")
	var wg sync.WaitGroup
	var first sync.Map
	for i := range 4 {
		wg.Go(func() {
			from, to, err := Migrate(t.Context(), url)
			if err != nil || to != schemaVersion {
				t.Error(from, to, err)
			}
			first.Store(i, from)
		})
	}
	wg.Wait()
	moved := 0
	first.Range(func(_, from any) bool { moved += schemaVersion - from.(int); return true })
	var rows int
	if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM semel_next").Scan(&rows); err != nil || rows != 1 || moved != 1 {
		t.Errorf("the migration ran %d times, %d rows, %v", moved, rows, err)
	}
	if _, found, err := db.Store().Record(t.Context(), driver.Key{Raw: "kept"}); !found || err != nil {
		t.Errorf("the record of before: %v, %v", found, err)
	}
	// One that fails leaves the schema as it was.
	migrations = append(migrations, "CREATE TABLE semel_half (id int); SELECT 1/0")
	schemaVersion++
	if from, to, err := Migrate(t.Context(), url); err == nil || from != to {
		t.Errorf("a failing migration returned %d, %d, %v", from, to, err)
	}
	migrations, schemaVersion = migrations[:len(migrations)-1], schemaVersion-1
	if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relname = 'semel_half' AND relnamespace = current_schema()::regnamespace").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("a failing migration left %d tables, %v", rows, err)
	}
}

// TestManyCreate: programs that start at once on an empty database make its tables once.
func TestManyCreate(t *testing.T) {
	url := emptySchema(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			db, err := Open(t.Context(), url, Options{Create: true, MaxConns: 2, NoListen: true})
			if err != nil {
				t.Error(err)
				return
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestFM50_ReadOnly(t *testing.T) {
	db := openFor(t, Options{})
	mustClaim(t, db.Store(), claimOf(driver.Key{Raw: "k"}, long))
	url := sameSchema(db) + "&default_transaction_read_only=on"
	refusesToOpen(t, url, Options{}, "read-only", "primary")
	look := openReadOnly(t, url)
	if _, found, err := look.Store().Record(t.Context(), driver.Key{Raw: "k"}); !found || err != nil {
		t.Errorf("record: %v, %v", found, err)
	}
	if g, err := look.Store().Claim(t.Context(), claimOf(driver.Key{Raw: "new"}, long)); !errors.Is(err, driver.ErrNotCommitted) ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("claim returned %+v, %v", g, err)
	}
	if _, _, err := look.Store().Begin(t.Context(), claimOf(driver.Key{Raw: "new"}, long)); !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("begin returned %v", err)
	}
}

func openReadOnly(t testing.TB, url string) *DB {
	t.Helper()
	db, err := Open(t.Context(), url, Options{ReadOnly: true, MaxConns: 2, NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestCaveats: a server that can lose commits is not called durable.
func TestCaveats(t *testing.T) {
	url := emptySchema(t)
	if f := openURL(t, url, Options{}).Store().Features(); !f.Durable || len(f.Caveats) != 0 || f.Kind != "postgres" || !f.ServerClock ||
		!f.Emits || f.MaxTx != 30*time.Second || strings.Contains(f.Name, "postgres@") {
		t.Errorf("features are %+v", f)
	}
	f := openURL(t, url+"&synchronous_commit=off", Options{}).Store().Features()
	if f.Durable || len(f.Caveats) != 1 || !strings.Contains(f.Caveats[0], "synchronous_commit") {
		t.Errorf("with synchronous_commit off features are %+v", f)
	}
}

// TestCloseTwice: everything after Close is refused, and was certainly not written.
func TestCloseTwice(t *testing.T) {
	db, err := Open(t.Context(), emptySchema(t), Options{Create: true, MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := db.Store().Claim(t.Context(), claimOf(driver.Key{Raw: "k"}, long)); !errors.Is(err, ErrClosed) || !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("claim returned %v", err)
	}
	if _, _, err := db.Store().Begin(t.Context(), claimOf(driver.Key{Raw: "k"}, long)); !errors.Is(err, ErrClosed) {
		t.Errorf("begin returned %v", err)
	}
}

// TestWrongPasswordAndTooFewConnections needs a server of its own, with other rules of who may come in.
func TestWrongPasswordAndTooFewConnections(t *testing.T) {
	server.Need(t, "postgres")
	dir, err := os.MkdirTemp("", "semel-hba") // the server's user has to get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nothing secret is in it
		t.Fatal(err)
	}
	hba := filepath.Join(dir, "hba.conf")
	rules := "host all locked 127.0.0.1/32 scram-sha-256\nhost all refused 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 trust\n"
	if err := os.WriteFile(hba, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := server.PostgreSQL(t.Context(), server.Options{Settings: map[string]string{
		"hba_file": hba, "max_connections": "8", "superuser_reserved_connections": "0", "fsync": "off", "full_page_writes": "off",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	onServer(t, s.URL(), "CREATE ROLE locked LOGIN PASSWORD 'right'; CREATE ROLE refused LOGIN; CREATE ROLE weak LOGIN")
	refusesToOpen(t, strings.Replace(s.URL(), "postgres@", "locked:secret@", 1), Options{}, "password", "~/.pgpass")
	refusesToOpen(t, strings.Replace(s.URL(), "postgres@", "refused@", 1), Options{}, "pg_hba.conf")
	refusesToOpen(t, strings.Replace(s.URL(), "postgres@", "weak@", 1), Options{Create: true}, "permission denied", "privilege")

	db, err := Open(t.Context(), s.URL(), Options{Create: true, MaxConns: 4, NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if f := db.Store().Features(); f.Durable || len(f.Caveats) != 2 {
		t.Errorf("without fsync features are %+v", f)
	}
	// All connections of the server are somebody else's.
	var others []*DB
	for range 8 {
		other, err := Open(t.Context(), s.URL(), Options{MaxConns: 1, NoListen: true})
		if err != nil {
			if !strings.Contains(err.Error(), "pool_max_conns") {
				t.Errorf("the server is full: %v", err)
			}
			break
		}
		others = append(others, other)
		if len(others) == 8 {
			t.Error("the server was never full")
		}
	}
	for _, o := range others {
		_ = o.Close()
	}
	mustClaim(t, db.Store(), claimOf(driver.Key{Raw: "k"}, long))
	// A role that may use the tables and no more.
	onServer(t, s.URL(), "GRANT SELECT ON ALL TABLES IN SCHEMA public TO weak")
	weak, err := Open(t.Context(), strings.Replace(s.URL(), "postgres@", "weak@", 1), Options{MaxConns: 1, NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer weak.Close()
	if _, err := weak.Store().Claim(t.Context(), claimOf(driver.Key{Raw: "w"}, long)); !errors.Is(err, driver.ErrNotCommitted) ||
		!strings.Contains(err.Error(), "privilege") {
		t.Errorf("a role without privileges: claim returned %v", err)
	}
}
