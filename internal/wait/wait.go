// Package wait waits for a time or the end of a context.
package wait

import (
	"context"
	"time"
)

// Until waits for a time. The error is that of a context that ends before.
func Until(ctx context.Context, at time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
