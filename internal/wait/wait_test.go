package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Until(t.Context(), began.Add(time.Hour)); err != nil || time.Since(began) != time.Hour {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := Until(t.Context(), began); err != nil || time.Since(began) != time.Hour {
			t.Errorf("a time that has passed: %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 { // the second with a context that has ended
			if err := Until(ctx, began.Add(5*time.Hour)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour+time.Minute {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
	})
}
