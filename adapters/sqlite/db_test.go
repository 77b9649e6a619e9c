package sqlite

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

func open(t *testing.T) *DB {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "semel.db"), Options{})
}

func openAt(t testing.TB, path string, o Options) *DB {
	t.Helper()
	o.Create = true
	db, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func nonce() (n driver.Nonce) {
	_, _ = rand.Read(n[:])
	return n
}

func claim(key string) driver.Claim {
	return driver.Claim{Key: driver.Key{Consumer: "c", Raw: key}, Nonce: nonce(), Lease: time.Minute}
}

func exec_(t *testing.T, db *DB, query string, args ...any) {
	t.Helper()
	if _, err := db.SQL().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, db *DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.SQL().QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestOneMessageEndToEnd(t *testing.T) {
	db := open(t)
	exec_(t, db, "CREATE TABLE ledger (id TEXT)")
	q, s := db.Queue("orders"), db.Store()
	ctx := context.Background()
	if err := q.Send(ctx, driver.Message{ID: "m1", Body: []byte("hi"), Headers: map[string]string{"A": "b"}}); err != nil {
		t.Fatal(err)
	}
	d := must(q.Receive(ctx, 10))(t)
	if len(d) != 1 || d[0].ID != "m1" || string(d[0].Body) != "hi" || d[0].Header("a") != "b" || d[0].Count != 1 {
		t.Fatalf("received %+v", d)
	}
	g := must(s.Claim(ctx, claim("m1")))(t)
	if g[0].Verdict != driver.Acquired || g[0].Hold.Token != 1 {
		t.Fatalf("grant %+v", g[0])
	}
	var st driver.Statements
	st.ExecRows(1, "INSERT INTO ledger (id) VALUES ($1)", "m1")
	out := must(s.Commit(ctx, driver.Work{
		Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour, Result: []byte("7")},
		Ack:    &driver.Settlement{Receipt: d[0].Receipt}, Effects: &st,
		Emit: []driver.Message{{Queue: "mails", ID: "e1"}},
	}))(t)
	if out[0] != driver.Applied {
		t.Fatalf("commit: %v", out)
	}
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != 1 {
		t.Fatalf("%d effects", n)
	}
	if st := must(q.Stats(ctx))(t); !st.Empty() {
		t.Fatalf("queue %+v", st)
	}
	if d := must(db.Queue("mails").Receive(ctx, 1))(t); d[0].ID != "e1" {
		t.Fatalf("emitted %+v", d)
	}
	c := claim("m1")
	if g := must(s.Claim(ctx, c))(t); g[0].Verdict != driver.Replay || string(g[0].Result) != "7" {
		t.Fatalf("second claim %+v", g[0])
	}
}
