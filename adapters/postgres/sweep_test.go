package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// fillRecords writes n records of the given state whose retention and lease end after the given times from now.
func fillRecords(t testing.TB, db *DB, prefix string, n int, state driver.State, after time.Duration) {
	t.Helper()
	execSQL(t, db, `INSERT INTO semel_record (place, token, nonce, lease, lease_until, created_at, updated_at, retain_until, state,
		consumer) SELECT substring(sha256('') FOR 6) || '\x00' || convert_to($1 || g::text, 'UTF8'), nextval('semel_token'),
		md5($1 || g::text)::uuid, 1, now() + $4::interval, now(), now(),
		CASE WHEN $3::smallint IN (2, 3, 4) THEN now() + $4::interval END, $3, '' FROM generate_series(1, $2::int) g`, prefix, n, int16(state), after)
}

func countRecords(t testing.TB, db *DB, where string) (n int) {
	t.Helper()
	if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM semel_record WHERE "+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func sweepAll(t testing.TB, s *Store, horizon time.Duration) (sum driver.Swept) {
	t.Helper()
	got, more, err := s.Sweep(t.Context(), horizon, 0)
	if err != nil || more {
		t.Fatalf("sweep returned %+v, more %v, %v", got, more, err)
	}
	return got
}

// bigTable makes more stretches than a small table has.
func bigTable(t testing.TB, db *DB) {
	t.Helper()
	execSQL(t, db, "ALTER TABLE semel_record SET (fillfactor = 10)") // many pages, few records
	fillRecords(t, db, "kept", 15000, driver.Completed, 48*time.Hour)
	var pages int
	if err := db.pool.QueryRow(t.Context(), "SELECT pg_relation_size('semel_record') / 8192").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if pages <= sweepPages*sweepSmall {
		t.Fatalf("%d pages are a small table", pages)
	}
}

// TestSweepLooksOnlyWhereSomethingCanBeDue: a large table is not read as a whole every time, and nothing is forgotten.
func TestSweepLooksOnlyWhereSomethingCanBeDue(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	bigTable(t, db)
	fillRecords(t, db, "old", 100, driver.Completed, -time.Second)
	fillRecords(t, db, "live", 10, driver.InProgress, time.Hour)
	if sum := sweepAll(t, s, 0); sum != (driver.Swept{Purged: 100}) {
		t.Errorf("the first sweep returned %+v", sum)
	}
	due := func(where string) (n int) {
		if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM semel_sweep WHERE "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := due("due <= now()"); n != 0 {
		t.Errorf("%d stretches are due right after a sweep", n)
	}
	if n := due("due > now() + interval '1 hour'"); n != 0 {
		t.Errorf("%d stretches are not looked at for longer than an hour: new records are written into them", n)
	}
	// A record that is due in a stretch that is not is found when the stretch is.
	execSQL(t, db, "UPDATE semel_record SET retain_until = now() WHERE place = (SELECT place FROM semel_record WHERE encode(place, 'escape') LIKE '%kept%' LIMIT 1)")
	if sum := sweepAll(t, s, 0); sum.Purged != 0 {
		t.Errorf("a sweep looked where nothing was due: %+v", sum)
	}
	execSQL(t, db, "UPDATE semel_sweep SET due = now()")
	if sum := sweepAll(t, s, 0); sum.Purged != 1 {
		t.Errorf("an hour later a sweep returned %+v", sum)
	}
	// A short retention is looked at again soon.
	execSQL(t, db, "UPDATE semel_record SET retain_until = now() + interval '20 seconds', updated_at = now() WHERE place = (SELECT place FROM semel_record WHERE encode(place, 'escape') LIKE '%kept%' LIMIT 1)")
	execSQL(t, db, "UPDATE semel_sweep SET due = now()")
	sweepAll(t, s, 0)
	if n := due("due < now() + interval '21 seconds'"); n == 0 {
		t.Error("no stretch is due when its record is")
	}
}

// TestSweepWaitsForNobody: records that others hold are left for the next time, and live ones are not locked.
func TestSweepWaitsForNobody(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	fillRecords(t, db, "old", 50, driver.Completed, -time.Second)
	fillRecords(t, db, "live", 10, driver.InProgress, time.Hour)
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM semel_record WHERE convert_from(substring(place FROM 8), 'UTF8') IN ('old1', 'old2', 'live1') FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sum, more, err := s.Sweep(ctx, 0, 0)
	if err != nil || more || sum.Purged != 48 {
		t.Errorf("sweep returned %+v, %v, %v", sum, more, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sum := sweepAll(t, s, 0); sum.Purged != 2 {
		t.Errorf("the next sweep returned %+v", sum)
	}
}

// TestSweepsAtOnce: processes that sweep at once do everything once.
func TestSweepsAtOnce(t *testing.T) {
	db := openFor(t, Options{MaxConns: 6})
	s := db.Store()
	bigTable(t, db)
	execSQL(t, db, "ALTER TABLE semel_record RESET (fillfactor)")
	fillRecords(t, db, "old", 3000, driver.Completed, -time.Second)
	fillRecords(t, db, "lost", 300, driver.InProgress, -time.Hour)
	var purged, abandoned atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for more := true; more; {
				sum, m, err := s.Sweep(t.Context(), time.Minute, 100)
				if err != nil {
					t.Error(err)
					return
				}
				more = m
				purged.Add(int64(sum.Purged))
				abandoned.Add(int64(sum.Abandoned))
			}
		})
	}
	wg.Wait()
	// What one of them had locked, another left out.
	sum := sweepAll(t, s, time.Minute)
	if p, st := purged.Load()+int64(sum.Purged), abandoned.Load()+int64(sum.Abandoned); p != 3000 || st != 300 {
		t.Errorf("%d purged and %d parked, wanted 3000 and 300", p, st)
	}
	if n := countRecords(t, db, "state = 5 AND unknown AND uncertainty = 1"); n != 300 {
		t.Errorf("%d records are parked", n)
	}
}

// TestFM41_PurgeLooksAgain: a record that was past its retention and is claimed again stays.
func TestFM41_PurgeLooksAgain(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	fillRecords(t, db, "old", 1, driver.Released, -time.Hour)
	execSQL(t, db, "UPDATE semel_record SET retry_at = now(), spent = true")
	g := mustClaim(t, s, claimOf(driver.Key{Raw: "old1"}, long))[0]
	if sum := sweepAll(t, s, 0); sum.Purged != 0 || g.Attempt != 2 {
		t.Errorf("sweep returned %+v after the record was claimed (%+v)", sum, g)
	}
	if n := countRecords(t, db, "state = 1 AND retain_until IS NULL"); n != 1 {
		t.Error("the live record is gone")
	}
}

// TestSweepPassesByInfinity: a person may keep a record forever, and does not stop sweeps by it.
func TestSweepPassesByInfinity(t *testing.T) {
	db := openFor(t, Options{})
	fillRecords(t, db, "old", 5, driver.Completed, -time.Second)
	execSQL(t, db, "UPDATE semel_record SET retain_until = 'infinity' WHERE place = (SELECT place FROM semel_record LIMIT 1)")
	if sum := sweepAll(t, db.Store(), 0); sum.Purged != 4 {
		t.Errorf("a sweep returned %+v", sum)
	}
}
