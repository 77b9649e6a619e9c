package semeltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// This file wraps queue and store as a program may do, and tests that no write bypasses the wrapper (driver.As).

// claimLog overrides Claim and nothing else.
type claimLog struct {
	driver.Store
	passes []driver.Interface // nil but for planted mistakes

	mu   sync.Mutex
	seen map[driver.Key]bool
}

func (s *claimLog) Unwrap() any                { return s.Store }
func (s *claimLog) Passes() []driver.Interface { return s.passes }

func (s *claimLog) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	s.mu.Lock()
	for i := range c {
		s.seen[c[i].Key] = true
	}
	s.mu.Unlock()
	return s.Store.Claim(ctx, c...)
}

// settleLog overrides Settle and nothing else. With a Settler among passes it stands for one that overrides nothing.
type settleLog struct {
	driver.Queue
	passes []driver.Interface

	mu   sync.Mutex
	acks int // applied
}

func (q *settleLog) Unwrap() any                { return q.Queue }
func (q *settleLog) Passes() []driver.Interface { return q.passes }

func (q *settleLog) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	out, err := q.Queue.Settle(ctx, s...)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, o := range out {
		if o == driver.Applied && s[i].Action == driver.Ack {
			q.acks++
		}
	}
	return out, err
}

// found reports the interface T where As finds it.
func found[T any](t testing.TB, s any) {
	t.Helper()
	if _, ok := driver.As[T](s); ok {
		t.Errorf("%T hides %T, and As finds it: its writes get past the wrapper", s, new(T))
	}
}

// reads compares the read-only interface T of a wrapper with that of the wrapped value.
func reads[T any](t testing.TB, w driver.Wrapper) {
	t.Helper()
	_, want := driver.As[T](w.Unwrap())
	if _, ok := driver.As[T](w); ok != want {
		t.Errorf("As finds %T in %T: %v, in what is wrapped: %v", new(T), w, ok, want)
	}
}

// testWrappedClaims consumes through a wrapper that overrides Claim: it sees every claim.
func testWrappedClaims(p *pair) {
	const n = 10
	w := &claimLog{Store: p.Store, passes: p.leaks, seen: map[driver.Key]bool{}}
	found[driver.Committer](p.t, w)
	found[driver.Transactor](p.t, w)
	found[driver.StepStore](p.t, w)
	found[driver.Operator](p.t, w)
	found[driver.Sweeper](p.t, w)
	found[driver.DuplicateLog](p.t, w)
	found[driver.WorkerLog](p.t, w)
	reads[driver.RecordInspector](p.t, w)
	reads[driver.RecordScanner](p.t, w)
	reads[driver.AuditLog](p.t, w)
	reads[driver.Meter](p.t, w)
	cfg := p.config(p.handler(func(context.Context, *semel.Attempt, int) error { return nil }))
	cfg.Store = w
	if p.Tx != nil {
		tx := p.config(p.Tx(func(context.Context, func(string) error, *semel.Attempt) error { return nil }))
		tx.Store = w
		if _, err := semel.New(tx); !errors.Is(err, semel.ErrNoTx) {
			p.t.Errorf("effects commit behind a wrapper that overrides Claim: New returned %v, wanted ErrNoTx", err)
		}
	}
	p.sendDuplicates(n)
	s := p.start(cfg)
	p.empty()
	p.halt(s)
	p.once(n, p.effects)
	for key := range p.effects {
		if !w.seen[driver.Key{Consumer: cfg.Consumer, Raw: key}] {
			p.t.Errorf("key %q was claimed behind the wrapper's back", key)
		}
	}
}

// testWrappedSettles consumes through a wrapper that overrides Settle, which sees every ack although queue and store may be one
// database, and through one that leaves Settle alone, whose acks commit with the records where those of the queue do.
func testWrappedSettles(p *pair) {
	const n = 10
	w := &settleLog{Queue: p.Queue, passes: p.leaks}
	found[driver.Sender](p.t, w)
	found[driver.Purger](p.t, w)
	found[driver.DeadLetterQueue](p.t, w)
	found[driver.DeadLetterKeeper](p.t, w)
	reads[driver.QueueInspector](p.t, w)
	consume := func(q driver.Queue, prefix string) {
		for i := range n {
			key := fmt.Sprint(prefix, i)
			p.send(message("m-"+key, key, "x"))
		}
		cfg := p.config(p.handler(func(context.Context, *semel.Attempt, int) error { return nil }))
		cfg.Queue = q
		s := p.start(cfg)
		p.empty()
		p.halt(s)
	}
	consume(w, "settled-")
	if w.acks < n { // a broker that cannot tell confirms acks of stale receipts, too
		p.t.Errorf("the wrapper saw %d acks of %d messages: the others got past its Settle", w.acks, n)
	}
	plain := &settleLog{Queue: p.Queue, passes: []driver.Interface{driver.InterfaceOf[driver.Settler]()}}
	c, commits := driver.As[driver.Committer](p.Store)
	if commits && c.Joins(plain) != c.Joins(p.Queue) {
		p.t.Errorf("the store joins the queue: %v, the queue behind a wrapper that leaves Settle alone: %v; use driver.Settles",
			c.Joins(p.Queue), c.Joins(plain))
	}
	consume(plain, "passed-")
	if commits && c.Joins(p.Queue) && plain.acks >= n { // redeliveries are acked by themselves
		p.t.Errorf("%d acks of %d messages did not commit with their records", plain.acks, n)
	}
	p.once(2*n, p.effects)
}
