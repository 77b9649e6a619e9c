package postgres

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestSweepOfManySteps: journals go with their records, and one transaction of a sweep removes a bounded number of steps.
func TestSweepOfManySteps(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	gs := mustClaim(t, s, claimsOf(testKeys("purged-%d", 4), long)...)
	for _, g := range gs {
		execSQL(t, db, `INSERT INTO semel_step (place, epoch, version, name, seq, state, undo, failures, token, nonce, updated_at)
			SELECT $1, 0, '', g::text::bytea, g, 3, false, 0, $2, $3, now() FROM generate_series(1, 3000) g`,
			placeOf(&g.Hold.Key), int64(g.Hold.Token), uuid(g.Hold.Nonce))
	}
	stays := mustClaim(t, s, claimOf(driver.Key{Raw: "stays"}, long))[0]
	if o, err := s.WriteSteps(t.Context(), stays.Hold, driver.StepWrite{Kind: driver.RegisterStep, Name: "a"}); err != nil || o != driver.Applied {
		t.Fatal(o, err)
	}
	for _, g := range gs {
		f := completion(g)
		f.Keep = time.Microsecond
		if out, err := s.Finish(t.Context(), f); err != nil || out[0] != driver.Applied {
			t.Fatal(out, err)
		}
	}
	most, sum := 0, 0
	w := &sweep{db: db}
	for !w.end {
		if err := w.step(t.Context(), sweepStep); err != nil {
			t.Fatal(err)
		}
		most, sum = max(most, w.did.Purged), sum+w.did.Purged
	}
	if sum != 4 || most != 1 {
		t.Errorf("%d records were purged, %d at once; wanted 4, one at once: 3000 steps each, 5000 at once", sum, most)
	}
	var left int
	if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM semel_step").Scan(&left); err != nil || left != 1 {
		t.Errorf("%d steps are left, %v; wanted the one of the record that stays", left, err)
	}
}
