package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestFM13_CallersOfOneKeyGatherApart: many callers at once, several of each key. Calls go together, those of one key do
// not: one of them acquires it.
func TestFM13_CallersOfOneKeyGatherApart(t *testing.T) {
	s := openFor(t, shared(t), Options{})
	const keys, each = 40, 8
	var acquired [keys]atomic.Int32
	var wg sync.WaitGroup
	for n := range keys * each {
		wg.Go(func() {
			g, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(n % keys), Nonce: nonce(), Lease: time.Hour})
			switch {
			case err != nil || g[0].Err != nil:
				t.Errorf("claim: %v, %v", g, err)
			case g[0].Verdict == driver.Acquired:
				acquired[n%keys].Add(1)
			case g[0].Verdict != driver.Busy:
				t.Errorf("claim of a key that is held: %v", g[0].Verdict)
			}
		})
	}
	wg.Wait()
	for k := range acquired {
		if n := acquired[k].Load(); n != 1 {
			t.Errorf("%d claims of key %d were acquired", n, k)
		}
	}
}

// TestACallerThatGivesUpLeavesTheOthers: the call that goes first is given up while it is under way; those that wait for
// it are decided all the same.
func TestACallerThatGivesUpLeavesTheOthers(t *testing.T) {
	srv := server.Own(t, "redis", map[string]string{"appendonly": "no"})
	p := proxy(t, srv.Addr())
	s := openFor(t, connect(t, "redis://"+p.Addr()+"/0"), Options{})
	verdict(t, s, keyOf(0)) // the scripts are loaded
	p.Stall(server.ToServer | server.ToClient)
	ctx, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := s.Claim(ctx, driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour})
		first <- err
	}()
	second := make(chan driver.Verdict, 1)
	for s.underWay() == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() {
		g, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(2), Nonce: nonce(), Lease: time.Hour})
		if err != nil {
			t.Error(err)
			second <- 0
			return
		}
		second <- g[0].Verdict
	}()
	giveUp()
	if err := <-first; err == nil {
		t.Error("the call that was given up has a result")
	}
	p.Stall(0)
	if v := <-second; v != driver.Acquired {
		t.Errorf("the call that waited is %v", v)
	}
}

// underWay counts the calls that are under way.
func (s *Store) underWay() (n int) {
	for i := range s.lanes {
		l := &s.lanes[i]
		l.mu.Lock()
		n += l.flushes
		l.mu.Unlock()
	}
	return n
}
