package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

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
	if ds := receive(t, q, 2); ds[0].ID != "a" || ds[1].ID != "b" {
		t.Errorf("received %v", ds)
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
	if ds := receive(t, q, 2); ds[0].ID != "c" || ds[1].ID != "d" {
		t.Errorf("received %v", ds)
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
		t.Errorf("a receipt of the rolled back transaction answered %v", o)
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
