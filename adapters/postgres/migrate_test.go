package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// This file tests the migration runner, by migrations that are made here.

// nextMigration makes the program one of a schema more, until the test ends.
func nextMigration(t *testing.T, sql string) {
	t.Helper()
	saved, version := migrations, schemaVersion
	t.Cleanup(func() { migrations, schemaVersion = saved, version })
	migrations = append(slices.Clone(saved), sql)
	schemaVersion++
}

func connectTo(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	registerArrays(conn)
	return conn
}

// TestPrintedSchema: a database that was made of the printed SQL has what Migrate makes.
func TestPrintedSchema(t *testing.T) {
	migrated, printed := emptySchema(t), emptySchema(t)
	if _, _, err := Migrate(t.Context(), migrated); err != nil {
		t.Fatal(err)
	}
	if _, err := connectTo(t, printed).PgConn().Exec(t.Context(), SchemaSQL()).ReadAll(); err != nil {
		t.Fatal(err)
	}
	want, got := objects(t, migrated), objects(t, printed)
	if len(want) < 80 || !slices.ContainsFunc(want, func(s string) bool { return strings.Contains(s, "watermark") }) {
		t.Fatalf("%d objects: the test does not see the schema", len(want))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("object %d is\n%s\nwanted\n%s", i, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
	openURL(t, printed, Options{}) // the version is right
}

// objects describes everything in a schema.
func objects(t *testing.T, url string) []string {
	t.Helper()
	conn := connectTo(t, url)
	var schema string
	if err := conn.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `WITH n AS (SELECT current_schema()::regnamespace AS oid)
		SELECT 'function ' || pg_get_functiondef(p.oid) FROM pg_proc p, n WHERE p.pronamespace = n.oid
		UNION ALL SELECT format('column %s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			pg_get_expr(d.adbin, d.adrelid), a.attnum)
			FROM n, pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
			WHERE c.relnamespace = n.oid AND a.attnum > 0 AND c.relkind IN ('r', 'v')
		UNION ALL SELECT format('class %s %s %s %s', c.relname, c.relkind, c.reloptions, CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid)
			WHEN 'i' THEN pg_get_indexdef(c.oid) END) FROM pg_class c, n WHERE c.relnamespace = n.oid
		UNION ALL SELECT pg_get_constraintdef(k.oid) || k.conname FROM pg_constraint k, n WHERE k.connamespace = n.oid
		UNION ALL SELECT pg_get_triggerdef(g.oid) FROM n, pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
			WHERE c.relnamespace = n.oid AND NOT g.tgisinternal
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], schema, "SCHEMA")
	}
	slices.Sort(out)
	return out
}

// TestMigrateUnderWorkers migrates, in several processes at once, while workers run on.
func TestMigrateUnderWorkers(t *testing.T) {
	db := openFor(t, Options{})
	url := sameSchema(db)
	nextMigration(t, "ALTER TABLE semel_record ADD COLUMN later int")
	var stop atomic.Bool
	var done [3]atomic.Int64
	var running, migrating sync.WaitGroup
	for i := range done {
		running.Go(func() {
			for n := 0; !stop.Load(); n++ {
				g, err := db.Store().Claim(t.Context(), claimOf(driver.Key{Raw: fmt.Sprint(i, "-", n)}, long))
				if err != nil || g[0].Verdict != driver.Acquired {
					t.Errorf("claim meanwhile: %+v, %v", g, err)
					return
				}
				out, err := db.Store().Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour})
				if err != nil || out[0] != driver.Applied {
					t.Errorf("completion meanwhile: %v, %v", out, err)
					return
				}
				done[i].Add(1)
			}
		})
	}
	// each waits until every worker has done something more.
	each := func() {
		for i := range done {
			from, end := done[i].Load(), time.Now().Add(3*time.Minute)
			for done[i].Load() == from && !t.Failed() && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	each()
	for range 3 {
		migrating.Go(func() {
			if _, to, err := Migrate(t.Context(), url); err != nil || to != schemaVersion {
				t.Error(to, err)
			}
		})
	}
	migrating.Wait()
	each()
	each()
	stop.Store(true)
	running.Wait()
	rs, err := db.Store().Records(t.Context(), driver.RecordFilter{State: driver.Completed})
	if want := int(done[0].Load() + done[1].Load() + done[2].Load()); err != nil || len(rs) != want {
		t.Errorf("%d completed records, wanted %d, %v", len(rs), want, err)
	}
}

// TestMigrateGivesWay: while a transaction has a table open the migration does not keep workers from it.
func TestMigrateGivesWay(t *testing.T) {
	db := openFor(t, Options{})
	url := sameSchema(db)
	nextMigration(t, "ALTER TABLE semel_record ADD COLUMN later int")
	reader := connectTo(t, url)
	for _, sql := range []string{"BEGIN", "SELECT count(*) FROM semel_record"} {
		if _, err := reader.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { _, _, err := Migrate(t.Context(), url); ended <- err }()
	awaited := func() (n int) {
		err := reader.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE relation = 'semel_record'::regclass AND NOT granted").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for end := time.Now().Add(3 * time.Minute); awaited() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the migration does not wait for the table")
		}
	}
	if _, err := db.Store().Claim(t.Context(), claimOf(driver.Key{Raw: "meanwhile"}, long)); err != nil && code(err) != codeLocked {
		t.Errorf("a claim meanwhile returned %v", err)
	}
	for end := time.Now().Add(3 * time.Minute); awaited() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the migration does not give way")
		}
	}
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
