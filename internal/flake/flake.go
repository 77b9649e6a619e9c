// Package flake runs tests that need a machine which keeps going. A case that receives a message, and expects that no one
// else gets it within half a second, fails on a machine that stands still for that long; nothing is wrong then with what
// is tested. So such a case is repeated when it failed while the machine stood still. A case that fails on a machine
// that went on has failed; and a mistake fails every time. A slow machine does not get faster: [Longer] gives each
// repetition twice the time.
package flake

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// tries is the maximum number of runs of a case.
const tries = 6

// Run runs a case, which sets with [Tolerate] how much lateness it tolerates. If it fails and something was later than that
// (the machine as a whole, or an operation reported by [Note]), Run cleans up and repeats it. f gets a testing.TB of its
// own.
func Run(t *testing.T, f func(t testing.TB)) {
	t.Helper()
	for try := 1; ; try++ {
		r := record(t, try, f)
		if !r.counts() && try < tries {
			t.Logf("try %d: something stood still for %v, so this does not count: %s", try, r.worst, r.failures[0])
			continue
		}
		r.report()
		return
	}
}

// Tolerate sets how long something may be late in a case that runs in [Run]. 0: forever, it does not wait for real time.
func Tolerate(t testing.TB, limit time.Duration) {
	if r, ok := t.(*recorder); ok {
		r.mu.Lock()
		r.limit = limit
		r.mu.Unlock()
	}
}

// Note reports how much longer than it should an operation took.
func Note(t testing.TB, late time.Duration) {
	if r, ok := t.(*recorder); ok {
		r.late(late)
	}
}

// Longer returns d in the first try of a case that runs in [Run], and twice as much in each further one.
func Longer(t testing.TB, d time.Duration) time.Duration {
	if r, ok := t.(*recorder); ok {
		return d << (r.try - 1)
	}
	return d
}

// recorder is a testing.TB that keeps failures, clean-ups and the skip to itself.
type recorder struct {
	testing.TB
	ctx context.Context
	try int // from 1

	mu       sync.Mutex
	failures []string
	skipped  string
	limit    time.Duration
	worst    time.Duration
	cleanups []func()
}

// beat is how often the machine shows that it goes on.
const beat = 10 * time.Millisecond

// record runs f to its end, and watches the machine meanwhile.
func record(t *testing.T, try int, f func(t testing.TB)) *recorder {
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, ctx: ctx, try: try}
	ended, done := make(chan struct{}), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(ended) })
	go func() { // Fatal and Skip end the goroutine
		defer close(done)
		defer func() {
			cancel()
			r.cleanUp()
		}()
		f(r)
	}()
	<-done
	close(ended)
	watch.Wait()
	return r
}

// watch measures how late its own ticks are.
func (r *recorder) watch(ended chan struct{}) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		now := time.Now()
		r.late(now.Sub(last) - beat)
		last = now
	}
}

func (r *recorder) late(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.worst = max(r.worst, d)
}

// counts reports whether the try is conclusive: it did not fail, or nothing was late.
func (r *recorder) counts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) == 0 || r.limit == 0 || r.worst < r.limit
}

// cleanUp does what the case left to do, the last first, as testing does.
func (r *recorder) cleanUp() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		f()
	}
}

// report passes the result to the real test.
func (r *recorder) report() {
	r.TB.Helper()
	for _, s := range r.failures {
		r.TB.Error(s)
	}
	if r.skipped != "" && len(r.failures) == 0 {
		r.TB.Skip(r.skipped)
	}
}

func (r *recorder) fail(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, where()+s)
}

// where is the line that failed: the first caller outside of this file.
func where() string {
	_, own, _, _ := runtime.Caller(0)
	for skip := 1; skip < 20; skip++ {
		if _, file, line, ok := runtime.Caller(skip); ok && file != own {
			return fmt.Sprintf("%s:%d: ", file, line)
		}
	}
	return ""
}

// These stand in for the methods of the real test.

// Context ends before the clean-ups.
func (r *recorder) Context() context.Context { return r.ctx }

// Cleanup registers what is done at the end of this try.
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Helper does nothing: the line is found by itself.
func (r *recorder) Helper() {}

func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.fail("failed") }
func (r *recorder) FailNow()                          { r.fail("failed"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.fail(fmt.Sprintln(args...)); runtime.Goexit() }

// Fatalf ends the try.
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Failed reports whether this try has failed.
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) skip(s string) {
	r.mu.Lock()
	r.skipped = s
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any)                 { r.skip(fmt.Sprint(args...)) }
func (r *recorder) Skipf(format string, args ...any) { r.skip(fmt.Sprintf(format, args...)) }
func (r *recorder) SkipNow()                         { r.skip("skipped") }

// Skipped reports whether this try was skipped.
func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped != ""
}
