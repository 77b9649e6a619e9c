package semel_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
)

// smallBodies returns n distinct small JSON bodies, such as a shop sends in a day: numbers, and a few kinds of events.
func smallBodies(n int) []string {
	out := make([]string, n)
	for i := range out {
		switch i % 3 {
		case 0:
			out[i] = fmt.Sprintf(`{"order":%d}`, i)
		case 1:
			out[i] = fmt.Sprintf(`{"sku":"%06x","n":1}`, i)
		default:
			out[i] = fmt.Sprintf(`[%d,%d]`, i, i%7)
		}
	}
	return out
}

// TestS1_32_FM53_ManySmallBodies: keyed by their content, none of 90,000 distinct small bodies is taken for another, and
// the same content spelled otherwise is the same message. A hash of 32 bits, or one that is poor on short input, drops
// some of them.
func TestS1_32_FM53_ManySmallBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: 90,000 messages")
	}
	const distinct, again = 90_000, 1000
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		runs := make(map[string]int, distinct)
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			runs[string(a.Body)]++
			return nil
		}), func(c *semel.Config) { c.Key, c.Batch, c.Concurrency = key.FromBody(), 1000, 1000 })
		bodies := smallBodies(distinct)
		batch := make([]semel.Message, 0, 1000)
		for _, b := range bodies {
			if batch = append(batch, semel.Message{Body: []byte(b)}); len(batch) == cap(batch) {
				r.send(batch...)
				batch = batch[:0]
			}
		}
		for _, b := range bodies[:again] {
			r.send(semel.Message{Body: []byte("\n " + b + " ")})
		}
		r.start()
		sum := r.after(time.Hour)
		if len(runs) != distinct || sum.Effects != distinct || sum.Replayed != again || sum.Dead+sum.Mismatched+sum.Dropped > 0 {
			t.Errorf("%d bodies ran, wanted %d; %+v", len(runs), distinct, sum)
		}
		for body, n := range runs {
			if n != 1 {
				t.Fatalf("body %s ran %d times", body, n)
			}
		}
	})
}
