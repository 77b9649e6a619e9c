package kafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// TestFM25_PartAgainstModel settles messages of random keys in random order. The position never passes a message that is not
// settled and never stays behind without one, each key is in order and one at a time, and nothing of a settled message is left.
func TestFM25_PartAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p := newPart(0, 10)
		offset, keys := int64(10), 1+rnd.IntN(12)
		var ready []*record
		open, last, running := map[int64]bool{}, map[string]int64{}, map[string]bool{}
		start := func(r *record) {
			if g := r.msg.Group; g != "" {
				if running[g] || r.pos.Offset < last[g] {
					t.Fatalf("seed %d: offset %d of key %s is delivered beside or behind a later one", seed, r.pos.Offset, g)
				}
				running[g], last[g] = true, r.pos.Offset
			}
			ready = append(ready, r)
		}
		for step := range 400 {
			switch n := rnd.IntN(10); {
			case n < 4 && step < 300:
				if offset += rnd.Int64N(3); rnd.IntN(4) == 0 {
					p.skip(offset, 7)
				} else {
					r := &record{pos: driver.Position{Offset: offset}, size: 5}
					if k := rnd.IntN(keys + 1); k > 0 {
						r.msg.Group = fmt.Sprint("k", k)
					}
					open[offset] = true
					if p.add(r) {
						start(r)
					}
				}
				offset++
			case len(ready) > 0:
				i := rnd.IntN(len(ready))
				r := ready[i]
				ready = slices.Delete(ready, i, i+1)
				delete(open, r.pos.Offset)
				running[r.msg.Group] = false
				if next := p.settle(r); next != nil {
					start(next)
				}
			}
			want := p.next
			for o := range open {
				want = min(want, o)
			}
			// Behind the last message before the first open one there may be gaps: the position need not pass them.
			if p.low.Offset > want || slices.ContainsFunc(p.open[:min(1, len(p.open))], func(r *record) bool { return r.settled }) {
				t.Fatalf("seed %d step %d: the position is %d, the first open message %d", seed, step, p.low.Offset, want)
			}
			if len(open) == 0 && p.low.Offset != p.next || p.bytes != 5*len(open) {
				t.Fatalf("seed %d step %d: position %d of %d, %d bytes with %d open messages", seed, step, p.low.Offset, p.next, p.bytes, len(open))
			}
		}
		for len(ready) > 0 {
			if next := p.settle(ready[0]); next != nil {
				ready = append(ready, next)
			}
			ready = ready[1:]
		}
		if len(p.waiting) > 0 || len(p.open) > 0 || p.low.Offset != p.next {
			t.Fatalf("seed %d: at the end %d keys wait, %d messages are open, the position is %d of %d", seed, len(p.waiting), len(p.open), p.low.Offset, p.next)
		}
	}
}
