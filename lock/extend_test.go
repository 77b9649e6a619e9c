package lock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/lock"
	"github.com/semel-dev/semel/memory"
)

// TestLostIsNotExtended: a holder that lost the lock, or unlocked it, and still calls Extend does not keep the lock from
// others.
func TestLostIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, what := range []string{"lost", "unlocked"} {
			s := &hanging{Store: memory.NewStore()}
			h := acquire(t, locker(t, s, lock.Options{Lease: 30 * time.Second}))
			s.hangs.Store(true)
			if what == "lost" {
				<-h.Context().Done() // a little before the store's lease ends
			} else if err := h.Unlock(t.Context()); err == nil {
				t.Error("unlocked without a response")
			}
			s.hangs.Store(false)
			began := time.Now()
			if err := h.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("%s: Extend returned %v, wanted ErrLost", what, err)
			}
			next := acquire(t, locker(t, s, lock.Options{}))
			if waited := time.Since(began); waited > 5*time.Second {
				t.Errorf("%s: the next holder waited %v although the lock was free", what, waited)
			}
			if err := next.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
