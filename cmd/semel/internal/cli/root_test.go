package cli

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSignalsOfOneSecondAreOne: GNU timeout signals a process and then its group, which killed handlers that were to end in
// peace.
func TestSignalsOfOneSecondAreOne(t *testing.T) {
	for _, c := range []struct {
		name string
		at   []time.Duration // of signals
		want bool            // stopped at once, before ten seconds
		told bool
	}{
		{"none", nil, false, false},
		{"one", []time.Duration{0}, false, true},
		{"two at once", []time.Duration{0, 0}, false, true},
		{"four within a second", []time.Duration{0, 0, time.Millisecond, 999 * time.Millisecond}, false, true},
		{"another one later", []time.Duration{0, 1001 * time.Millisecond}, true, true},
		{"two at once, another one later", []time.Duration{0, 0, 5 * time.Second}, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals, done := make(chan os.Signal, 2), make(chan struct{})
			var stopped, told, twice bool
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				twice = again(signals, done, func() { stopped = true }, func() { told = true })
			}()
			began := time.Now()
			for _, at := range c.at {
				time.Sleep(time.Until(began.Add(at)))
				signals <- syscall.SIGTERM
			}
			time.Sleep(time.Until(began.Add(10 * time.Second)))
			close(done)
			<-ended
			if twice != c.want || told != c.told || stopped != (len(c.at) > 0) {
				t.Errorf("%s: stopped at once %t, want %t; told %t, stopped %t", c.name, twice, c.want, told, stopped)
			}
		})
	}
}
