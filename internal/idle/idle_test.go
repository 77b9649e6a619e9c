package idle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !For(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("undisturbed, it ended after %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if began = time.Now(); For(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("with a context of a minute, it ended after %v", time.Since(began))
		}
	})
}
