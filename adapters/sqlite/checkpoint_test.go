package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// logOf reads how many frames the write-ahead log has, and how many of them the database has too.
func logOf(t *testing.T, db *DB) (frames, carried int) {
	t.Helper()
	var busy int
	err := db.SQL().QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(NOOP)").Scan(&busy, &frames, &carried)
	if err != nil {
		t.Fatal(err)
	}
	return frames, carried
}

// fillLog writes records until the log has that many frames, one claim a commit.
func fillLog(t *testing.T, db *DB, frames int) {
	t.Helper()
	began := time.Now().UnixNano()
	for i := 0; ; i++ {
		if have, _ := logOf(t, db); have >= frames {
			return
		}
		if _, err := db.Store().Claim(t.Context(), claim(fmt.Sprintf("%d-%d", began, i))); err != nil {
			t.Fatal(err)
		}
	}
}

// waitCarried waits until the database has all of the log, which nobody appends to.
func waitCarried(t *testing.T, db *DB, checkpoint int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		frames, carried := logOf(t, db)
		if frames >= checkpointLimit*checkpoint {
			t.Fatalf("the log has %d frames: a commit may have carried it over", frames)
		}
		if carried == frames {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("of %d frames of the log %d are carried over, and nobody writes", frames, carried)
		}
	}
}

// TestLogIsCarriedOverBesideTheWriter: from Options.Checkpoint on, and short of where a commit would do it; the commit
// after that begins the log anew.
func TestLogIsCarriedOverBesideTheWriter(t *testing.T) {
	const checkpoint = 200
	db := openAt(t, filepath.Join(t.TempDir(), "semel.db"), Options{Checkpoint: checkpoint})
	for round := range 3 {
		fillLog(t, db, checkpoint)
		waitCarried(t, db, checkpoint)
		if _, err := db.Store().Claim(t.Context(), claim(fmt.Sprintf("behind-%d", round))); err != nil {
			t.Fatal(err)
		}
		if frames, _ := logOf(t, db); frames >= checkpoint {
			t.Fatalf("round %d: the log goes on with frame %d", round, frames)
		}
	}
}

// TestLogThatBeganAnewIsAsLong: a log that began anew between two looks, and is as long as the one before, is carried over.
func TestLogThatBeganAnewIsAsLong(t *testing.T) {
	db := openAt(t, filepath.Join(t.TempDir(), "semel.db"), Options{Checkpoint: 1 << 20}) // its own looks do nothing
	s, err := connect(t.Context(), db.path, db.o, writePragmas(db.o))
	if err != nil {
		t.Fatal(err)
	}
	var c checkpointer
	c.init(&DB{o: Options{Checkpoint: 200}, lock: db.lock, closing: db.closing}, s)
	defer func() { _ = c.close() }()
	last := 200
	for round := range 3 {
		if _, err := db.Store().Claim(t.Context(), claim(fmt.Sprintf("first-%d", round))); err != nil {
			t.Fatal(err)
		}
		fillLog(t, db, last)
		c.look()
		frames, carried := logOf(t, db)
		if carried != frames {
			t.Fatalf("round %d: of %d frames of the log %d are carried over", round, frames, carried)
		}
		last = frames
	}
}

// TestReaderKeepsTheLog: a reader that began before keeps the log from being carried over, which must neither stop the
// writer nor be given up: once the reader is gone and something is written, it is done.
func TestReaderKeepsTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a log of many megabytes")
	}
	const checkpoint = 200
	db := openAt(t, filepath.Join(t.TempDir(), "semel.db"), Options{Checkpoint: checkpoint})
	fillLog(t, db, 10)
	reader, err := db.SQL().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM semel_record").Scan(&n); err != nil {
		t.Fatal(err)
	}
	fillLog(t, db, checkpoint*3/2)
	if frames, carried := logOf(t, db); carried == frames {
		t.Fatalf("all %d frames are carried over although a reader reads an older state", frames)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	fillLog(t, db, checkpoint*7/4)
	waitCarried(t, db, checkpoint)
	if _, err := db.Store().Claim(t.Context(), claim("behind")); err != nil {
		t.Fatal(err)
	}
	if frames, _ := logOf(t, db); frames >= checkpoint {
		t.Fatalf("the log goes on with frame %d", frames)
	}
}
