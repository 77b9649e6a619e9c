package sqlite

import (
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

type brokenValuer struct{ seen map[string]int }

func (b brokenValuer) Value() (sqldriver.Value, error) { b.seen["x"]++; return "x", nil }

// TestFM06_ArgumentThatPanics: a panic in the methods of an argument refuses its item, and ends nothing else.
func TestFM06_ArgumentThatPanics(t *testing.T) {
	db := open(t)
	exec_(t, db, "CREATE TABLE x (a)")
	bad, good := &driver.Statements{}, &driver.Statements{}
	bad.Exec("INSERT INTO x VALUES (?), (?)", 1, brokenValuer{})
	good.Exec("INSERT INTO x VALUES (?)", 2)
	g, b := complete(acquire(t, db.Store(), "good"), good), complete(acquire(t, db.Store(), "bad"), bad)
	_, err := db.Store().Commit(t.Context(), g, b)
	var item *driver.ItemError
	if !errors.As(err, &item) || item.Index != 1 || count(t, db, "SELECT count(*) FROM x") != 0 {
		t.Fatalf("commit returned %v", err)
	}
	if out, err := db.Store().Commit(t.Context(), g); err != nil || out[0] != driver.Applied {
		t.Errorf("the other one: %v %v", out, err)
	}
}

// Headers are kept as JSON, which holds UTF-8 only: two headers that differ in other bytes would be read as the same, and
// a key that is made of them would be taken for a duplicate.
func TestHeadersThatAreNotUTF8(t *testing.T) {
	db := open(t)
	q := db.Queue("q")
	for _, h := range []map[string]string{{"order": "M\xfcller"}, {"n\xe4me": "x"}} {
		if err := q.Send(t.Context(), driver.Message{ID: "1", Headers: h}); err == nil {
			t.Errorf("headers %q were accepted", h)
		}
		w := complete(acquire(t, db.Store(), h["order"]), nil)
		w.Effects, w.Emit = nil, []driver.Message{{Queue: "q", Headers: h}}
		var item *driver.ItemError
		if _, err := db.Store().Commit(t.Context(), w); !errors.As(err, &item) {
			t.Errorf("headers %q: emitting a message returned %v", h, err)
		}
	}
	if st, err := q.Stats(t.Context()); err != nil || !st.Empty() {
		t.Errorf("%+v %v", st, err)
	}
	// A dead letter is made all the same: what cannot be kept exactly must not be lost.
	l := driver.DeadLetter{ID: "l", Kind: driver.DeadLetterFailed, DeadAt: time.Now(), Message: driver.Message{Headers: map[string]string{"a": "\xff"}}}
	if err := q.PutDeadLetter(t.Context(), l); err != nil {
		t.Error(err)
	}
}
