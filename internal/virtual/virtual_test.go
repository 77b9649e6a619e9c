package virtual

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type stopped struct{ Real }

func TestOf(t *testing.T) {
	if _, ok := Of(t.Context()).(Real); !ok {
		t.Error("a context without a time has another one than the machine's")
	}
	if _, ok := Of(With(t.Context(), stopped{})).(stopped); !ok {
		t.Error("the context's time is not found")
	}
}

func TestReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Real{}
		began := r.Now()
		var n atomic.Int32 // beats come from a goroutine of their own
		stop := r.Beat(time.Second, func() bool { return n.Add(1) < 3 })
		r.Pause(t.Context(), 10*time.Second)
		if n.Load() != 3 || r.Now().Sub(began) != 10*time.Second {
			t.Errorf("%d beats in %v, wanted three: the last one wants no more", n.Load(), r.Now().Sub(began))
		}
		stop()
		stop = r.Beat(time.Second, func() bool { n.Add(1); return true })
		r.Pause(t.Context(), 2500*time.Millisecond)
		stop()
		stop()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r.Pause(ended, time.Hour)
		r.Pause(t.Context(), time.Minute)
		if n.Load() != 5 {
			t.Errorf("%d beats, wanted two more: nothing beats after the stop", n.Load())
		}
	})
}
