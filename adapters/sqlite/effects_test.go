package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in, out string
		args    int
		order   string
	}{
		{"INSERT INTO x VALUES ($1, $2)", "INSERT INTO x VALUES (?, ?)", 2, "[0 1]"},
		{"UPDATE x SET a = $2 WHERE b = $1 OR c = $2;", "UPDATE x SET a = ? WHERE b = ? OR c = ?", 2, "[1 0 1]"},
		{"UPDATE x SET a = ?, b = ?1, c = ?3, d = ?", "UPDATE x SET a = ?, b = ?, c = ?, d = ?", 4, "[0 0 2 3]"},
		{"INSERT INTO x VALUES ('$1 ? ''it''s', \"a?b\", `c$1`, [d?], $1) -- $9\n/* ? */ ; ",
			"INSERT INTO x VALUES ('$1 ? ''it''s', \"a?b\", `c$1`, [d?], ?) -- $9\n/* ? */  ", 1, "[0]"},
		{"/* first */ DELETE FROM x WHERE a->>'$.b' = ?", "/* first */ DELETE FROM x WHERE a->>'$.b' = ?", 1, "[0]"},
		{"INSERT INTO commits VALUES (1)", "INSERT INTO commits VALUES (1)", 0, "[]"},
		{"INSERT INTO x VALUES (1e5, 0x1F, x'00', größe)", "INSERT INTO x VALUES (1e5, 0x1F, x'00', größe)", 0, "[]"},
	} {
		p, err := parse(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if p.SQL != c.out || p.Args != c.args || fmt.Sprint(p.Order) != c.order {
			t.Errorf("%s\n got %q %d %v\nwant %q %d %s", c.in, p.SQL, p.Args, p.Order, c.out, c.args, c.order)
		}
	}
	for in, part := range map[string]string{
		"": "empty", "  -- nothing": "empty", ";": "empty",
		"COMMIT": "COMMIT is transaction control", "/* x */ rollback": "ROLLBACK is transaction control",
		"begin": "BEGIN", "END": "END", "savepoint a": "SAVEPOINT", "release a": "RELEASE",
		"ATTACH 'x' AS y": "ATTACH is a change of the connection", "PRAGMA journal_mode = DELETE": "PRAGMA", "vacuum": "VACUUM",
		"INSERT INTO x VALUES (1); COMMIT": "more than one statement",
		";;COMMIT":                         "COMMIT is transaction control",
		"CREATE TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; END":      "CREATE TRIGGER",
		"create temp trigger t AFTER INSERT ON x BEGIN SELECT 1; END": "CREATE TRIGGER",
		"INSERT INTO x VALUES (:name)":                                "placeholder :name",
		"INSERT INTO x VALUES (@p1)":                                  "placeholder @p1",
		"INSERT INTO x VALUES ($0)":                                   "placeholder $0",
		"INSERT INTO x VALUES (?99999)":                               "placeholder ?99999",
		"INSERT INTO x VALUES ('open)":                                "quote is not closed",
		"INSERT INTO x VALUES ([open)":                                "not closed",
	} {
		if _, err := parse(in); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: error %v, want one with %q", in, err, part)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"INSERT INTO x VALUES ($1, '?', \"a\"\"b\")", "DELETE FROM x;--", "/*", "[", "'", "$1$2??3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		p, err := parse(in)
		if err != nil {
			return
		}
		for _, i := range p.Order {
			if i < 0 || i >= p.Args {
				t.Fatalf("placeholder %d of %d arguments", i, p.Args)
			}
		}
		again, err := parse(p.SQL)
		if err != nil || again.SQL != p.SQL || len(again.Order) != len(p.Order) {
			t.Fatalf("%q became %q became %v, %v", in, p.SQL, again, err)
		}
	})
}

type named string

func TestBindValues(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 890000000, time.FixedZone("x", 3600))
	seven := 7
	for _, c := range []struct{ in, want any }{
		{nil, nil}, {true, int64(1)}, {3, int64(3)}, {uint8(4), int64(4)}, {2.5, 2.5}, {float32(0.5), 0.5}, {"s", "s"},
		{named("n"), "n"}, {&seven, int64(7)}, {(*int)(nil), nil}, {json.Number("12"), int64(12)}, {json.Number("1.0"), 1.0},
		{json.Number("1e3"), 1000.0}, {json.RawMessage(`{"a":1}`), `{"a":1}`}, {map[string]any{"a": 1}, `{"a":1}`},
		{[]any{1, "b"}, `[1,"b"]`}, {at, "2026-03-04 04:06:07.89+00:00"}, {time.Second, int64(time.Second)},
	} {
		got, err := bindValue(c.in)
		if err != nil || got != c.want {
			t.Errorf("%T %v became %T %v (%v), want %T %v", c.in, c.in, got, got, err, c.want, c.want)
		}
	}
	if b, err := bindValue([]byte{0, 1}); err != nil || string(b.([]byte)) != "\x00\x01" {
		t.Errorf("bytes became %v, %v", b, err)
	}
	for _, bad := range []any{uint64(math.MaxUint64), json.Number("99999999999999999999"), make(chan int), json.Number("x")} {
		if v, err := bindValue(bad); err == nil {
			t.Errorf("%T %v became %v", bad, bad, v)
		}
	}
}

// acquire claims a new key.
func acquire(t *testing.T, s *Store, key string) driver.Hold {
	t.Helper()
	g := must(s.Claim(t.Context(), claim(key)))(t)
	if g[0].Verdict != driver.Acquired {
		t.Fatalf("claim %q: %v", key, g[0].Verdict)
	}
	return g[0].Hold
}

func complete(h driver.Hold, st *driver.Statements) driver.Work {
	w := driver.Work{Finish: driver.Finish{Hold: h, Final: driver.Complete, Keep: time.Hour}}
	if st != nil {
		w.Effects = st
	}
	return w
}

func TestEffects(t *testing.T) {
	db := open(t)
	s := db.Store()
	exec_(t, db, "CREATE TABLE x (n INTEGER, r REAL, s TEXT, b BLOB, at TIMESTAMP)")
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	var st driver.Statements
	st.ExecRows(1, "INSERT INTO x VALUES ($2, $1, $3, $4, $5)", 1.5, 2, "three", []byte("four"), at)
	st.ExecRows(0, "UPDATE x SET n = 0 WHERE n = ?", 99)
	st.ExecRows(0, "CREATE TABLE y (id TEXT)") // changes() would still speak of the statement before
	st.ExecRows(1, "WITH v AS (SELECT 'w' AS id) INSERT INTO y SELECT id FROM v")
	st.ExecRows(0, "WITH v AS (SELECT 1) SELECT * FROM v")
	if out := must(s.Commit(t.Context(), complete(acquire(t, s, "k"), &st)))(t); out[0] != driver.Applied {
		t.Fatal(out)
	}
	var n int
	var r float64
	var text string
	var b []byte
	var got time.Time
	row := db.SQL().QueryRowContext(t.Context(), "SELECT n, r, s, b, at FROM x")
	if err := row.Scan(&n, &r, &text, &b, &got); err != nil {
		t.Fatal(err)
	}
	if n != 2 || r != 1.5 || text != "three" || string(b) != "four" || !got.Equal(at) {
		t.Errorf("stored %v %v %v %s %v", n, r, text, b, got)
	}
}

func TestRefusedEffectsChangeNothing(t *testing.T) {
	db := open(t)
	s := db.Store()
	exec_(t, db, "CREATE TABLE x (id TEXT PRIMARY KEY)")
	exec_(t, db, "INSERT INTO x VALUES ('taken')")
	for i, c := range []struct {
		sql  string
		args []any
		rows int
		part string
	}{
		{"INSERT INTO x VALUES ('taken')", nil, -1, "UNIQUE"},
		{"INSERT OR ROLLBACK INTO x VALUES ('taken')", nil, -1, "UNIQUE"},
		{"UPDATE x SET id = 'b' WHERE id = 'none'", nil, 1, "changed 0 rows, must change 1"},
		{"INSERT INTO x VALUES ($1)", nil, -1, "0 arguments for 1 placeholders"},
		{"INSERT INTO x VALUES ($1)", []any{make(chan int)}, -1, "argument 1"},
		{"INSERT INTO nowhere VALUES (1)", nil, -1, "no such table"},
		{"COMMIT", nil, -1, "transaction control"},
	} {
		ok, bad := acquire(t, s, fmt.Sprint("ok", i)), acquire(t, s, fmt.Sprint("bad", i))
		var good, refused driver.Statements
		good.Exec("INSERT INTO x VALUES ('good')")
		refused.Exec("INSERT INTO x VALUES ('first')")
		refused.List = append(refused.List, driver.Statement{SQL: c.sql, Args: c.args, Rows: c.rows})
		_, err := s.Commit(t.Context(), complete(ok, &good), complete(bad, &refused))
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != 1 {
			t.Errorf("%s: error %v names no item 1", c.sql, err)
			continue
		}
		wantErr(t, err, c.part, "statement 2")
		if n := count(t, db, "SELECT count(*) FROM x"); n != 1 {
			t.Errorf("%s: %d rows remain", c.sql, n)
		}
		if n := count(t, db, "SELECT count(*) FROM semel_record WHERE state = 3"); n != 0 {
			t.Errorf("%s: %d records are completed", c.sql, n)
		}
	}
}

// TestFM72_FailedCommitAmongOthers commits from many goroutines at once, a fifth of them with effects that are refused:
// group commit must not let one caller's failure touch the others, nor anything of it remain.
func TestFM72_FailedCommitAmongOthers(t *testing.T) {
	db := open(t)
	s := db.Store()
	exec_(t, db, "CREATE TABLE x (id INTEGER)")
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 25 {
				n := g*100 + i
				h := acquire(t, s, fmt.Sprint(n))
				var st driver.Statements
				st.Exec("INSERT INTO x VALUES (?)", n)
				if n%5 == 0 {
					st.Exec("INSERT INTO nowhere VALUES (1)")
				}
				out, err := s.Commit(t.Context(), complete(h, &st))
				if n%5 == 0 {
					var item *driver.ItemError
					if !errors.As(err, &item) {
						t.Errorf("%d: %v, %v", n, out, err)
					}
				} else if err != nil || out[0] != driver.Applied {
					t.Errorf("%d: %v, %v", n, out, err)
				}
			}
		})
	}
	wg.Wait()
	if n := count(t, db, "SELECT count(*) FROM x WHERE id % 5 = 0"); n != 0 {
		t.Errorf("%d effects of failed commits", n)
	}
	if n, d := count(t, db, "SELECT count(*) FROM x"), count(t, db, "SELECT count(DISTINCT id) FROM x"); n != 320 || d != 320 {
		t.Errorf("%d effects, %d distinct, want 320", n, d)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_record WHERE state = 3"); n != 320 {
		t.Errorf("%d records completed, want 320", n)
	}
}

func TestManyStatementsOfOneHandler(t *testing.T) {
	db := open(t)
	s := db.Store()
	exec_(t, db, "CREATE TABLE x (id INTEGER)")
	var st driver.Statements
	for i := range 3 * maxUserStatements { // values written into the SQL: each is another statement
		st.ExecRows(1, fmt.Sprintf("INSERT INTO x VALUES (%d)", i))
		st.ExecRows(1, "INSERT INTO x VALUES (?)", -1)
	}
	if out := must(s.Commit(t.Context(), complete(acquire(t, s, "k"), &st)))(t); out[0] != driver.Applied {
		t.Fatal(out)
	}
	if n := len(db.writer.user); n > maxUserStatements {
		t.Errorf("%d statements are kept", n)
	}
	if n := count(t, db, "SELECT count(*) FROM x"); n != 6*maxUserStatements {
		t.Errorf("%d rows", n)
	}
}

func TestCommitRefusesWhatItCannotWrite(t *testing.T) {
	db, other := open(t), open(t)
	s, ctx := db.Store(), t.Context()
	if err := other.Queue("q").Send(ctx, driver.Message{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	d := must(other.Queue("q").Receive(ctx, 1))(t)
	if s.Joins(other.Queue("q")) || !s.Joins(db.Queue("q")) {
		t.Error("Joins is wrong")
	}
	h := acquire(t, s, "k")
	foreign := complete(h, nil)
	foreign.Ack = &driver.Settlement{Receipt: d[0].Receipt}
	effects := complete(h, nil)
	effects.Effects = "text"
	nowhere := complete(h, nil)
	nowhere.Emit = []driver.Message{{ID: "1"}}
	for _, w := range []driver.Work{foreign, effects, nowhere} {
		_, err := s.Commit(ctx, w)
		var item *driver.ItemError
		if !errors.As(err, &item) {
			t.Errorf("commit %+v: %v", w, err)
		}
	}
	if r, _, err := s.Record(ctx, h.Key); err != nil || r.State != driver.InProgress {
		t.Errorf("record %v, %v", r.State, err)
	}
}
