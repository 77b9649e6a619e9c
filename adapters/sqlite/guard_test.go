package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// endless runs for hours.
const endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT count(*) FROM c"

// TestEffectsLeaveTheConnectionAndSemelsTablesAlone: what a handler's SQL must not do is refused by SQLite's authorizer,
// however it is written, is its own message's failure, and changes nothing for the next.
func TestEffectsLeaveTheConnectionAndSemelsTablesAlone(t *testing.T) {
	db := open(t)
	s := db.Store()
	exec_(t, db, "CREATE TABLE x (id TEXT)")
	exec_(t, db, "CREATE TABLE trap (id TEXT)")
	exec_(t, db, "CREATE TRIGGER springs AFTER INSERT ON trap BEGIN DELETE FROM semel_record; END")
	exec_(t, db, "CREATE VIEW records AS SELECT * FROM semel_record")
	exec_(t, db, "CREATE TRIGGER through INSTEAD OF DELETE ON records BEGIN DELETE FROM semel_record WHERE token = old.token; END")
	acquire(t, s, "bystander")
	connection := fmt.Sprint(settings(t, db))
	for i, c := range []struct{ sql, part string }{
		{"DELETE FROM semel_record", "semel's own table semel_record"},
		{"/* a */ delete -- b\n from main.\"SEMEL_Record\" where 1", "semel's own table"},
		{"WITH v AS (SELECT 1) UPDATE [semel_record] SET state = 3", "semel's own table"},
		{"INSERT OR REPLACE INTO `semel_state` VALUES (1, 1, 1, 1, 1)", "semel's own table"},
		{"REPLACE INTO semel_queue (id, name) VALUES (1, 'q')", "semel's own table"},
		{"DELETE FROM semel_record RETURNING token", "semel's own table"},
		{"INSERT INTO trap VALUES ('1')", "semel's own table semel_record"},
		{"DELETE FROM records", "semel's own table semel_record"},
		{"DROP TABLE semel_record", "semel_record"},
		{"DROP TABLE IF EXISTS main . 'semel_dead_letter'", "semel_dead_letter"},
		{"DROP INDEX semel_record_place", "semel's own table"},
		{"DROP TRIGGER semel_record_gone", "semel's own table"},
		{"DROP VIEW semel_messages", "semel_messages"},
		{"ALTER TABLE semel_record ADD COLUMN y", "semel_record"},
		{"ALTER TABLE semel_record RENAME TO z", "semel_record"},
		{"ALTER TABLE x RENAME TO semel_x", ""}, // allowed: it shadows nothing that there is
		{"CREATE UNIQUE INDEX one ON semel_record (state)", "semel_record"},
		{"CREATE TABLE semel_new (id)", "semel_new"},
		{"CREATE TEMP TABLE semel_record (id)", "temporary"},
		{"create /**/ temporary table if not exists mine (id)", "temporary"},
		{"CREATE TABLE temp.semel_record AS SELECT 1", "temporary"},
		{"CREATE TABLE temp.mine AS SELECT 1", "temporary"},
		{"CREATE VIEW temp.mine AS SELECT 1", "temporary"},
		{"CREATE VIRTUAL TABLE temp.mine USING rtree(id, a, b)", "temporary"},
		{"CREATE TEMP VIEW semel_record AS SELECT 1", "temporary"},
		{"SELECT * FROM pragma_journal_mode", ""}, // SQLite has no table of it
		{"SELECT load_extension('x')", "load_extension"},
		{"ANALYZE", "ANALYZE"},
		{"/**/ PRAGMA synchronous = OFF", "PRAGMA"},
		{"EXPLAIN PRAGMA synchronous = OFF", "PRAGMA"},
		{"ATTACH ':memory:' AS a", "ATTACH"},
		{"EXPLAIN COMMIT", "transaction"},
		{"SAVEPOINT a", "SAVEPOINT"},
		{"UPDATE sqlite_master SET sql = ''", "sqlite_master"},
		{"DELETE FROM sqlite_schema WHERE name LIKE 'semel%'", "sqlite_master"},
	} {
		var st driver.Statements
		st.Exec(c.sql)
		h := acquire(t, s, fmt.Sprint("k", i))
		_, err := s.Commit(t.Context(), complete(h, &st))
		if c.part == "" {
			continue
		}
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != 0 {
			t.Errorf("%s: error %v is nobody's failure", c.sql, err)
			continue
		}
		wantErr(t, err, c.part)
		if r, _, err := s.Record(t.Context(), h.Key); err != nil || r.State != driver.InProgress {
			t.Errorf("%s: record %v, %v", c.sql, r.State, err)
		}
	}
	if n := count(t, db, "SELECT count(*) FROM semel_records WHERE key = 'bystander'"); n != 1 {
		t.Error("the record of another key is gone")
	}
	if now := fmt.Sprint(settings(t, db)); now != connection {
		t.Errorf("the connection was changed: %s, was %s", now, connection)
	}
}

// settings are those of the connection that writes.
func settings(t *testing.T, db *DB) (out []int64) {
	t.Helper()
	err := db.write(t.Context(), 1, func(tx *txn) error {
		for _, q := range []string{"PRAGMA synchronous", "PRAGMA cache_size", "PRAGMA recursive_triggers", "SELECT count(*) FROM temp.sqlite_schema"} {
			var v int64
			if _, err := tx.s.one([]*int64{&v}, q); err != nil {
				return err
			}
			out = append(out, v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEndlessEffectFailsItsMessage: SQL that does not end, or that makes what does not fit into memory, is interrupted,
// counts as a failed run of its own message, and others go on.
func TestEndlessEffectFailsItsMessage(t *testing.T) {
	short, long := openFor(t, Options{MaxTx: 500 * time.Millisecond}), openFor(t, Options{})
	for _, db := range []*DB{short, long} {
		exec_(t, db, "CREATE TABLE x (id)")
	}
	for i, c := range []struct{ sql, part string }{
		{endless, "interrupted"},
		{"INSERT INTO x " + endless, "interrupted"},
		{"UPDATE x SET id = (" + endless + ")", "interrupted"},
		{"SELECT count(*) FROM (" + endless + " ORDER BY 1)", "interrupted"},
		{"INSERT INTO x SELECT randomblob(900000000)", "64 MiB"},
		{"INSERT INTO x SELECT zeroblob(900000000)", "64 MiB"},
		{"INSERT INTO x SELECT hex(zeroblob(40000000))", "64 MiB"},
	} {
		db := short
		if c.part != "interrupted" {
			db = long // what is too big is refused, however long that takes
		}
		s := db.Store()
		exec_(t, db, "INSERT INTO x VALUES ('there')")
		var bad, good driver.Statements
		bad.Exec(c.sql)
		good.Exec("INSERT INTO x VALUES ('good')")
		other := acquire(t, s, fmt.Sprint("other", i))
		_, err := s.Commit(t.Context(), complete(other, &good), complete(acquire(t, s, fmt.Sprint("k", i)), &bad))
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != 1 {
			t.Fatalf("%s: error %v is not its message's failure", c.sql, err)
		}
		wantErr(t, err, c.part)
		if out, err := s.Commit(t.Context(), complete(other, &good)); err != nil || out[0] != driver.Applied {
			t.Fatalf("after %s: %v, %v", c.sql, out, err)
		}
	}
}

// TestEndlessStatementInATransaction: MaxTx ends a handler's statement that asks for no context.
func TestEndlessStatementInATransaction(t *testing.T) {
	db := openFor(t, Options{MaxTx: 100 * time.Millisecond})
	runInTx(t, db, []string{"endless"}, semel.Config{MaxAttempts: 2}, func(_ context.Context, tx *sql.Tx, _ *semel.Attempt) error {
		_, err := tx.ExecContext(context.Background(), endless)
		return err
	})
	deadLetters, err := db.Queue("orders").DeadLetters(t.Context(), 0)
	if err != nil || len(deadLetters) != 1 || deadLetters[0].Attempts != 2 {
		t.Errorf("dead letters %+v: %v", deadLetters, err)
	}
	if out := must(db.Store().Claim(t.Context(), claim("after")))(t); out[0].Verdict != driver.Acquired {
		t.Errorf("after it a claim returns %v", out[0].Verdict)
	}
}

// TestTransactionOfAHandlerLeavesSemelAlone is the same for handlers that have a *sql.Tx.
func TestTransactionOfAHandlerLeavesSemelAlone(t *testing.T) {
	db := openFor(t, Options{})
	exec_(t, db, "CREATE TABLE trap (id TEXT)")
	exec_(t, db, "CREATE TRIGGER springs AFTER INSERT ON trap BEGIN DELETE FROM semel_record; END")
	refused := []string{
		"DELETE FROM semel_record", "CREATE TEMP TABLE semel_record (id)", "CREATE TEMP TRIGGER a AFTER INSERT ON ledger BEGIN DELETE FROM ledger; END",
		"CREATE TRIGGER temp.a AFTER INSERT ON ledger BEGIN DELETE FROM ledger; END", "CREATE TABLE temp.a (id)",
		"CREATE TRIGGER a AFTER INSERT ON semel_record BEGIN DELETE FROM ledger; END",
		"INSERT INTO trap VALUES (1)", "PRAGMA synchronous = OFF",
		"ATTACH ':memory:' AS a", "DROP TABLE semel_dead_letter", "INSERT INTO ledger SELECT randomblob(900000000)",
	}
	runInTx(t, db, []string{"m"}, semel.Config{}, func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
		for _, q := range refused {
			_, err := tx.ExecContext(ctx, q)
			if err == nil || !strings.Contains(err.Error(), "not authorized") && !strings.Contains(err.Error(), "too big") {
				t.Errorf("%s returned %v", q, err)
			}
		}
		for _, q := range []string{"SAVEPOINT a", "PRAGMA table_info(ledger)", "INSERT INTO ledger (id) VALUES ('x')", "ROLLBACK TO a", "RELEASE a"} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				t.Errorf("%s: %v", q, err)
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", a.ID)
		return err
	})
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestOtherConnectionsAreNotWatched: the pool of [DB.SQL] and other databases of the process are their owners'.
func TestOtherConnectionsAreNotWatched(t *testing.T) {
	db := open(t)
	for _, q := range []string{"CREATE TEMP TABLE a (id)", "DELETE FROM semel_dead_letter", "PRAGMA cache_size = 100"} {
		exec_(t, db, q)
	}
}
