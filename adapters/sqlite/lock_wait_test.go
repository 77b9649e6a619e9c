package sqlite

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitsForTheLockInAttempts: a process that hardly gets to run has not waited when the time has passed.
func TestWaitsForTheLockInAttempts(t *testing.T) {
	locked := lockedError(t)
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			attempt, want time.Duration // how long one attempt takes, and how long all of them
		}{
			"idle machine": {0, 10 * time.Second},
			"busy machine": {50 * time.Millisecond, 50200 * time.Millisecond},
			"no attempts":  {time.Minute, 2 * time.Minute},
		} {
			began := time.Now()
			err := patiently(t.Context(), 10*time.Second, func() error { time.Sleep(c.attempt); return locked })
			if took := time.Since(began); !errors.Is(err, locked) || took < c.want-time.Second/100 || took > c.want+time.Second/100 {
				t.Errorf("%s: gave up after %v with %v, want %v", name, took, err, c.want)
			}
		}
	})
}

// lockedError is what SQLite says of a file that somebody else has locked.
func lockedError(t *testing.T) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.db")
	db := openAt(t, path, Options{})
	holder, err := openSession(t.Context(), dsn(path, db.o, writePragmas(db.o)), 0)
	if err == nil {
		_, err = holder.exec("BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := openSession(t.Context(), dsn(path, db.o, writePragmas(db.o)), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.exec("BEGIN IMMEDIATE")
	if cerr := errors.Join(s.close(), holder.close()); cerr != nil || !busy(err) {
		t.Fatal(err, cerr)
	}
	return err
}
