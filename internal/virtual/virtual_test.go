package virtual

import (
	"context"
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
		n := 0
		stop := r.Beat(time.Second, func() bool { n++; return n < 3 })
		r.Pause(t.Context(), 10*time.Second)
		if n != 3 || r.Now().Sub(began) != 10*time.Second {
			t.Errorf("%d beats in %v, wanted three: the last one wants no more", n, r.Now().Sub(began))
		}
		stop()
		stop = r.Beat(time.Second, func() bool { n++; return true })
		r.Pause(t.Context(), 2500*time.Millisecond)
		stop()
		stop()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r.Pause(ended, time.Hour)
		r.Pause(t.Context(), time.Minute)
		if n != 5 {
			t.Errorf("%d beats, wanted two more: nothing beats after the stop", n)
		}
	})
}
