package semel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// TestDoKeepsNoLeaseBeyondUntil: neither the claim nor the heartbeat asks for more.
func TestDoKeepsNoLeaseBeyondUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.NewStore()
		k := semel.Key{Consumer: "c", Raw: "k"}
		until := time.Now().Add(40 * time.Second)
		_, d, err := semel.Do(t.Context(), st, k, func(ctx context.Context, _ *semel.Attempt) (int, error) {
			for range 38 {
				time.Sleep(time.Second)
				r, _, err := st.Record(ctx, k)
				if err != nil || r.LeaseUntil.After(until) || r.LeaseUntil.Before(time.Now()) {
					t.Fatalf("%v before the end the lease ends %v behind it, %v", time.Until(until), r.LeaseUntil.Sub(until), err)
				}
			}
			return 1, ctx.Err()
		}, semel.WithUntil(until))
		if err != nil || d != semel.Executed {
			t.Errorf("%s, %v", d, err)
		}
	})
}
