package redeliver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Wake
		w.Signal() // nobody waits
		began, before := time.Now(), w.C()
		go func() {
			time.Sleep(time.Second)
			w.Signal()
		}()
		if err := Wait(t.Context(), time.Hour, before); err != nil || time.Since(began) != time.Second {
			t.Errorf("woken after %v, %v", time.Since(began), err)
		}
		if err := Wait(t.Context(), time.Minute, w.C()); err != nil || time.Since(began) != time.Minute+time.Second {
			t.Errorf("the next wait took until %v, %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Wait(ctx, time.Hour, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a wait whose context has ended: %v", err)
		}
	})
}
