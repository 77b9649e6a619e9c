package harness

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Callers has n goroutines share e.N calls of do, and watches the machine meanwhile. P50 is the median time of one call.
// The first error ends all of them.
func (e *Env) Callers(ctx context.Context, n int, do func(context.Context) error) (Sample, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	times := make([]time.Duration, e.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	stop := e.Watch()
	for range n {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(e.N) && ctx.Err() == nil; i = next.Add(1) - 1 {
				begin := time.Now()
				if err := do(ctx); err != nil {
					fail(err)
				}
				times[i] = time.Since(begin)
			}
		})
	}
	wg.Wait()
	return Sample{Done: e.N, Usage: stop(), P50: Median(times)}, context.Cause(ctx)
}
