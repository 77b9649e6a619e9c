package semeltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

func testPairDuplicates(p *pair) {
	const n = 200
	sent := p.sendDuplicates(n)
	s := p.start(p.config(p.handler(func(context.Context, *semel.Attempt, int) error { return nil })))
	p.empty()
	p.halt(s)
	p.once(n, p.effects)
	p.deadLetters()
	if got := s.c.Summary(); got.Effects != n || got.Replayed != int64(sent-n) {
		p.t.Errorf("sent %d messages of %d keys, the summary says %+v", sent, n, got)
	}
}

// testPairFailing lets a third of the keys fail once, in every way that is retried.
func testPairFailing(p *pair) {
	const n = 90
	p.sendDuplicates(n)
	s := p.start(p.config(p.handler(func(_ context.Context, a *semel.Attempt, run int) error {
		var i int
		_, _ = fmt.Sscanf(a.Key.Raw, "key-%d", &i)
		if run > 1 {
			return nil
		}
		switch i % 9 {
		case 0:
			return errors.New("failed")
		case 1:
			return semel.NotApplied(errors.New("failed before the effect"))
		case 2:
			return semel.Deferred(errors.New("busy"), time.Millisecond)
		case 3:
			return semel.RetryAfter(errors.New("failed"), time.Millisecond)
		}
		return nil
	})))
	p.empty()
	p.halt(s)
	p.once(n, p.effects)
	p.deadLetters()
	for k, c := range p.runs {
		if c > 2 {
			p.t.Errorf("key %q ran %d times", k, c)
		}
	}
}

func testFM6Panics(p *pair) {
	p.send(message("m-1", "panics", "x"), message("m-2", "fine", "x"))
	s := p.start(p.config(p.handler(func(_ context.Context, a *semel.Attempt, run int) error {
		if a.Key.Raw == "panics" && run < 3 {
			panic("on purpose")
		}
		return nil
	})))
	p.empty()
	p.halt(s)
	p.once(2, p.effects)
}

// testPairDead gives up on one key at once, on another after all attempts. Their duplicates run nothing.
func testPairDead(p *pair) {
	if !p.Queue.Features().DeadLetters {
		p.t.Log("left out: the queue keeps no dead letters")
		return
	}
	p.send(message("m-1", "hopeless", "x"), message("m-2", "exhausted", "x"), message("m-3", "fine", "x"))
	cfg := p.config(p.handler(func(_ context.Context, a *semel.Attempt, _ int) error {
		switch a.Key.Raw {
		case "hopeless":
			return semel.Permanent(errors.New("no hope"))
		case "exhausted":
			return errors.New("failed")
		}
		return nil
	}))
	cfg.MaxAttempts = 3
	s := p.start(cfg)
	p.empty()
	p.deadLetters("failed hopeless", "failed exhausted")
	p.send(message("m-4", "hopeless", "x"), message("m-5", "exhausted", "x"))
	p.empty()
	p.halt(s)
	p.once(1, p.effects)
	p.deadLetters("failed hopeless", "failed exhausted")
	if p.runs["hopeless"] != 1 || p.runs["exhausted"] != 3 {
		p.t.Errorf("runs are %v, wanted hopeless once and exhausted three times", p.runs)
	}
}

func testFM51Mismatch(p *pair) {
	cfg := p.config(p.handler(func(context.Context, *semel.Attempt, int) error { return nil }))
	cfg.Fingerprint = func(m *semel.Message) (semel.Fingerprint, error) {
		return semel.Fingerprint("body" + string(m.Body)), nil
	}
	s := p.start(cfg)
	p.send(message("m-1", "k", "pay 10"))
	p.empty()
	p.send(message("m-2", "k", "pay 1000"), message("m-3", "k", "pay 10"))
	p.empty()
	p.halt(s)
	p.once(1, p.effects)
	if p.Queue.Features().DeadLetters {
		p.deadLetters("mismatch k")
	}
	if got := s.c.Summary(); got.Mismatched != 1 || got.Replayed != 1 {
		p.t.Errorf("the summary says %+v, wanted one mismatch and one replay", got)
	}
}

func testPairUnkeyed(p *pair) {
	if !p.Queue.Features().DeadLetters {
		p.t.Log("left out: the queue keeps no dead letters")
		return
	}
	p.send(driver.Message{ID: "m-1", Body: []byte("no key")}, message("m-2", "k", "x"), message("m-3", strings.Repeat("k", 5000), "x"))
	s := p.start(p.config(p.handler(func(context.Context, *semel.Attempt, int) error { return nil })))
	p.empty()
	p.halt(s)
	p.once(1, p.effects)
	if ls, err := p.dlq.DeadLetters(p.t.Context(), 0); err != nil || len(ls) != 2 {
		p.t.Errorf("there are %d dead letters (%v), wanted two: nothing without a usable key may be lost", len(ls), err)
	}
}

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
	var effects, replayed, slow int64
	for _, s := range ss {
		sum := s.c.Summary()
		effects, replayed, slow = effects+sum.Effects, replayed+sum.Replayed, slow+sum.TakenOver+sum.Fenced
	}
	if slow > 0 { // runs that outlasted their leases on this machine: a plain effect may happen again, but none is lost
		p.eachOnce(n, p.effects, slow)
		return
	}
	p.once(n, p.effects)
	if effects != n || replayed != int64(sent-n) {
		p.t.Errorf("of %d messages of %d keys, %d had effects and %d were replayed", sent, n, effects, replayed)
	}
}

// testFM34Outage takes the store away while messages wait: nothing runs and nothing is acked. Afterwards all are handled.
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
