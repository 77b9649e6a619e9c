package sqlite

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestInsertedValues: rows that are data have the values that Exec would store.
func TestInsertedValues(t *testing.T) {
	db := open(t)
	exec_(t, db, `CREATE TABLE "a table" (n INTEGER, r REAL, s TEXT, b BLOB, at TIMESTAMP, j TEXT, "nothing""" TEXT, yes INTEGER)`)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	var st driver.Statements
	st.Insert("main.a table", []string{"n", "r", "s", "b", "at", "j", `nothing"`, "yes"},
		2, 1.5, "three", []byte("four"), at, map[string]any{"x": 1}, nil, true)
	if out := must(db.Store().Commit(t.Context(), complete(acquire(t, db.Store(), "k"), &st)))(t); out[0] != driver.Applied {
		t.Fatal(out)
	}
	const all = `SELECT count(*) FROM "a table" WHERE n = 2 AND r = 1.5 AND s = 'three' AND b = x'666f7572' AND
		datetime(at) = '2026-03-04 05:06:07' AND j = '{"x":1}' AND "nothing""" IS NULL AND yes = 1`
	if n := count(t, db, all); n != 1 {
		t.Errorf("%d rows with all values", n)
	}
}

// TestRefusedRowFailsItsMessage: whatever is wrong with a row, the message that queued it is named, nothing of the call is
// written, and semel's tables are as before.
func TestRefusedRowFailsItsMessage(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	exec_(t, db, "CREATE TABLE typed (id INTEGER PRIMARY KEY, must TEXT NOT NULL DEFAULT 1, amount REAL CHECK (amount > 0))")
	exec_(t, db, "INSERT INTO typed (id) VALUES (1)")
	exec_(t, db, "CREATE TRIGGER springs AFTER INSERT ON ledger_parent BEGIN DELETE FROM semel_record; END")
	for i, c := range []struct {
		table, column string
		value         any
		part          string
	}{
		{"typed", "id", 1, "UNIQUE"}, {"typed", "id", "one", "datatype mismatch"}, {"typed", "must", nil, "NOT NULL"},
		{"typed", "amount", -1, "CHECK"}, {"typed", "id", make(chan int), "argument 1"}, {"typed", "nosuch", 1, "no column named nosuch"},
		{"nowhere", "id", 1, "no such table"}, {"no.where", "id", 1, "no such table"}, {`"ledger"`, "id", 1, "no such table"},
		{`ledger" (id) VALUES ('x'); --`, "id", 1, "no such table"}, {"ledger", `id") VALUES ('x'); --`, 1, "no column named"},
		{"semel_record", "state", 3, "semel's own table semel_record"}, {"SEMEL_Record", "state", 3, "semel's own table"},
		{"main.semel_record", "state", 3, "semel's own table"}, {"temp.semel_record", "state", 3, "no such table"},
		{"sqlite_master", "sql", "x", "sqlite_master"}, {"ledger_parent", "id", "x", "semel's own table semel_record"},
		{"ledger\x00", "id", 1, "zero byte"}, {"ledger", "id\x00", 1, "zero byte"},
	} {
		var ws []driver.Work
		for n := range 5 {
			var st driver.Statements
			st.Insert("ledger", []string{"id"}, fmt.Sprint(i, "-", n))
			if n == 3 {
				st.Insert(c.table, []string{c.column}, c.value)
			}
			ws = append(ws, complete(acquire(t, s, fmt.Sprint(i, "-", n)), &st))
		}
		before := count(t, db, "SELECT count(*) FROM ledger")
		_, err := s.Commit(t.Context(), ws...)
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != 3 {
			t.Errorf("%+v: error %v names no item 3", c, err)
			continue
		}
		wantErr(t, err, c.part, "statement 2")
		if n := count(t, db, "SELECT count(*) FROM ledger"); n != before {
			t.Errorf("%+v: %d rows, were %d", c, n, before)
		}
		if out := must(s.Commit(t.Context(), append(ws[:3:3], ws[4])...))(t); out[3] != driver.Applied {
			t.Errorf("%+v: without it: %v", c, out)
		}
	}
}
