package postgres

import (
	"testing"
	"time"
)

// ageAnnouncements makes announcements of digests older, and the stretches of records due that wait for them.
func ageAnnouncements(db *DB) func(t testing.TB, d time.Duration) {
	return func(t testing.TB, d time.Duration) {
		t.Helper()
		execSQL(t, db, "UPDATE semel_digest_young SET at = at - $1::interval", d)
		execSQL(t, db, "UPDATE semel_sweep SET due = due - $1::interval WHERE isfinite(due)", d)
	}
}
