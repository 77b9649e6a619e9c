package driver_test

import (
	"math"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestFM41_HowLateACopyCanCome: law 10's horizon, with what a provider moves back from its dead letters.
func TestFM41_HowLateACopyCanCome(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name                         string
		kept, deadLetters, producers time.Duration
		restarts                     bool
		want                         time.Duration
	}{
		{"nothing is known", 0, 0, 0, false, 0},
		{"a queue without dead letters", 4 * day, 0, 0, false, 4 * day},
		{"producers alone", 0, 0, day, false, day},
		{"a standard queue: the age goes on counting in the dead letters", 4 * day, 14 * day, 0, false, 18 * day},
		{"dead letters that are kept for less than messages", 4 * day, day, 0, false, 5 * day},
		{"a FIFO queue: the age begins anew", 4 * day, 14 * day, 0, true, 22 * day},
		{"all of it", 4 * day, 14 * day, 2 * day, true, 24 * day},
		{"dead letters of a queue that keeps forever", 0, 14 * day, 0, false, 0},
		{"too long", math.MaxInt64, math.MaxInt64, math.MaxInt64, true, math.MaxInt64},
	} {
		if got := driver.LateBy(c.kept, driver.MovedBack(c.kept, c.deadLetters, c.restarts), c.producers); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		f := driver.QueueFeatures{Retention: c.kept, Horizon: driver.LateBy(c.kept, driver.MovedBack(c.kept, c.deadLetters, c.restarts), 0)}
		if got := f.LateBy(c.producers); got != c.want {
			t.Errorf("%s: the queue says %v, want %v", c.name, got, c.want)
		}
	}
	if got := (driver.QueueFeatures{Retention: day}).LateBy(time.Hour); got != 25*time.Hour {
		t.Errorf("a queue that says no more than its retention: %v, want 25h", got)
	}
}
