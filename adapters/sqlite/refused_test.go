package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sqlite3lib "modernc.org/sqlite/lib"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// deadLetterOf runs a consumer of ids, which are its keys, until n effects are in the ledger and there is one dead letter,
// which it returns.
func deadLetterOf(t *testing.T, db *DB, h semel.Handler, n int) driver.DeadLetter {
	t.Helper()
	q := db.Queue("orders")
	c, err := semel.New(semel.Config{
		Queue: q, Store: db.Store(), Handler: h, MaxAttempts: 2, Consumer: "default", Visibility: time.Minute,
		Key:     func(m *semel.Message) (string, error) { return m.ID, nil },
		Backoff: semel.Backoff{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var ls []driver.DeadLetter
	for ctx.Err() == nil {
		if ls, err = q.DeadLetters(ctx, 0); err == nil && len(ls) > 0 && count(t, db, "SELECT count(*) FROM ledger") == n {
			break
		}
		time.Sleep(10 * time.Millisecond) // the pause between two looks
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := count(t, db, "SELECT count(*) FROM ledger"); got != n || len(ls) != 1 {
		t.Fatalf("%d of %d effects, dead letters %v", got, n, ls)
	}
	return ls[0]
}

// TestFM46_DamagedIndexOfOneEffect: a full-text index of the application is damaged. The messages that do not need it go on,
// the one that does has failed.
func TestFM46_DamagedIndexOfOneEffect(t *testing.T) {
	db := open(t)
	exec_(t, db, "CREATE TABLE ledger (key text)")
	exec_(t, db, "CREATE VIRTUAL TABLE docs USING fts5(body, content='')")
	exec_(t, db, "INSERT INTO docs(rowid, body) VALUES (1, 'a b c')")
	exec_(t, db, "DELETE FROM docs_data WHERE id >= 10")
	const damaged = "INSERT INTO docs(docs, rowid, body) VALUES ('delete', 1, 'x')"
	if _, err := db.SQL().Exec(damaged); code(err) != sqlite3lib.SQLITE_CORRUPT {
		t.Fatalf("the statement alone returns %v", err)
	}
	q := db.Queue("orders")
	for i := range 30 {
		id := fmt.Sprint("ok", i)
		if i == 15 {
			id = "bad"
		}
		if err := q.Send(t.Context(), semel.Message{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	l := deadLetterOf(t, db, semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
		if a.Key.Raw == "bad" {
			e.Exec(damaged)
		} else {
			e.Exec("INSERT INTO ledger VALUES ($1)", a.Key.Raw)
		}
		return nil
	}), 29)
	if l.Message.ID != "bad" || l.Attempts != 2 {
		t.Errorf("dead letter %+v", l)
	}
}

// TestFM82_UnreadableRecord: a record that a newer program wrote stops its key alone. Its message becomes a dead letter in the
// end, and Do returns the error at once.
func TestFM82_UnreadableRecord(t *testing.T) {
	db := open(t)
	exec_(t, db, "CREATE TABLE ledger (key text)")
	s := db.Store()
	key := driver.Key{Consumer: "default", Raw: "bad"}
	if _, err := s.Claim(t.Context(), driver.Claim{Key: key, Nonce: driver.Nonce{1}, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	exec_(t, db, "UPDATE semel_record SET watermark = x'0300'")
	ran := false
	if _, _, err := semel.Do(t.Context(), s, key, func(context.Context, *semel.Attempt) (int, error) { ran = true; return 1, nil }); !errors.Is(err, semel.ErrUnreadable) || ran {
		t.Fatalf("Do returned %v, ran %v", err, ran)
	}
	q := db.Queue("orders")
	for _, id := range []string{"bad", "a", "b", "c", "d", "e"} {
		if err := q.Send(t.Context(), semel.Message{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	l := deadLetterOf(t, db, semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
		e.Exec("INSERT INTO ledger VALUES ($1)", a.Key.Raw)
		return nil
	}), 5)
	if l.Message.ID != "bad" || !strings.Contains(l.Reason, `key "bad"`) || !strings.Contains(l.Reason, "upgrade this worker") {
		t.Errorf("dead letter %+v", l)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_record WHERE watermark = x'0300' AND state = 1"); n != 1 {
		t.Error("the record was written")
	}
}
