package semeltest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
)

// batchHandler makes a batch handler that does one effect for each message, asks f about each, and counts its runs. With
// names it names the culprits; otherwise the first failure is the call's.
func (p *pair) batchHandler(names bool, f func(a *semel.Attempt, run int) error) semel.Handler {
	return p.Batch(func(_ context.Context, add func(string) error, batch []*semel.Attempt) error {
		var failed []error
		for i, a := range batch {
			if err := add(a.Key.Raw); err != nil {
				return fmt.Errorf("add the effect: %w", err)
			}
			if err := f(a, p.count(p.runs, a.Key.Raw)); err != nil && !names {
				return err
			} else if err != nil {
				failed = append(failed, semel.ItemFailed(i, err))
			}
		}
		return errors.Join(failed...)
	})
}

func (p *pair) hasBatch() bool {
	if p.Batch == nil || p.Ledger == nil {
		p.t.Log("left out: PairSetup has no Batch or no Ledger")
		return false
	}
	return true
}

// testPairBatch runs batches with duplicates between two consumers; some keys fail in their first attempts. A failed
// message leaves no effect, and prevents no other's.
func testPairBatch(p *pair) {
	if !p.hasBatch() {
		return
	}
	const n = 200
	p.sendDuplicates(n)
	var ss []*started
	for i := range 2 {
		cfg := p.config(p.batchHandler(i == 0, func(a *semel.Attempt, _ int) error {
			if len(a.Key.Raw)%3 == 0 && a.Number == 1 && a.Key.Raw[len(a.Key.Raw)-1] == '7' {
				return errors.New("failed after the effect")
			}
			return nil
		}))
		cfg.Batch, cfg.Committers = 40, 1+i
		ss = append(ss, p.start(cfg))
	}
	p.empty()
	p.halt(ss...)
	p.joinedLedger(n)
	p.deadLetters()
}

// testFM60Batch lets one message of a batch fail for good: the batch is halved until it is alone, all others take
// effect, and the culprit becomes a dead letter without an effect.
func testFM60Batch(p *pair) {
	if !p.hasBatch() {
		return
	}
	const n, poison = 100, "key-41"
	p.sendDuplicates(n)
	cfg := p.config(p.batchHandler(false, func(a *semel.Attempt, _ int) error {
		if a.Key.Raw == poison {
			return errors.New("no good")
		}
		return nil
	}))
	cfg.MaxAttempts = 2
	s := p.start(cfg)
	p.empty()
	p.halt(s)
	for i := range n {
		key, want := fmt.Sprintf("key-%d", i), 1
		if key == poison {
			want = 0
		}
		if c, err := p.Ledger.Count(p.t.Context(), key); err != nil || c != want {
			p.t.Errorf("key %q has %d effects (%v), wanted %d", key, c, err, want)
		}
	}
	if p.Queue.Features().DeadLetters {
		p.deadLetters("failed " + poison)
	}
	if got := s.c.Summary(); got.Effects != n-1 || got.Dead != 1 || got.Retried != 1 {
		p.t.Errorf("the summary says %+v, wanted %d effects, one failed attempt and one dead letter", got, n-1)
	}
}

// testPairBatchFaults loses responses and leaves commits in doubt under batches.
func testPairBatchFaults(p *pair) {
	if !p.hasBatch() {
		return
	}
	const n = 120
	p.sendDuplicates(n)
	f := NewFaults(Plan{Seed: 11, Before: .05, After: .05, Unknown: .03, Delay: .05, DelayBy: 10 * time.Millisecond})
	var ss []*started
	for range 2 {
		cfg := p.config(p.batchHandler(false, func(*semel.Attempt, int) error { return nil }))
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
