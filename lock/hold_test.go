package lock_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/lock"
	"github.com/semel-dev/semel/memory"
)

// TestFM8_SilentHolder: with MaxHold a holder that hangs loses the lock, though its process lives on; one that speaks
// up in time keeps it.
func TestFM8_SilentHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		o := lock.Options{Lease: 30 * time.Second, MaxHold: time.Minute}
		h := acquire(t, locker(t, s, o))
		for range 20 {
			time.Sleep(55 * time.Second)
			if err := h.Extend(t.Context()); err != nil {
				t.Fatalf("a holder that spoke up lost the lock: %v", err)
			}
		}
		spoke := time.Now()
		next := acquire(t, locker(t, s, lock.Options{}))
		if d := time.Since(spoke); d < o.MaxHold || d > o.MaxHold+o.Lease+time.Second {
			t.Errorf("taken over %v after the last word", d)
		}
		if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the silent holder's context ended with %v", cause)
		}
		for _, h := range []*lock.Held{h, next} {
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestEpoch: after a store lost data its tokens begin anew; a greater epoch makes them greater than all before, and
// they still fit where SQL keeps them.
func TestEpoch(t *testing.T) {
	before := locker(t, memory.NewStore(), lock.Options{})
	var old *lock.Held
	for range 5 {
		old = acquire(t, before)
		if err := old.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last := old.Token()
	for _, epoch := range []uint8{1, 2, 127} {
		h := acquire(t, locker(t, memory.NewStore(), lock.Options{Epoch: epoch}))
		if h.Token() <= last || h.Token() > math.MaxInt64 {
			t.Errorf("epoch %d: token %d after %d", epoch, h.Token(), last)
		}
		last = h.Token()
		r := &http.Request{Header: http.Header{}}
		h.Header(r.Header)
		if got, err := lock.CheckHeader(r, old.Token()); err != nil || got != last {
			t.Errorf("the header says %d: %v", got, err)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestHeaderRefused: what is no token, or not one token, opens nothing.
func TestHeaderRefused(t *testing.T) {
	for _, values := range [][]string{
		nil, {""}, {"0"}, {"-1"}, {"+5"}, {"5.0"}, {"9223372036854775808"}, {"99999999999999999999"}, {"7", "8"}, {"7, 8"},
	} {
		r := &http.Request{Header: http.Header{lock.HeaderName: values}}
		if got, err := lock.CheckHeader(r, 3); err == nil || errors.Is(err, lock.ErrStale) || got != 3 {
			t.Errorf("%q: %d, %v", values, got, err)
		}
	}
}
