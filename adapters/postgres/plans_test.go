package postgres

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// TestPlansOutliveAnEmptyTable: statements that were planned while the table was empty must not read it from end to end
// for the rest of their connection's life.
func TestPlansOutliveAnEmptyTable(t *testing.T) {
	db := openLedger(t, emptySchema(t), Options{MaxConns: 1, NoListen: true})
	s := db.Store()
	execSQL(t, db, "ALTER TABLE semel_record SET (autovacuum_enabled = off)") // an analyze would fix what is tested
	execSQL(t, db, "VACUUM ANALYZE semel_record")
	// Every path, more often than it takes for a generic plan.
	use := func(round int) {
		gs := mustClaim(t, s, claimsOf(testKeys(fmt.Sprint(round)+"-%d", 5), long)...)
		holds, fs := make([]driver.Hold, 5), make([]driver.Finish, 5)
		for i, g := range gs {
			holds[i], fs[i] = g.Hold, completion(g)
		}
		fs[4].Final, fs[4].Ran = driver.Release, driver.NotApplied
		if _, err := s.Extend(t.Context(), long, holds...); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Finish(t.Context(), fs...); err != nil {
			t.Fatal(err)
		}
		if gs, err := s.Claim(t.Context(), claimsOf(testKeys(fmt.Sprint(round)+"-%d", 5), long)...); err != nil || gs[4].Attempt != 2 {
			t.Fatalf("%+v, %v", gs, err)
		}
		parked := mustClaim(t, s, claimsOf(testKeys(fmt.Sprint(round)+"-parked-%d", 1), long)...)[0].Hold
		if _, err := s.Finish(t.Context(), driver.Finish{Hold: parked, Final: driver.Park}); err != nil {
			t.Fatal(err)
		}
		list := driver.RecordFilter{Consumer: parked.Key.Consumer, State: driver.Uncertain, Limit: 1}
		if rs, err := s.Records(t.Context(), list); err != nil || len(rs) != 1 {
			t.Fatalf("%d uncertain records, %v", len(rs), err)
		}
		usePlansOfVersions(t, s, round)
		if _, _, err := s.Sweep(t.Context(), time.Hour, 10); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		use(i)
	}
	execSQL(t, db, `INSERT INTO semel_record (place, token, nonce, created_at, updated_at, retain_until, state, consumer)
		SELECT decode(md5(g::text), 'hex'), 0, md5(g::text)::uuid, now(), now(), now() + interval '1 day', 3, '' FROM generate_series(1, 20000) g`)
	execSQL(t, db, `INSERT INTO semel_step (place, epoch, version, name, seq, state, undo, failures, token, nonce, updated_at)
		SELECT decode(md5(g::text), 'hex'), 0, '', '', 1, 3, false, 0, 0, md5(g::text)::uuid, now() FROM generate_series(1, 20000) g`)
	// Backends report their counts once in a second at most, those of one table together. From version 15 on they can be asked to.
	scans := func(least int) (seq, idx int) {
		for end := time.Now().Add(time.Minute); idx < least && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			for _, c := range db.pool.AcquireAllIdle(t.Context()) {
				_, _ = c.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
				c.Release()
			}
			execSQL(t, db, "SELECT 1")
			if err := db.pool.QueryRow(t.Context(), `SELECT sum(seq_scan), sum(idx_scan) FROM pg_stat_user_tables
				WHERE relid IN ('semel_record'::regclass, 'semel_step'::regclass)`).Scan(&seq, &idx); err != nil {
				t.Fatal(err)
			}
		}
		return seq, idx
	}
	const ofOneRound = 10 // index scans, at least
	seq, idx := scans(8 * ofOneRound)
	for i := range 4 {
		use(100 + i)
	}
	seq2, idx2 := scans(idx + 4*ofOneRound)
	if seq2 != seq {
		t.Errorf("%d sequential scans of the full table", seq2-seq)
	}
	if idx2-idx < 4*ofOneRound {
		t.Errorf("%d index scans: the test does not see the statements", idx2-idx)
	}
}

// usePlansOfVersions claims keys with versions and writes steps, on the fast paths and on those that the table decides.
func usePlansOfVersions(t *testing.T, s *Store, round int) {
	t.Helper()
	for _, v := range []string{"1", "2"} {
		cs := claimsOf(testKeys(fmt.Sprint("entity-", round)+"-%d", 3), long)
		for i := range cs {
			cs[i].Version = driver.TextVersion(v)
		}
		for _, g := range mustClaim(t, s, cs...) {
			w := driver.StepWrite{Kind: driver.FinishStep, Name: "a"}
			for range 2 { // the second is a repetition
				if o, err := s.WriteSteps(t.Context(), g.Hold, w); err != nil || o != driver.Applied {
					t.Fatal(o, err)
				}
			}
			if _, err := s.Steps(t.Context(), g.Hold); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Finish(t.Context(), completion(g)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCompletionsStayInTheirPage: an attempt's end needs no entry in the index (HOT).
func TestCompletionsStayInTheirPage(t *testing.T) {
	db := openLedger(t, emptySchema(t), Options{MaxConns: 1, NoListen: true})
	s := db.Store()
	for round := range 20 {
		gs := mustClaim(t, s, claimsOf(testKeys(fmt.Sprint(round)+"-%d", 200), long)...)
		fs := make([]driver.Finish, len(gs))
		for i, g := range gs {
			fs[i] = completion(g)
			fs[i].Result = []byte(`{"charged": 1200}`)
		}
		if _, err := s.Finish(t.Context(), fs...); err != nil {
			t.Fatal(err)
		}
	}
	var all, hot int
	for end := time.Now().Add(time.Minute); all < 4000 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		execSQL(t, db, "SELECT 1")
		if err := db.pool.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'semel_record'::regclass").Scan(&all, &hot); err != nil {
			t.Fatal(err)
		}
	}
	if all < 4000 || hot < all*8/10 {
		t.Errorf("%d of %d completions stayed in their page", hot, all)
	}
}

// TestSweepReadsRanges: a stretch is read as a range of pages.
func TestSweepReadsRanges(t *testing.T) {
	db := openLedger(t, emptySchema(t), Options{MaxConns: 1, NoListen: true})
	execSQL(t, db, "SET enable_seqscan = off") // as semel_sweep_step does
	rows, err := db.pool.Query(t.Context(), `EXPLAIN (COSTS OFF) SELECT o.ctid FROM semel_record o WHERE o.ctid >= '(0,0)'::tid
		AND o.ctid < '(256,0)'::tid AND o.state IN (2, 3, 4) AND o.retain_until < now() LIMIT 10 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if strings.Contains(l, "Tid Range Scan") {
			return
		}
	}
	t.Errorf("the plan is %q", lines)
}
