package postgres

import (
	"context"
	"errors"
	"slices"
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
		t.Errorf("claim returned %+v, %v", g, err)
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
	// A duplicate waits for it, and does not run.
	if _, err := s.SeenTx(ctx, beginOwn(t, db), other, keep); code(err) != codeLocked {
		t.Errorf("a duplicate of an open transaction returned %v", err)
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
			t.Errorf("nested %v, the claims repeated returned %+v, %v", nested, again, err)
		}
		f := completion(gs[1])
		lost := completion(gs[2])
		lost.Hold.Token++
		if out, err := s.FinishTx(ctx, tx, completion(gs[0]), f, lost); err != nil || out[0] != driver.Applied || out[1] != driver.Applied || out[2] != driver.Lost {
			t.Errorf("finish returned %v, %v", out, err)
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

func begin(t *testing.T, db *DB) pgx.Tx {
	t.Helper()
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// receivedIDs are the IDs of the next messages, sorted: there is no order between ordered groups and other messages.
func receivedIDs(t *testing.T, q *Queue, n int) (ids []string) {
	t.Helper()
	for _, d := range receive(t, q, n) {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestSendTx: what is sent in a transaction is there when it commits, and only then.
func TestSendTx(t *testing.T) {
	q := queueDB(t, Options{PollInterval: 50 * time.Millisecond}).Queue("q")
	gone := begin(t, q.db)
	if err := q.SendTx(t.Context(), gone, driver.Message{ID: "rolled back"}); err != nil {
		t.Fatal(err)
	}
	if err := gone.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, q.db)
	if err := q.SendTx(t.Context(), tx, driver.Message{ID: "a"}, driver.Message{ID: "b", Group: "g"}); err != nil {
		t.Fatal(err)
	}
	none(t, q)
	commit(t, tx)
	if got := receivedIDs(t, q, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("received %v", got)
	}
	std, err := q.db.std.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SendSQLTx(t.Context(), std, driver.Message{ID: "c"}, driver.Message{ID: "d", Group: "h"}); err != nil {
		t.Fatal(err)
	}
	if err := std.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := receivedIDs(t, q, 2); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("received %v", got)
	}
}

// TestReceiveTx: what is received in a transaction is nobody else's, is there again when the transaction is rolled back,
// and gone when it was settled and committed.
func TestReceiveTx(t *testing.T) {
	q := queueDB(t, Options{PollInterval: 50 * time.Millisecond, MaxConns: 6}).Queue("q")
	send(t, q, messages(0, 4)...)
	send(t, q, driver.Message{ID: "head", Group: "g"}, driver.Message{ID: "next", Group: "g"})
	tx := begin(t, q.db)
	ds, err := q.ReceiveTx(t.Context(), tx, 10)
	if err != nil || len(ds) != 5 {
		t.Fatal(len(ds), err)
	}
	none(t, q)
	if more, err := q.ReceiveTx(t.Context(), begin(t, q.db), 10); err != nil || len(more) != 0 {
		t.Errorf("another transaction received %v, %v", more, err)
	}
	out, err := q.SettleTx(t.Context(), tx, driver.Settlement{Receipt: ds[0].Receipt}, driver.Settlement{Receipt: ds[4].Receipt})
	if err != nil || out[0] != driver.Applied || out[1] != driver.Applied {
		t.Fatal(out, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := receive(t, q, 5); again[0].Count != 1 {
		t.Errorf("the rolled back transaction left a count: %d", again[0].Count)
	} else if o := settle(t, q, driver.Settlement{Receipt: ds[0].Receipt}); o != driver.Lost {
		t.Errorf("a receipt of the rolled back transaction returned %v", o)
	} else {
		for _, d := range again { // give them back at once
			settle(t, q, driver.Settlement{Receipt: d.Receipt, Action: driver.Defer})
		}
	}

	tx = begin(t, q.db)
	if ds, err = q.ReceiveTx(t.Context(), tx, 10); err != nil || len(ds) != 5 || ds[0].Count != 2 {
		t.Fatal(ds, err)
	}
	ss := make([]driver.Settlement, 5)
	for i, d := range ds {
		ss[i].Receipt = d.Receipt
		if d.ID == "m-3" {
			ss[i].Action, ss[i].DeadLetter = driver.Dead, &driver.DeadLetter{ID: "l", Message: d.Message}
		}
	}
	if out, err := q.SettleTx(t.Context(), tx, ss...); err != nil || out[0] != driver.Applied || out[4] != driver.Applied {
		t.Fatal(out, err)
	}
	commit(t, tx)
	if d := receive(t, q, 1)[0]; d.ID != "next" {
		t.Errorf("received %q", d.ID)
	}
	none(t, q)
	if l, ok, err := q.DeadLetter(t.Context(), "l"); !ok || err != nil || l.Message.ID != "m-3" {
		t.Errorf("dead letter: %+v, %v, %v", l, ok, err)
	}
}

// TestSettleTxOfALease settles a leased delivery in a transaction; the receipt is good until that commits.
func TestSettleTxOfALease(t *testing.T) {
	q := queueDB(t, Options{}).Queue("q")
	send(t, q, driver.Message{ID: "a"})
	d := receive(t, q, 1)[0]
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
	} {
		tx := begin(t, q.db)
		if out, err := q.SettleTx(t.Context(), tx, driver.Settlement{Receipt: d.Receipt}); err != nil || out[0] != driver.Applied {
			t.Fatal(out, err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := q.Stats(t.Context()); err != nil || !s.Empty() {
		t.Errorf("left are %+v, %v", s, err)
	}
}
