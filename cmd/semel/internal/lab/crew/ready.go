package crew

import (
	"context"
	"os"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
)

// sendReady sends what is due, as soon as every worker that is to run consumes: on a slow machine the first of them would
// have done everything before the second is there, and nothing would have been shown. The run begins then.
func (r *runner) sendReady(ctx context.Context) error {
	if !r.ready {
		for n := range r.fleet.wanted {
			if _, err := os.Stat(worker.ReadyFile(r.Dir, n+1)); err != nil {
				return nil //nolint:nilerr // it is not there yet
			}
		}
		r.ready, r.began = true, time.Now()
	}
	return r.send(ctx)
}
