package outbox

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/virtual"
)

// TestFM62HoldByOurOwnClock: a process that was frozen finds out by its own clock that it no longer holds its messages.
func TestFM62HoldByOurOwnClock(t *testing.T) {
	fresh, old, gone := &item{}, &item{}, &item{}
	h := &hold{time: virtual.Real{}, visible: time.Second, until: map[*item]time.Time{
		fresh: time.Now().Add(time.Minute), old: time.Now().Add(-time.Millisecond),
	}}
	if !h.has(fresh) || h.has(old) || h.has(gone) {
		t.Errorf("fresh %v, old %v, gone %v", h.has(fresh), h.has(old), h.has(gone))
	}
	h.visible = 0 // no visibility timeout
	if !h.has(old) || h.has(gone) {
		t.Errorf("without a timeout: old %v, gone %v", h.has(old), h.has(gone))
	}
}
