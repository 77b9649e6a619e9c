package semeltest

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
)

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

// testPairJoined commits effects with the records: a failed run leaves none, a successful run leaves one.
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
