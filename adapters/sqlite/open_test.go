package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
)

func wantErr(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func TestOpenRefusesBadPaths(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database\n", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		o          Options
		parts      []string
		is         error
	}{
		{"empty", "", Options{}, []string{"path is empty"}, nil},
		{"memory", ":memory:", Options{}, []string{"package memory"}, nil},
		{"directory", dir, Options{}, []string{dir, "is a directory"}, nil},
		{"missing directory", filepath.Join(dir, "no", "x.db"), Options{Create: true}, []string{"directory", filepath.Join(dir, "no")}, fs.ErrNotExist},
		{"absent", filepath.Join(dir, "no.db"), Options{}, []string{
			"no.db does not exist", "sqlite.Migrate(ctx, ", "Options{Create: true}", "semel migrate --store 'sqlite:" + dir + "/no.db'",
		}, fs.ErrNotExist},
		{"read-only", filepath.Join(dir, "no.db"), Options{ReadOnly: true}, []string{"no.db"}, fs.ErrNotExist},
		{"not a database", text, Options{Create: true}, []string{text, "not an SQLite database"}, nil},
		{"option", filepath.Join(dir, "x.db"), Options{Visibility: -1}, []string{"Options.Visibility", "negative"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, err := Open(t.Context(), c.path, c.o)
			if err == nil {
				t.Fatal("opened", db.Close())
			}
			wantErr(t, err, c.parts...)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v is not %v", err, c.is)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "no.db")); err == nil {
		t.Error("a refused Open made the file")
	}
	if b, err := os.ReadFile(text); err != nil || len(b) != 400*15 {
		t.Error("the text file was changed")
	}
}

func TestOpenOddPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%20&e=f.db")
	db := openAt(t, path, Options{})
	if err := db.Queue("q").Send(t.Context(), driver.Message{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

func TestOpenKeepsTheApplicationsTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT); INSERT INTO orders VALUES ('1')"); err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	var se *SchemaError
	if _, err := Open(t.Context(), path, Options{}); !errors.As(err, &se) || se.Have != 0 {
		t.Fatalf("Open of a file without semel tables: %v", err)
	}
	wantErr(t, se, "no semel tables", "sqlite.Migrate(ctx, ", "Options{Create: true}", "semel migrate --store 'sqlite:"+path+"'")
	db := openAt(t, path, Options{})
	if n := count(t, db, "SELECT count(*) FROM orders"); n != 1 {
		t.Fatalf("%d orders", n)
	}
	must(Open(t.Context(), path, Options{}))(t).Close()
}

func TestOpenRefusesUTF16(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if _, err := app.ExecContext(t.Context(), "PRAGMA encoding = 'UTF-16'; CREATE TABLE x (id TEXT)"); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path, Options{})
	wantErr(t, err, "UTF-16", "byte by byte")
}

func TestSchemaVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	openAt(t, path, Options{}).Close()
	saved, version := migrations, schemaVersion
	defer func() { migrations, schemaVersion = saved, version }()

	migrations = append(append([]string{}, saved...), "CREATE TABLE semel_later (x INTEGER); INSERT INTO semel_later VALUES (1)")
	schemaVersion++
	var se *SchemaError
	if _, err := Open(t.Context(), path, Options{}); !errors.As(err, &se) || se.Have != version {
		t.Fatalf("older schema: %v", err)
	}
	wantErr(t, se, "semel migrate")
	for _, want := range []int{version, schemaVersion} {
		from, to, err := Migrate(t.Context(), path)
		if err != nil || from != want || to != schemaVersion {
			t.Fatalf("migrated from %d to %d: %v", from, to, err)
		}
	}
	openAt(t, path, Options{}).Close()

	migrations, schemaVersion = saved, version
	if _, err := Open(t.Context(), path, Options{}); !errors.As(err, &se) || se.Have != version+1 {
		t.Fatalf("newer schema: %v", err)
	}
	wantErr(t, se, "newer semel")
	_, _, err := Migrate(t.Context(), path)
	if !errors.As(err, &se) {
		t.Fatalf("migrate a newer schema: %v", err)
	}
}

func TestFailedMigrationChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	openAt(t, path, Options{}).Close()
	saved, version := migrations, schemaVersion
	defer func() { migrations, schemaVersion = saved, version }()
	migrations = append(append([]string{}, saved...), "CREATE TABLE semel_later (x INTEGER); BROKEN")
	schemaVersion++
	if _, _, err := Migrate(t.Context(), path); err == nil {
		t.Fatal("a broken migration succeeded")
	}
	migrations, schemaVersion = saved, version
	db := openAt(t, path, Options{})
	if n := count(t, db, "SELECT count(*) FROM sqlite_master WHERE name = 'semel_later'"); n != 0 {
		t.Fatal("half a migration remained")
	}
}

func TestSchemaSQLIsTheSchema(t *testing.T) {
	app, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if _, err := app.ExecContext(t.Context(), SchemaSQL()); err != nil {
		t.Fatal(err)
	}
	db := open(t)
	const list = "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_master ORDER BY name)"
	var a, b string
	if err := app.QueryRowContext(t.Context(), list).Scan(&a); err != nil {
		t.Fatal(err)
	}
	if err := db.SQL().QueryRowContext(t.Context(), list).Scan(&b); err != nil {
		t.Fatal(err)
	}
	if a != b {
		t.Errorf("printed schema\n%s\nis not the one in the file\n%s", a, b)
	}
}

func TestOpenByManyProcessesAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			cmd := child("open", path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	db := openAt(t, path, Options{})
	if n := count(t, db, "SELECT count(*) FROM semel_state"); n != 1 {
		t.Fatalf("%d rows in semel_state", n)
	}
}

// asked is a context that calls a function whenever somebody asks it for its error.
type asked struct {
	context.Context
	do func()
}

func (a asked) Err() error {
	a.do()
	return a.Context.Err()
}

// TestFM47_ConnectionWaitsForALock: another process holds the file as a whole, as it does while it changes the journal mode.
func TestFM47_ConnectionWaitsForALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	c := must(other.Conn(t.Context()))(t)
	for _, statement := range []string{"CREATE TABLE mine (id)", "BEGIN EXCLUSIVE"} {
		if _, err := c.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	o := must(Options{}.withDefaults())(t)
	once := 0 // how often one attempt asks
	_, err = openSession(asked{t.Context(), func() { once++ }}, dsn(path, o, writePragmas(o)), -1)
	if !busy(err) {
		t.Fatalf("connected to a locked file: %v", err)
	}
	times := 0
	_, _, err = Migrate(asked{t.Context(), func() {
		if times++; times == once+1 { // the first attempt has failed
			if _, err := c.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Error(err)
			}
		}
	}}, path)
	if err != nil {
		t.Fatal(err)
	}
	openAt(t, path, Options{})
}

func TestReadOnlyOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	db := openAt(t, path, Options{})
	ctx := t.Context()
	if err := db.Queue("q").Send(ctx, driver.Message{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	ro := openAt(t, path, Options{ReadOnly: true})
	if st := must(ro.Queue("q").Stats(ctx))(t); st.Visible != 1 {
		t.Fatalf("stats %+v", st)
	}
	if names := must(ro.Queues(ctx))(t); len(names) != 1 || names[0] != "q" {
		t.Fatalf("queues %v", names)
	}
	_, err := ro.Store().Claim(ctx, claim("k"))
	wantErr(t, err, "read-only")
	_, err = ro.Queue("q").Receive(ctx, 1)
	wantErr(t, err, "read-only")
	if _, _, err = ro.Store().Begin(ctx, claim("k")); err == nil {
		t.Fatal("began a transaction")
	}
	if _, err := ro.SQL().ExecContext(ctx, "DELETE FROM semel_stream"); err == nil {
		t.Fatal("the pool of a read-only database writes")
	}
}

// TestFM50_ReadOnlyFile opens a file that its user may not write. The superuser may write everything, so the test runs
// itself again as somebody else.
func TestFM50_ReadOnlyFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("file modes do not keep the owner out on Windows")
	}
	dir, err := os.MkdirTemp("", "semel-ro")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700); _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "semel.db")
	openAt(t, path, Options{}).Close()
	if err := errors.Join(os.Chmod(path, 0o444), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := child("readonly", path)
	if os.Geteuid() == 0 {
		bin := filepath.Join(dir, "test.bin") // where the other user can read it
		if err := copyFile(os.Args[0], bin); err != nil {
			t.Fatal(err)
		}
		cmd.Path = bin
		process.As(cmd, 65534, 65534)
	} else if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), path) || !strings.Contains(string(out), "read") && !strings.Contains(string(out), "open") {
		t.Errorf("opening a read-only file says %q", out)
	}
	t.Logf("%s", out)
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// TestFM50_FullDatabase fills the database: writes fail with a plain error and change nothing, and go on when there is
// room again.
func TestFM50_FullDatabase(t *testing.T) {
	db := open(t)
	ctx := t.Context()
	exec_(t, db, "CREATE TABLE ledger (id TEXT)")
	q, s := db.Queue("q"), db.Store()
	if err := q.Send(ctx, driver.Message{ID: "m"}); err != nil {
		t.Fatal(err)
	}
	d := must(q.Receive(ctx, 1))(t)
	g := must(s.Claim(ctx, claim("k")))(t)
	limit := func(pages string) {
		t.Helper()
		if err := db.write(ctx, 1, func(t *txn) error { _, err := t.s.exec("PRAGMA max_page_count = " + pages); return err }); err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // as many as there are
	var st driver.Statements
	st.Exec("INSERT INTO ledger (id) VALUES (hex(randomblob(100000)))")
	work := driver.Work{
		Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour}, Effects: &st,
		Ack: &driver.Settlement{Receipt: d[0].Receipt},
	}
	_, err := s.Commit(ctx, work)
	wantErr(t, err, "full")
	var item *driver.ItemError
	if errors.As(err, &item) {
		t.Errorf("a full disk is blamed on the item: %v", err)
	}
	if err := q.Send(ctx, driver.Message{ID: "big", Body: make([]byte, 1<<20)}); err == nil {
		t.Fatal("sent into a full database")
	}
	if r, _, err := s.Record(ctx, g[0].Hold.Key); err != nil || r.State != driver.InProgress {
		t.Fatalf("record %v, %v", r.State, err)
	}
	if out := must(s.Extend(ctx, time.Minute, g[0].Hold))(t); out[0] != driver.Applied {
		t.Fatalf("a heartbeat in a full database: %v", out)
	}
	limit("1000000")
	if out := must(s.Commit(ctx, work))(t); out[0] != driver.Applied {
		t.Fatalf("commit after there was room: %v", out)
	}
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != 1 {
		t.Fatalf("%d effects", n)
	}
	if st := must(q.Stats(ctx))(t); !st.Empty() {
		t.Fatalf("stats %+v", st)
	}
}

func TestClose(t *testing.T) {
	db := open(t)
	got := make(chan error, 1)
	go func() {
		_, err := db.Queue("q").Receive(context.Background(), 1)
		got <- err
	}()
	for db.watch.waiters.Queues() == nil {
		time.Sleep(time.Millisecond) // the pause between two looks
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, ErrClosed) {
		t.Fatalf("blocked Receive: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Store().Claim(context.Background(), claim("k")); !errors.Is(err, ErrClosed) || !errors.Is(err, driver.ErrNotCommitted) {
		t.Fatalf("claim after Close: %v", err)
	}
	if _, _, err := db.Store().Begin(context.Background(), claim("k")); !errors.Is(err, ErrClosed) {
		t.Fatalf("begin after Close: %v", err)
	}
}
