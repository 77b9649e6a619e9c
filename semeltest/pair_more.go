package semeltest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// testFM64Drain stops a consumer in the middle of slow work. Messages that it had not started are redelivered at once,
// and the next consumer finishes them.
func testFM64Drain(p *pair) {
	const n = 60
	p.sendDuplicates(n)
	var done atomic.Int64
	stopping := make(chan struct{})
	h := p.handler(func(context.Context, *semel.Attempt, int) error {
		if done.Add(1) > 5 {
			<-stopping
		}
		return nil
	})
	cfg := p.config(h)
	cfg.Concurrency = 2
	first := p.start(cfg)
	for done.Load() < 5 {
		time.Sleep(5 * time.Millisecond)
	}
	first.stop()
	close(stopping)
	p.halt(first)
	if done.Load() >= n {
		p.t.Fatal("the first consumer did everything: it was not stopped in the middle")
	}
	st, err := as[driver.QueueInspector](p.Queue).Stats(p.t.Context())
	if err != nil || st.InFlight > 0 && !st.Approximate || st.Empty() {
		p.t.Errorf("after the drain the queue holds %+v (%v): what was not started is returned at once", st, err)
	}
	second := p.start(p.config(h))
	p.empty()
	p.halt(second)
	p.once(n, p.effects)
}

// testPairMany runs consumers at once on the same messages.
func testPairMany(p *pair) {
	const n = 300
	sent := p.sendDuplicates(n)
	h := p.handler(func(context.Context, *semel.Attempt, int) error { return nil })
	var ss []*started
	for i := range 3 {
		cfg := p.config(h)
		cfg.Batch, cfg.Committers = 10, 1+i%2
		ss = append(ss, p.start(cfg))
	}
	p.empty()
	p.halt(ss...)
	p.once(n, p.effects)
	var effects, replayed int64
	for _, s := range ss {
		effects += s.c.Summary().Effects
		replayed += s.c.Summary().Replayed
	}
	if effects != n || replayed != int64(sent-n) {
		p.t.Errorf("of %d messages of %d keys, %d had effects and %d were replayed", sent, n, effects, replayed)
	}
}

// joinedLedger wants exactly one committed effect of each key.
func (p *pair) joinedLedger(n int) {
	p.t.Helper()
	for i := range n {
		key := fmt.Sprintf("key-%d", i)
		if c, err := p.Ledger.Count(p.t.Context(), key); err != nil || c != 1 {
			p.t.Errorf("key %q has %d effects (%v), wanted one", key, c, err)
		}
	}
}

func (p *pair) hasTx() bool {
	if p.Tx == nil || p.Ledger == nil {
		p.t.Log("left out: PairSetup has no Tx or no Ledger")
		return false
	}
	return true
}

func (p *pair) txHandler() semel.Handler {
	return p.Tx(func(_ context.Context, add func(string) error, a *semel.Attempt) error {
		run := p.count(p.runs, a.Key.Raw)
		if err := add(a.Key.Raw); err != nil {
			return fmt.Errorf("add the effect: %w", err)
		}
		if run == 1 && len(a.Key.Raw)%3 == 0 {
			return fmt.Errorf("failed after the effect was queued")
		}
		return nil
	})
}

// testPairJoined commits effects with the records: what failed left none, what succeeded left one.
func testPairJoined(p *pair) {
	if !p.hasTx() {
		return
	}
	const n = 200
	p.sendDuplicates(n)
	ss := []*started{p.start(p.config(p.txHandler())), p.start(p.config(p.txHandler()))}
	p.empty()
	p.halt(ss...)
	p.joinedLedger(n)
	p.deadLetters()
}

// testPairJoinedFaults loses responses, delays writes and leaves items in doubt, between two consumers and the adapters.
func testPairJoinedFaults(p *pair) {
	if !p.hasTx() {
		return
	}
	const n = 120
	p.sendDuplicates(n)
	f := NewFaults(Plan{
		Seed: 7, Before: .05, After: .05, Late: .03, LateBy: 50 * time.Millisecond, Unknown: .03,
		Delay: .05, DelayBy: 10 * time.Millisecond,
	})
	var ss []*started
	for range 2 {
		cfg := p.config(p.txHandler())
		cfg.Queue, cfg.Store = FaultyQueue(p.Queue, f), FaultyStore(p.Store, f)
		cfg.Batch, cfg.MaxAttempts = 20, 50
		ss = append(ss, p.start(cfg))
	}
	p.empty()
	p.halt(ss...)
	f.Wait()
	p.joinedLedger(n)
	p.deadLetters()
	p.t.Logf("injected faults: %v", f.Counts())
}

// testFM34Outage takes the store away while messages wait: nothing runs, nothing is acked, and all is done afterwards.
func testFM34Outage(p *pair) {
	const n = 40
	f := NewFaults(Plan{})
	f.Outage(true)
	p.sendDuplicates(n)
	cfg := p.config(p.handler(func(context.Context, *semel.Attempt, int) error { return nil }))
	cfg.Store = FaultyStore(p.Store, f)
	s := p.start(cfg)
	time.Sleep(300 * time.Millisecond)
	if st, err := as[driver.QueueInspector](p.Queue).Stats(p.t.Context()); err != nil || st.Empty() {
		p.t.Errorf("during the outage the queue holds %+v (%v): nothing may be acked", st, err)
	}
	p.mu.Lock()
	if len(p.runs) > 0 {
		p.t.Errorf("%d keys ran without a claim", len(p.runs))
	}
	p.mu.Unlock()
	f.Outage(false)
	p.empty()
	p.halt(s)
	p.once(n, p.effects)
}
