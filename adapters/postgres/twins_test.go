package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

func beginOwn(t testing.TB, db *DB) pgx.Tx {
	t.Helper()
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// TestSeenTx is an inbox in the caller's own transaction, with both libraries.
func TestSeenTx(t *testing.T) {
	db := openFor(t, Options{LockWait: 100 * time.Millisecond})
	s := db.Store()
	ctx := t.Context()
	k := driver.Key{Consumer: "own", Raw: "key \x00\xff"}
	once := func(commit bool) bool {
		tx := beginOwn(t, db)
		seen, err := s.SeenTx(ctx, tx, k, keep)
		if err != nil {
			t.Fatal(err)
		}
		if !seen {
			if _, err := tx.Exec(ctx, addToLedger, "pgx"); err != nil {
				t.Fatal(err)
			}
		}
		if commit {
			err = tx.Commit(ctx)
		} else {
			err = tx.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	if once(false) || once(true) || !once(true) || !once(true) || countLedger(t, db) != 1 {
		t.Errorf("%d effects", countLedger(t, db))
	}
	if r, found, err := s.Record(ctx, k); !found || err != nil || r.State != driver.Completed || (r.RetainUntil.Sub(r.CompletedAt)-keep).Abs() > time.Second {
		t.Errorf("the record is %+v, %v, %v", r, found, err)
	}
	// A consumer replays it.
	if g, err := s.Claim(ctx, claimOf(k, long)); err != nil || g[0].Verdict != driver.Replay {
		t.Errorf("claim answered %+v, %v", g, err)
	}
	std, err := db.std.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = std.Rollback() }()
	if seen, err := s.SeenSQLTx(ctx, std, k, keep); !seen || err != nil {
		t.Errorf("database/sql: %v, %v", seen, err)
	}
	other := driver.Key{Consumer: "own", Raw: "other"}
	if seen, err := s.SeenSQLTx(ctx, std, other, keep); seen || err != nil {
		t.Errorf("database/sql: %v, %v", seen, err)
	}
	// A twin waits for it, and does not run.
	if _, err := s.SeenTx(ctx, beginOwn(t, db), other, keep); code(err) != codeLocked {
		t.Errorf("a twin of an open transaction answered %v", err)
	}
}

// TestFM69_SeenIsNotCompleted: a record in another state is no duplicate that may be dropped.
func TestFM69_SeenIsNotCompleted(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ks := testKeys("k%d", 4)
	gs := mustClaim(t, s, claimsOf(ks, long)...)
	fs := []driver.Finish{completion(gs[1]), completion(gs[2]), completion(gs[3])}
	fs[0].Final, fs[1].Final, fs[2].Final = driver.Release, driver.Fail, driver.Park
	if _, err := s.Finish(t.Context(), fs...); err != nil {
		t.Fatal(err)
	}
	for _, k := range ks {
		if seen, err := s.SeenTx(t.Context(), beginOwn(t, db), k, keep); seen || !errors.Is(err, ErrPending) {
			t.Errorf("key %q: %v, %v", k.Raw, seen, err)
		}
	}
}

// TestClaimTx holds and finishes in the caller's transaction, also inside a savepoint.
func TestClaimTx(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ctx := t.Context()
	ks := testKeys("k%d", 3)
	mustClaim(t, s, claimOf(ks[0], time.Millisecond)) // to be taken over
	time.Sleep(3 * time.Millisecond)                  // the lease ends
	for _, nested := range []bool{false, true} {
		outer := beginOwn(t, db)
		tx := outer
		if nested {
			var err error
			if tx, err = outer.Begin(ctx); err != nil {
				t.Fatal(err)
			}
		}
		cs := claimsOf(ks, long)
		gs, err := s.ClaimTx(ctx, tx, cs...)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range gs {
			if g.Verdict != driver.Acquired || g.Err != nil || (g.Takeovers == 1) != (i == 0) {
				t.Errorf("nested %v, key %d: %+v", nested, i, g)
			}
		}
		again, err := s.ClaimTx(ctx, tx, cs...)
		if err != nil || again[0].Verdict != driver.Acquired || again[2].Hold != gs[2].Hold {
			t.Errorf("nested %v, the claims repeated answered %+v, %v", nested, again, err)
		}
		f := completion(gs[1])
		lost := completion(gs[2])
		lost.Hold.Token++
		if out, err := s.FinishTx(ctx, tx, completion(gs[0]), f, lost); err != nil || out[0] != driver.Applied || out[1] != driver.Applied || out[2] != driver.Lost {
			t.Errorf("finish answered %v, %v", out, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		_ = outer.Rollback(ctx)
	}
	if n := countRecords(t, db, "true"); n != 1 {
		t.Errorf("%d records after the rollbacks", n)
	}
}
