package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// ageAnnouncements makes announcements of digests older, and the stretches of records due that wait for them.
func ageAnnouncements(db *DB) func(t testing.TB, d time.Duration) {
	return func(t testing.TB, d time.Duration) {
		t.Helper()
		execSQL(t, db, "UPDATE semel_digest_young SET at = at - $1::interval", d)
		execSQL(t, db, "UPDATE semel_sweep SET due = due - $1::interval WHERE isfinite(due)", d)
	}
}

// TestAnnouncementsAreCommittedSoon: filters are believed for a time that counts on it, however long transactions may last
// that handlers have.
func TestAnnouncementsAreCommittedSoon(t *testing.T) {
	db := openFor(t, Options{MaxTx: time.Hour})
	execSQL(t, db, `CREATE TABLE seen (bound interval);
		CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO seen VALUES (current_setting('idle_in_transaction_session_timeout')::interval); RETURN NEW; END $$;
		CREATE TRIGGER look BEFORE INSERT ON semel_digest_young FOR EACH ROW EXECUTE FUNCTION look()`)
	if err := db.Store().Remember(t.Context(), "", 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	fillRecords(t, db, "old", 1, driver.Completed, -time.Second)
	if sum := sweepAll(t, db.Store(), 0); sum.Announced != 1 {
		t.Fatalf("swept %+v", sum)
	}
	var bound time.Duration
	if err := db.pool.QueryRow(t.Context(), "SELECT bound FROM seen").Scan(&bound); err != nil || bound <= 0 || bound > time.Minute {
		t.Errorf("a sweep that stands still is ended after %v, %v", bound, err)
	}
}

// TestStaleAnnouncementsGoInSteps: what is left of a day in which nobody swept goes in bounded steps, and waits for nobody
// who announces some of it anew.
func TestStaleAnnouncementsGoInSteps(t *testing.T) {
	db := openFor(t, Options{})
	execSQL(t, db, `INSERT INTO semel_digest_young (hash, at, day) SELECT md5(g::text)::uuid, now() - interval '25 hours', 9999
		FROM generate_series(1, 6000) g`)
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "UPDATE semel_digest_young SET at = now() WHERE hash = md5('1')::uuid"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1000, 1, 1} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if err := db.Store().purgeDigests(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		var left int
		if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM semel_digest_young").Scan(&left); err != nil || left != want {
			t.Errorf("step %d: %d are left, %v; wanted %d", i, left, err, want)
		}
	}
}

// TestDigestsEnd: digests that are over are not found, and go a few pages at a time, whichever page they are in.
func TestDigestsEnd(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	const n = 40_000
	execSQL(t, db, `INSERT INTO semel_digest (hash, ended, day) SELECT md5(g::text)::uuid, 55000,
		floor((extract(epoch FROM now()) - 1577836800) / 86400)::int + g % 2 FROM generate_series(1, $1::int) g`, n)
	execSQL(t, db, "ANALYZE semel_digest")
	st, err := s.DigestStats(t.Context())
	if err != nil || st.Count != n || st.Bytes/n > 130 {
		t.Errorf("%+v, %v", st, err)
	}
	t.Logf("%.1f bytes a digest", float64(st.Bytes)/n)
	var found int
	if err := db.pool.QueryRow(t.Context(), `SELECT count(*) FROM semel_remembered(
		ARRAY (SELECT md5(g::text)::uuid FROM generate_series(1, $1::int) g))`, n).Scan(&found); err != nil || found != n/2 {
		t.Errorf("%d are found, %v", found, err)
	}
	for range n/(digestPages*100) + 2 {
		if err := s.purgeDigests(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	err = s.ScanDigests(t.Context(), false, func(driver.DigestHash, time.Time) error { seen++; return nil })
	if err != nil || seen != n/2 {
		t.Errorf("%d are left of %d, %v", seen, n/2, err)
	}
}
