package lab

import (
	"testing"
	"time"
)

// TestStoodStill: what is not as expected counts unless a process stood still for a tenth of the visibility, or 100 ms.
func TestStoodStill(t *testing.T) {
	for _, c := range []struct {
		late, visibility time.Duration
		want             bool
	}{
		{0, time.Second, false},
		{40 * time.Millisecond, 500 * time.Millisecond, false},
		{50 * time.Millisecond, 500 * time.Millisecond, true},
		{99 * time.Millisecond, 5 * time.Second, false},
		{100 * time.Millisecond, 5 * time.Second, true},
	} {
		if got := stoodStill(c.late, c.visibility); got != c.want {
			t.Errorf("late by %v with a visibility of %v: %v", c.late, c.visibility, got)
		}
	}
}
