package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// Close keeps the turn to write for good: a Begin that was about to take it must not wait for it.
func TestCloseDuringBegin(t *testing.T) {
	const callers = 8
	for round := range 40 {
		db, err := Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{}, callers)
		for i := range callers {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if tx, _, err := db.Store().Begin(ctx, claim(fmt.Sprintf("k%d", i))); err == nil && tx != nil {
					_ = tx.Rollback(ctx)
				}
				done <- struct{}{}
			}()
		}
		time.Sleep(time.Duration(round) * 20 * time.Microsecond) // whenever: another moment each round
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		for range callers {
			select {
			case <-done:
			case <-time.After(2 * time.Minute):
				t.Fatalf("round %d: Begin hangs after Close", round)
			}
		}
	}
}
