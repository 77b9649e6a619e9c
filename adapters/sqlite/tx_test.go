package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// addTx writes an effect in an open transaction.
func addTx(ctx context.Context, x driver.Tx, id string) error {
	var tx *sql.Tx
	x.As(&tx)
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
	return err
}

// begin opens a transaction that acquires its keys.
func begin(t *testing.T, s *Store, c ...driver.Claim) (driver.Tx, []driver.Grant) {
	t.Helper()
	x, g, err := s.Begin(t.Context(), c...)
	if err != nil {
		t.Fatal(err)
	}
	return x, g
}

// TestI3_TokensOfRolledBackTransactions: a handler saw them, so they are not handed out again.
func TestI3_TokensOfRolledBackTransactions(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	seen := map[uint64]bool{}
	last := uint64(0)
	note := func(token uint64, key string) {
		t.Helper()
		if seen[token] {
			t.Fatalf("token %d was handed out twice", token)
		}
		seen[token] = true
		if key == "k" {
			if token <= last {
				t.Fatalf("token %d of a key after %d", token, last)
			}
			last = token
		}
	}
	for i := range 3 * reserveStep {
		x, g := begin(t, s, claim("k"))
		note(g[0].Hold.Token, "k")
		if err := x.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 { // others draw meanwhile
			h := acquire(t, s, "other"+string(rune('a'+i%26))+string(rune('a'+i/26)))
			note(h.Token, "other")
		}
	}
	if n := count(t, db, "SELECT count(*) FROM semel_records WHERE key = 'k'"); n != 0 {
		t.Error("a rolled-back claim left a record")
	}
	h := acquire(t, s, "k")
	note(h.Token, "k")
	if _, err := s.Finish(t.Context(), driver.Finish{Hold: h, Final: driver.Release}); err != nil {
		t.Fatal(err)
	}
	_, g := begin(t, s, claim("k"))
	note(g[0].Hold.Token, "k")
}

// TestFM72_ClaimWithoutWork: an item that failed or did not run leaves no trace, and an earlier record is as before.
func TestFM72_ClaimWithoutWork(t *testing.T) {
	db := openFor(t, Options{})
	s, ctx := db.Store(), t.Context()
	old := acquire(t, s, "old")
	if _, err := s.Finish(ctx, driver.Finish{Hold: old, Final: driver.Release, Ran: driver.MaybeApplied, Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	before, _, err := s.Record(ctx, old.Key)
	if err != nil {
		t.Fatal(err)
	}
	x, g := begin(t, s, claim("ran"), claim("failed"), claim("old"))
	if err := addTx(ctx, x, "ran"); err != nil {
		t.Fatal(err)
	}
	if err := x.Commit(ctx, complete(g[0].Hold, nil)); err != nil {
		t.Fatal(err)
	}
	if r, ok, err := s.Record(ctx, driver.Key{Consumer: "c", Raw: "failed"}); ok || err != nil {
		t.Errorf("the failed item has a record: %+v, %v", r, err)
	}
	after, _, err := s.Record(ctx, old.Key)
	if err != nil || after.Token != before.Token || after.State != before.State || after.Attempt != before.Attempt {
		t.Errorf("record before %+v, after %+v, %v", before, after, err)
	}
	if r, _, err := s.Record(ctx, g[0].Hold.Key); err != nil || r.State != driver.Completed {
		t.Errorf("record %v, %v", r.State, err)
	}
}

// TestFM68_LongTransaction: it is rolled back after MaxTx, and others write again.
func TestFM68_LongTransaction(t *testing.T) {
	const most = 2 * time.Second // enough for the handler's statement on a slow machine
	db := openFor(t, Options{MaxTx: most})
	s, ctx := db.Store(), t.Context()
	if db.Store().Features().MaxTx != most {
		t.Error("the bound is not declared")
	}
	x, g := begin(t, s, claim("slow"))
	if err := addTx(ctx, x, "slow"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	acquire(t, s, "other") // waits for the end of the transaction
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("a claim waited %v", d)
	}
	err := x.Commit(ctx, complete(g[0].Hold, nil))
	if !errors.Is(err, driver.ErrNotCommitted) {
		t.Fatalf("commit after MaxTx: %v", err)
	}
	wantErr(t, err, "MaxTx")
	if err := x.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != 0 {
		t.Error("the effect of a rolled-back transaction remains")
	}
}

func TestHandlerThatEndsTheTransaction(t *testing.T) {
	db := openFor(t, Options{})
	s, ctx := db.Store(), t.Context()
	for _, end := range []string{"rollback", "commit", "sql"} {
		x, g := begin(t, s, claim(end))
		var tx *sql.Tx
		x.As(&tx)
		var err error
		switch end {
		case "rollback":
			err = tx.Rollback()
		case "commit":
			err = tx.Commit()
		case "sql":
			_, err = tx.ExecContext(ctx, "ROLLBACK")
		}
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, x.Commit(ctx, complete(g[0].Hold, nil)), "handler ended the transaction")
		if r, _, err := s.Record(ctx, g[0].Hold.Key); err != nil || r.State == driver.Completed {
			t.Errorf("%s: record %v, %v", end, r.State, err)
		}
		acquire(t, s, "after "+end) // the turn to write was released
	}
}

func TestBeginCommitsWhatAcquiresNothing(t *testing.T) {
	c := newClock()
	db := openFor(t, Options{clock: c.now})
	s, ctx := db.Store(), t.Context()
	once := claim("once")
	once.Takeover = driver.Once
	if _, err := s.Claim(ctx, once); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Hour)
	x, g := begin(t, s, claim("once"), claim("new"))
	if g[0].Verdict != driver.Parked || g[1].Verdict != driver.Acquired {
		t.Fatalf("grants %v %v", g[0].Verdict, g[1].Verdict)
	}
	if err := x.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if r, _, err := s.Record(ctx, once.Key); err != nil || r.State != driver.Uncertain {
		t.Errorf("record %v, %v: the verdict was returned, so it is durable", r.State, err)
	}
	if x, g := begin(t, s, claim("once")); x != nil || g[0].Verdict != driver.Parked {
		t.Errorf("nothing acquired, but %v", x)
	}
}

// TestBeginTimesOut: another process holds the lock.
func TestBeginTimesOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	db := openAt(t, path, Options{BusyTimeout: 200 * time.Millisecond})
	other := openAt(t, path, Options{})
	x, _ := begin(t, other.Store(), claim("k"))
	_, _, err := db.Store().Begin(t.Context(), claim("j"))
	if !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("begin: %v", err)
	}
	_, err = db.Store().Claim(t.Context(), claim("j"))
	if !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("claim: %v", err)
	}
	wantErr(t, err, "locked")
	waiting := openAt(t, path, Options{BusyTimeout: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := waiting.Store().Claim(ctx, claim("j")); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("claim with a deadline: %v", err)
	}
	if err := x.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, db.Store(), "j")
}
