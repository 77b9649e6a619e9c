package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// traps makes what an application can have beside semel's tables, and what reaches these.
func traps(t *testing.T, db *DB) {
	t.Helper()
	for _, q := range []string{
		"CREATE TABLE mine (id text)",
		"CREATE VIEW records AS SELECT * FROM semel_record",
		"CREATE FUNCTION wipe() RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DEL' || 'ETE FROM semel_record'; RETURN 1; END $$",
		"CREATE FUNCTION wipe_quietly() RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET semel.lent = '' AS $$ BEGIN DELETE FROM semel_record; RETURN 1; END $$",
		"CREATE PROCEDURE wiped() LANGUAGE sql AS 'DELETE FROM semel_record'",
		"CREATE FUNCTION springs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM semel_record; RETURN NULL; END $$",
		"CREATE TABLE trap (id text)",
		"CREATE TRIGGER springs AFTER INSERT ON trap FOR EACH ROW EXECUTE FUNCTION springs()",
		"CREATE TABLE late (id text)",
		"CREATE CONSTRAINT TRIGGER springs AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION springs()",
		"CREATE TABLE ruled (id text)",
		"CREATE RULE springs AS ON INSERT TO ruled DO ALSO DELETE FROM semel_record",
		"CREATE FUNCTION current_query() RETURNS text LANGUAGE sql AS $$ SELECT ''::text $$",
		"CREATE FUNCTION starts_with(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false'",
		"CREATE FUNCTION tenant(v text, l bool) RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant', v, l) $$",
		"CREATE FUNCTION tenants() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', 'A', false); RETURN NULL; END $$",
		"CREATE TABLE seen (id text)",
		"CREATE TRIGGER tenants AFTER INSERT ON seen EXECUTE FUNCTION tenants()",
		"CREATE TABLE seen_late (id text)",
		"CREATE CONSTRAINT TRIGGER tenants AFTER INSERT ON seen_late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tenants()",
	} {
		execSQL(t, db, q)
	}
}

// attacks are what a handler's SQL must not do to semel's tables; each is a message of its own.
var attacks = [][]string{
	{"DELETE FROM semel_record"},
	{"/* a */ dElEtE -- b\nFROM ONLY \"semel_record\" AS r WHERE true"},
	{"DELETE FROM {schema}.semel_record"},
	{"UPDATE semel_record SET state = 3"},
	{"INSERT INTO semel_queue (name) VALUES ('x')"},
	{"INSERT INTO semel_floor VALUES (1, 9) ON CONFLICT (one) DO UPDATE SET purged = 9"},
	{"WITH d AS (DELETE FROM semel_record RETURNING 1) SELECT * FROM d"},
	{"WITH d AS (DELETE FROM semel_record RETURNING 1) INSERT INTO mine SELECT * FROM d"},
	{"TRUNCATE semel_dead_letter"},
	{"TRUNCATE mine, semel_record"},
	{"EXPLAIN ANALYZE DELETE FROM semel_record"},
	{"DO $$ BEGIN DELETE FROM semel_record; END $$"},
	{"DO $$ BEGIN EXECUTE format('DELETE FROM %I', 'semel' || '_record'); EXCEPTION WHEN division_by_zero THEN NULL; END $$"},
	{"DO $$ BEGIN PERFORM set_config('semel.lent', '', true); DELETE FROM semel_record; END $$"},
	{"SELECT wipe()"}, {"SELECT wipe_quietly()"}, {"CALL wiped()"}, {"SELECT coalesce(nullif(abs(wipe()), 2), 3)"},
	{"INSERT INTO mine SELECT 'x' WHERE false OR wipe() > 0"},
	{"INSERT INTO mine VALUES (wipe())"},
	{"DELETE FROM records"}, {"UPDATE records SET state = 3"},
	{"INSERT INTO trap VALUES (1)"}, {"INSERT INTO late VALUES (1)"}, {"INSERT INTO ruled VALUES (1)"},
	{"SELECT semel_unclaim(array_agg(place), array_agg(token), array_agg(nonce)) FROM semel_record WHERE encode(place, 'escape') LIKE '%bystander%'"},
	{"SELECT semel_complete_one(place, token, nonce, 1, 1, NULL, NULL, 1::smallint, 0) FROM semel_record WHERE encode(place, 'escape') LIKE '%bystander%'"},
	{"SET LOCAL session_replication_role = replica", "DELETE FROM semel_record"},
	{"SELECT set_config('search_path', '{schema}, pg_catalog', true)", "DELETE FROM semel_record"},
	{"DO $$ BEGIN SET LOCAL track_counts = off; END $$", "ALTER TABLE semel_record DISABLE TRIGGER ALL"},
	{"ALTER TABLE semel_record DISABLE TRIGGER ALL", "DELETE FROM semel_record"},
	{"DO $$ BEGIN ALTER TABLE semel_record DISABLE TRIGGER semel_guard; DELETE FROM semel_record; ALTER TABLE semel_record ENABLE ALWAYS TRIGGER semel_guard; END $$"},
	{"DROP TRIGGER semel_guard ON semel_record", "DELETE FROM semel_record"},
	{"DROP TABLE semel_long_term CASCADE"}, {"DROP VIEW semel_records"}, {"DROP SEQUENCE semel_token"},
	{"ALTER TABLE semel_record RENAME TO gone"}, {"ALTER TABLE semel_record ADD COLUMN x int"},
	{"ALTER SCHEMA {schema} RENAME TO {schema}_x"},
	{"CREATE TRIGGER x BEFORE UPDATE ON semel_record FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"},
	{"CREATE RULE x AS ON UPDATE TO semel_record DO INSTEAD NOTHING"},
	{"CREATE UNIQUE INDEX x ON semel_record (state)"},
	{"CREATE TABLE fk (p bytea REFERENCES semel_record)"},
	{"ALTER TABLE semel_record ENABLE ROW LEVEL SECURITY"},
	{"CREATE OR REPLACE FUNCTION semel_guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$", "DELETE FROM semel_record"},
	{"DROP FUNCTION semel_keep"}, {"ALTER FUNCTION semel_keep COST 7"}, {"ALTER FUNCTION semel_keep RENAME TO kept"},
	{"CREATE TEMP TABLE semel_record (LIKE semel_record INCLUDING ALL)"},
	{"CREATE TABLE pg_temp.semel_message (id int)"},
	{"SELECT 1 AS a INTO TEMPORARY mine"},
	{"/**/CREATE LOCAL TEMP VIEW mine AS SELECT 1 AS id"},
	{"DO $$ BEGIN EXECUTE 'CREATE TEMP TABLE ledger (id text)'; END $$"},
}

func attack(list []string, schema string) *driver.Statements {
	st := &driver.Statements{}
	for _, q := range list {
		st.Exec(strings.ReplaceAll(q, "{schema}", schema))
	}
	return st
}

// TestEffectsLeaveSemelsTablesAlone: the worker connects as a superuser that owns everything. What a handler's SQL must not
// do to semel's tables is refused, however it is written, and is its own message's failure.
func TestEffectsLeaveSemelsTablesAlone(t *testing.T) {
	db := openFor(t, Options{})
	traps(t, db)
	s := db.Store()
	worksFor(t, s, "bystander", 1)
	want := standing(t, db)
	for i, list := range attacks {
		ws := worksFor(t, s, fmt.Sprint("attack-", i), 3)
		before := countLedger(t, db)
		ws[1].Effects = attack(list, db.info.place)
		_, err := s.Commit(t.Context(), ws...)
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != 1 {
			t.Errorf("%q: commit returned %v", list, err)
			continue
		}
		if !strings.Contains(err.Error(), "refused") {
			t.Errorf("%q: error %v does not say what is refused", list, err)
		}
		others := []driver.Work{ws[0], ws[2]}
		if out, err := s.Commit(t.Context(), others...); err != nil || out[0] != driver.Applied || out[1] != driver.Applied {
			t.Errorf("%q: without it commit returned %v, %v", list, out, err)
		}
		if n := countLedger(t, db) - before; n != 2 {
			t.Errorf("%q: %d effects of the others", list, n)
		}
	}
	if got := standing(t, db); got != want {
		t.Errorf("semel's tables are %s, were %s", got, want)
	}
}

// standing describes the tables and functions, and the record of a key that has nothing to do with it.
func standing(t *testing.T, db *DB) (out string) {
	t.Helper()
	err := db.pool.QueryRow(t.Context(), `SELECT concat_ws(' ', (SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace),
		(SELECT string_agg(tgrelid::regclass || tgname || tgenabled::text, ',' ORDER BY tgrelid, tgname) FROM pg_trigger
			WHERE tgname = 'semel_guard' AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = $1::regnamespace)),
		(SELECT string_agg(p.oid::text || p.prosrc || p.procost::text, ',' ORDER BY p.oid) FROM pg_proc p WHERE pronamespace = $1::regnamespace),
		(SELECT string_agg(r::text, ',') FROM semel_record r WHERE encode(place, 'escape') LIKE '%bystander%'))`, db.info.place).Scan(&out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// littering is SQL that leaves something in the session, which is taken back.
var littering = []string{
	"SELECT set_config('search_path', 'evil, public', false)",
	"INSERT INTO mine SELECT Set_Config('app.tenant', 'A', false)",
	"SELECT tenant('A', false)",
	"SELECT tenant('A', true)",
	"INSERT INTO seen VALUES (1)",
	"INSERT INTO seen_late VALUES (1)",
	"DO $$ BEGIN SET synchronous_commit = off; END $$",
	"DO $$ BEGIN PERFORM set_config('default_transaction_isolation', 'serializable', false); END $$",
	"DO $$ BEGIN SET ROLE pg_monitor; END $$",
	"DO $$ BEGIN SET SESSION AUTHORIZATION pg_monitor; END $$",
	"SELECT set_config('role', 'pg_monitor', false)",
	"SET LOCAL ROLE pg_monitor",
	"DO $$ BEGIN EXECUTE 'PREPARE stmtcache_x AS SELECT 1'; END $$",
	"SELECT pg_advisory_lock(77)",
	"SELECT pg_advisory_lock_shared(7, 7), pg_try_advisory_lock(8)",
	"DO $$ BEGIN EXECUTE 'LISTEN gossip'; END $$",
	"DECLARE held CURSOR WITH HOLD FOR SELECT generate_series(1, 1000)",
	"SELECT nextval('semel_token')",
}

// session describes what a connection keeps.
func session(t *testing.T, c interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (pid int, out string) {
	t.Helper()
	err := c.QueryRow(t.Context(), `SELECT pg_backend_pid(), concat_ws(' | ', current_user, session_user, current_setting('search_path'),
		current_setting('synchronous_commit'), current_setting('default_transaction_isolation'),
		nullif(current_setting('app.tenant', true), ''), nullif(current_setting('semel.lent', true), ''),
		current_setting('idle_in_transaction_session_timeout'),
		(SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
		(SELECT count(*) FROM pg_prepared_statements WHERE from_sql), (SELECT count(*) FROM pg_listening_channels()),
		(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'), (SELECT count(*) FROM pg_cursors WHERE is_holdable))`).Scan(&pid, &out)
	if err != nil {
		t.Fatal(err)
	}
	return pid, out
}

// TestEffectsLeaveTheSessionAlone: what a handler's SQL changes in the session does not reach the message after it, neither
// in its transaction nor in later ones of the connection, whether it is committed or refused.
func TestEffectsLeaveTheSessionAlone(t *testing.T) {
	db := openFor(t, Options{MaxConns: 1})
	traps(t, db)
	execSQL(t, db, "GRANT ALL ON SCHEMA "+db.info.place+" TO pg_monitor")
	execSQL(t, db, "GRANT INSERT ON ledger TO pg_monitor")
	s := db.Store()
	pid, want := session(t, db.pool)
	for i, q := range littering {
		for _, fails := range []bool{false, true} {
			ws := worksFor(t, s, fmt.Sprint("litter-", i, fails), 3)
			stmts(&ws[1]).Exec(q)
			stmts(&ws[2]).ExecRows(1, "INSERT INTO ledger SELECT 'x' WHERE nullif(current_setting('app.tenant', true), '') IS NULL AND current_user = session_user")
			if fails {
				stmts(&ws[2]).Exec("SELECT 1 / 0")
			}
			out, err := s.Commit(t.Context(), ws...)
			var item *driver.ItemError
			switch {
			case fails && (!errors.As(err, &item) || item.Index != 2):
				t.Errorf("%s: commit returned %v", q, err)
			case !fails && err != nil:
				t.Errorf("%s: commit returned %v, %v", q, out, err)
			}
			if is, got := session(t, db.pool); is != pid || got != want {
				t.Errorf("%s: fails %v: session %d is\n%s, was\n%s of %d", q, fails, is, got, want, pid)
				pid, want = is, got
			}
		}
	}
	var last int64
	if err := db.pool.QueryRow(t.Context(), "SELECT lastval()").Scan(&last); code(err) != "55000" {
		t.Errorf("lastval of a later message is %d, %v", last, err)
	}
}

// TestHandlersLeaveTheSessionAlone is the same for handlers that have the transaction.
func TestHandlersLeaveTheSessionAlone(t *testing.T) {
	db := openFor(t, Options{MaxConns: 2})
	traps(t, db)
	s := db.Store()
	more := append([]string{
		"SET search_path = evil", "SET app.tenant = 'A'", "LISTEN gossip", "PREPARE mine AS SELECT 1", "SET ROLE pg_monitor",
		"CREATE TEMP TABLE mine_too (id int)", "CREATE TEMP TABLE mine_dropped (id int) ON COMMIT DROP",
	}, littering...)
	for i, q := range more {
		for _, end := range []string{"commit", "rollback", "sql"} {
			x, gs := beginAll(t, s, driver.Key{Consumer: "c", Raw: fmt.Sprint(i, end)})
			var err error
			if end == "sql" {
				_, err = lendSQL(t, x).ExecContext(t.Context(), q)
			} else {
				_, err = lendPgx(t, x).Exec(t.Context(), q)
			}
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			if end == "rollback" {
				err = x.Rollback(t.Context())
			} else {
				err = x.Commit(t.Context(), completions(gs)...)
			}
			// With another role or search_path semel cannot write: that is the message's failure.
			if far := strings.Contains(strings.ToLower(q), "role") || strings.Contains(q, "SESSION AUTH") || strings.Contains(q, "search_path"); err != nil && !far {
				t.Errorf("%s: %s returned %v", q, end, err)
			}
			// Both connections of the pool, at once.
			a, err := db.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			b, err := db.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, one := session(t, a)
			_, two := session(t, b)
			a.Release()
			b.Release()
			if one != two || !strings.Contains(one, db.info.place) {
				t.Errorf("%s, %s: sessions are\n%s\n%s", q, end, one, two)
			}
		}
	}
}

// TestHandlersLeaveSemelsTablesAlone is the same for handlers that have the transaction.
func TestHandlersLeaveSemelsTablesAlone(t *testing.T) {
	db := openFor(t, Options{})
	traps(t, db)
	s := db.Store()
	worksFor(t, s, "bystander", 1)
	want := standing(t, db)
	for i, list := range attacks {
		x, gs := beginAll(t, s, driver.Key{Consumer: "c", Raw: fmt.Sprint("k", i)})
		tx := lendPgx(t, x)
		temp, failed := false, false
		for _, st := range attack(list, db.info.place).List {
			_, err := tx.Exec(t.Context(), st.SQL)
			failed = failed || err != nil
			temp = temp || strings.Contains(st.SQL, "mine AS") || strings.Contains(st.SQL, "TEMPORARY mine") || strings.Contains(st.SQL, "ledger")
		}
		if err := x.Commit(t.Context(), completions(gs)...); (err == nil) != temp {
			t.Errorf("%q: failed %v, commit returned %v", list, failed, err)
		}
	}
	if got := standing(t, db); got != want {
		t.Errorf("semel's tables are %s, were %s", got, want)
	}
	// What is semel's goes on in their transactions.
	x, gs := beginAll(t, s, driver.Key{Consumer: "c", Raw: "sends"})
	if err := db.Queue("q").SendTx(t.Context(), lendPgx(t, x), driver.Message{ID: "1"}, driver.Message{ID: "2", Group: "g"}); err != nil {
		t.Error(err)
	}
	if err := db.Queue("q").SendSQLTx(t.Context(), lendSQL(t, x), driver.Message{ID: "3"}); err != nil {
		t.Error(err)
	}
	if err := x.Commit(t.Context(), completions(gs)...); err != nil {
		t.Error(err)
	}
}

// TestEffectsOfARoleThatOwnsNothing: a worker with the documented rights commits effects, and what it may not do anyway is
// its message's failure.
func TestEffectsOfARoleThatOwnsNothing(t *testing.T) {
	owner := openFor(t, Options{})
	place, role, base := owner.info.place, fmt.Sprintf("semel_role_%016x", rand.Uint64()), sameSchema(owner)
	onServer(t, base, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
	t.Cleanup(func() { onServer(t, base, "DROP OWNED BY "+role); onServer(t, base, "DROP ROLE "+role) })
	for _, q := range []string{
		"USAGE ON SCHEMA " + place, "SELECT ON semel_schema", "ALL ON ledger", "USAGE, SELECT ON SEQUENCE semel_token",
		"SELECT, INSERT, UPDATE, DELETE ON semel_record, semel_sweep, semel_floor, semel_open, semel_queue, semel_message, " +
			"semel_dead_letter, semel_step, semel_audit, semel_duplicate, semel_worker, semel_long_term",
	} {
		execSQL(t, owner, "GRANT "+q+" TO "+role)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "x")
	db, err := Open(t.Context(), u.String(), Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []string{"DELETE FROM semel_record", "DROP TABLE semel_record", "SELECT setval('semel_token', 1)", "CREATE TEMP TABLE ledger (id text)"} {
		ws := worksFor(t, db.Store(), q, 2)
		stmts(&ws[1]).Exec(q)
		refuses(t, db.Store(), ws, 1, "ERROR")
	}
	x, gs := beginAll(t, db.Store(), driver.Key{Consumer: "c", Raw: "k"})
	if _, err := lendPgx(t, x).Exec(t.Context(), "INSERT INTO ledger (id) VALUES ('k')"); err != nil {
		t.Error(err)
	}
	if err := x.Commit(t.Context(), completions(gs)...); err != nil {
		t.Error(err)
	}
}

// TestEffectsKeepThePoolersSettings: what a pooler's connect_query set is found by Open, and is there after effects.
func TestEffectsKeepThePoolersSettings(t *testing.T) {
	db := openFor(t, Options{MaxConns: 1})
	execSQL(t, db, "SET work_mem = '7MB'") // as it would be when Open looks
	if err := db.pool.QueryRow(t.Context(), sqlSession).Scan(&db.info.names, &db.info.values); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(db.info.names, db.info.values) != "[work_mem] [7MB]" {
		t.Fatalf("settings of the session are %v %v", db.info.names, db.info.values)
	}
	for _, last := range []string{"INSERT INTO ledger (id) VALUES ('x')", "SELECT 1 / 0"} {
		ws := worksFor(t, db.Store(), last, 2)
		stmts(&ws[0]).Exec("SELECT set_config('work_mem', '9MB', false)")
		stmts(&ws[1]).ExecRows(1, "INSERT INTO ledger SELECT 'x' WHERE current_setting('work_mem') = '7MB'")
		stmts(&ws[1]).Exec(last)
		_, err := db.Store().Commit(t.Context(), ws...)
		if fails := last == "SELECT 1 / 0"; (err != nil) != fails || fails && code(err) != "22012" {
			t.Errorf("%s: commit returned %v", last, err)
		}
		var now string
		if err := db.pool.QueryRow(t.Context(), "SHOW work_mem").Scan(&now); err != nil || now != "7MB" {
			t.Errorf("%s: work_mem is %s, %v", last, now, err)
		}
	}
}
