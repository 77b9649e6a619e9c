package semeltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
)

// mayClaimAtCommit reports whether Config.ClaimAtCommit works with this pair.
func (p *pair) mayClaimAtCommit() bool {
	if !p.hasTx() {
		return false
	}
	cfg := p.config(p.txHandler())
	cfg.ClaimAtCommit = true
	if _, err := semel.New(cfg); err != nil {
		p.t.Logf("left out: %v", err)
		return false
	}
	return true
}

// testPairAtCommit claims first deliveries at their commit: the runs of copies overlap, and each key has one effect.
func testPairAtCommit(p *pair) {
	if !p.mayClaimAtCommit() {
		return
	}
	const n = 200
	sent := p.sendDuplicates(n)
	var fenced, free atomic.Int64
	inner := p.Tx(func(_ context.Context, add func(string) error, a *semel.Attempt) error {
		if a.Token > 0 {
			fenced.Add(1)
		} else {
			free.Add(1)
		}
		if (a.Token == 0) != a.LeaseUntil().IsZero() || a.Token == 0 && a.Store() != nil {
			p.t.Errorf("token %d, lease until %v, store %v", a.Token, a.LeaseUntil(), a.Store())
		}
		run := p.count(p.runs, a.Key.Raw)
		if err := add(a.Key.Raw); err != nil {
			return err
		}
		if run == 1 && len(a.Key.Raw)%3 == 0 {
			return errors.New("failed after the effect was queued")
		}
		return nil
	})
	cfg := p.config(inner)
	cfg.ClaimAtCommit = true
	ss := []*started{p.start(cfg), p.start(cfg)}
	p.empty()
	p.halt(ss...)
	p.joinedLedger(n)
	p.deadLetters()
	if free.Load() < n || fenced.Load() == 0 {
		p.t.Errorf("%d messages: %d runs without a claim, %d with one", sent, free.Load(), fenced.Load())
	}
}

// testPairAtCommitFaults loses responses of commits, which are then repeated, and has commits arrive late.
func testPairAtCommitFaults(p *pair) {
	if !p.mayClaimAtCommit() {
		return
	}
	const n = 120
	p.sendDuplicates(n)
	f := NewFaults(Plan{
		Seed: 11, Before: .05, After: .15, Late: .08, LateBy: 50 * time.Millisecond, Unknown: .05,
		Delay: .05, DelayBy: 10 * time.Millisecond,
	})
	var ss []*started
	for range 2 {
		cfg := p.config(p.txHandler())
		cfg.Queue, cfg.Store = FaultyQueue(p.Queue, f), FaultyStore(p.Store, f)
		cfg.Batch, cfg.MaxAttempts, cfg.ClaimAtCommit = 20, 50, true
		ss = append(ss, p.start(cfg))
	}
	p.empty()
	p.halt(ss...)
	f.Wait()
	p.joinedLedger(n)
	p.deadLetters()
	p.t.Logf("injected faults: %v", f.Counts())
}

// testPairAtCommitCrashes cuts consumers off from queue and store in the middle of their work, some with commits that arrive
// after the cut, until one of them finishes.
func testPairAtCommitCrashes(p *pair) {
	if !p.mayClaimAtCommit() {
		return
	}
	const n, crashes = 60, 3
	p.sendDuplicates(n)
	var dead []*started
	for i := range crashes {
		f := NewFaults(Plan{Seed: uint64(i), After: .2, Late: .2, LateBy: 20 * time.Millisecond})
		killed := make(chan struct{})
		var once sync.Once
		var runs atomic.Int64
		cfg := p.config(p.Tx(func(_ context.Context, add func(string) error, a *semel.Attempt) error {
			if runs.Add(1) == 12 {
				f.Outage(true)
				once.Do(func() { close(killed) })
			}
			return add(a.Key.Raw)
		}))
		cfg.Queue, cfg.Store = FaultyQueue(p.Queue, f), FaultyStore(p.Store, f)
		cfg.Batch, cfg.Concurrency, cfg.Grace, cfg.MaxAttempts, cfg.ClaimAtCommit = 5, 5, time.Millisecond, 50, true
		s := p.start(cfg)
		if p.killedOrEmpty(killed) {
			s.stop()
			dead = append(dead, s)
			continue
		}
		p.halt(s)
	}
	cfg := p.config(p.txHandler())
	cfg.ClaimAtCommit = true
	s := p.start(cfg)
	p.empty()
	p.halt(s)
	for _, s := range dead {
		if err := <-s.done; err != nil {
			p.t.Logf("killed consumer: %v", fmt.Errorf("run: %w", err))
		}
	}
	p.joinedLedger(n)
	p.deadLetters()
}
