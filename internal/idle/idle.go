// Package idle waits: a pause that a context can end.
package idle

import (
	"context"
	"time"
)

// For blocks for d, and reports that ctx did not end meanwhile. If both end at once, it may return either.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
