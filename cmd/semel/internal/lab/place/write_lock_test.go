package place

import (
	"path/filepath"
	"testing"
	"time"
)

// TestWithWriteLockKeepsOthersOut: no process writes to the file while f runs, and every process may afterwards.
func TestWithWriteLockKeepsOthersOut(t *testing.T) {
	r, err := Open(t.Context(), File(filepath.Join(t.TempDir(), "lab.db")), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if len(r.files) != 1 {
		t.Fatalf("%d files", len(r.files))
	}
	ran := false
	err = r.WithWriteLock(t.Context(), func() {
		ran = true
		c, err := r.files[0].Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = c.ExecContext(t.Context(), "PRAGMA busy_timeout = 0")
		if _, err := c.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err == nil {
			t.Error("another connection writes")
			_, _ = c.ExecContext(t.Context(), "ROLLBACK")
		}
	})
	if err != nil || !ran {
		t.Fatalf("%v, ran %t", err, ran)
	}
	if err := r.AddEffect(t.Context(), Effect{Key: "a", At: time.Now()}, ""); err != nil {
		t.Errorf("the lock was not returned: %v", err)
	}
}
