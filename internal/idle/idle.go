// Package idle waits: a pause that a context can end.
package idle

import (
	"context"
	"time"
)

// For blocks for d, and tells that ctx did not end meanwhile. When both are over at once, either answer may come.
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
