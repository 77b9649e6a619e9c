package memory

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTimers pushes and removes in random order: no entry is ever due before its parent, and each knows its place.
func TestTimers(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var h timers
	begin := time.Unix(0, 0)
	for step := range 20_000 {
		if len(h) == 0 || len(h) < 200 && r.IntN(2) == 0 {
			h.push(&entry{due: begin.Add(time.Duration(r.IntN(1000)))})
		} else {
			h.remove(h[r.IntN(len(h))])
		}
		for i, e := range h {
			if e.heap != i+1 || e.due.Before(h[max(i-1, 0)/2].due) {
				t.Fatalf("seed %d, step %d: entry %d has place %d, due %v, its parent %v", seed, step, i, e.heap, e.due, h[max(i-1, 0)/2].due)
			}
		}
	}
}
