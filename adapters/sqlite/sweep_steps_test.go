package sqlite

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// TestSweepOfManySteps: journals go with their records, and one transaction of a sweep removes a bounded number of steps.
func TestSweepOfManySteps(t *testing.T) {
	t.Run("purge", func(t *testing.T) { sweepOfManySteps(t, 0) })
	t.Run("expire", func(t *testing.T) { sweepOfManySteps(t, time.Hour) })
}

func sweepOfManySteps(t *testing.T, period time.Duration) {
	t.Helper()
	db := open(t)
	s, ctx := db.Store(), t.Context()
	if err := s.SetLongTerm(ctx, "c", period); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		g := must(s.Claim(ctx, claim(key)))(t)[0]
		exec_(t, db, `WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < 3000)
			INSERT INTO semel_step (place, epoch, version, name, seq, state, undo, failures, token, nonce, updated_at, reason)
			SELECT ?, 0, zeroblob(0), CAST(n AS TEXT), n, 3, 0, 0, ?, zeroblob(16), 0, '' FROM g`, []byte(rowstore.PlaceOf(&g.Hold.Key)), int64(g.Hold.Token))
		f := driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: -time.Second}
		if out := must(s.Finish(ctx, f))(t); out[0] != driver.Applied {
			t.Fatal(out)
		}
	}
	stays := must(s.Claim(ctx, claim("stays")))(t)[0]
	if o := must(s.WriteSteps(ctx, stays.Hold, driver.StepWrite{Kind: driver.RegisterStep, Name: "a"}))(t); o != driver.Applied {
		t.Fatal(o)
	}
	most, sum, from := 0, 0, int64(0)
	for end := false; !end; {
		err := db.write(ctx, sweepStep, func(t *txn) error {
			w := sweep{t: t, left: sweepStep, from: from}
			err := w.run()
			n := w.sum.Count()
			most, sum, from, end = max(most, n), sum+n, w.from, w.end
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if sum != 4 || most != 2 {
		t.Errorf("%d records went, %d at once; wanted 4, two at once: 3000 steps each, the second passes 5000", sum, most)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_step"); n != 1 {
		t.Errorf("%d steps are left, wanted the one of the record that stays", n)
	}
}
