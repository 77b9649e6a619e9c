package sim

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/semel-dev/semel/driver"
)

// relay is one process: the relay's own goroutine and the heartbeat of its round, as coroutines.
type relay struct {
	w        *relaySimulation
	id       int
	cancel   context.CancelFunc
	main     *coroutine
	cur      *coroutine // that runs
	beat     *heartbeat
	pausing  *relayCall
	dead     bool
	draining bool
	frozen   time.Duration // until then it does nothing
}

// coroutine is code that waits for the world's response.
type coroutine struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	waits *relayCall // nil: it does not rest
	ended bool
}

// errDied unwinds the code of a process that was killed.
var errDied = errors.New("the process was killed")

func (p *relay) coroutine(f func()) *coroutine {
	c := &coroutine{}
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		defer func() {
			if v := recover(); v != nil && v != any(errDied) {
				panic(v)
			}
		}()
		f()
	})
	return c
}

// resume runs a coroutine until it rests or ends.
func (p *relay) resume(c *coroutine) {
	before := p.cur
	p.cur = c
	_, more := c.next()
	c.ended = !more
	p.cur = before
	if c == p.main && c.ended && !p.dead { // it was asked to stop, and did
		p.die()
		p.w.on(p.w.Now+p.w.Between(10*time.Millisecond, time.Second), func() { p.w.start(p.id) })
	}
	if b := p.beat; b != nil && b.c == c && c.ended {
		b.again()
	}
}

// await waits until the world responds to a call.
func (p *relay) await(c *relayCall) {
	if p.dead {
		panic(errDied)
	}
	c.to.waits = c
	if !c.to.yield(struct{}{}) || p.dead {
		panic(errDied)
	}
}

// die kills the process. What it has sent is under way.
func (p *relay) die() {
	if p.dead {
		return
	}
	p.dead = true
	p.cancel()
	if p.beat != nil && p.beat.c != nil {
		p.beat.c.stop()
	}
	p.main.stop()
}

// crash kills the process and starts another one later. It must not be called from the process itself.
func (p *relay) crash() {
	if p.dead {
		return
	}
	p.w.stats.Crashes++
	p.w.Log(-1, "relay %d dies", p.id)
	p.die()
	p.w.on(p.w.Now+p.w.Between(10*time.Millisecond, 2*relayVisible), func() { p.w.start(p.id) })
}

// drain stops it in good order.
func (p *relay) drain() {
	if p.dead {
		return
	}
	p.w.Log(-1, "relay %d is asked to stop", p.id)
	p.draining = true
	p.cancel()
	for i, c := range p.w.waiting {
		if c.p == p {
			p.w.waiting = append(p.w.waiting[:i], p.w.waiting[i+1:]...)
			c.err = context.Canceled
			p.w.respond(c)
			return
		}
	}
	if c := p.pausing; c != nil {
		p.w.respond(c)
	}
}

// heartbeat calls f every d, each time in a coroutine of its own.
type heartbeat struct {
	p       *relay
	d       time.Duration
	f       func() bool
	c       *coroutine
	more    bool
	stopped bool
}

// Beat is virtual.Time's.
func (t relayTime) Beat(d time.Duration, f func() bool) (stop func()) {
	b := &heartbeat{p: t.p, d: d, f: f, more: true}
	t.p.beat = b
	b.again()
	return b.stop
}

func (b *heartbeat) again() {
	b.c = nil
	if b.more && !b.stopped {
		b.p.w.on(b.p.w.Now+b.d, b.tick)
	}
}

func (b *heartbeat) tick() {
	switch {
	case b.stopped || b.p.dead:
	case b.p.frozen > b.p.w.Now:
		b.p.w.on(b.p.frozen, b.tick)
	default:
		b.c = b.p.coroutine(func() { b.more = b.f() })
		b.p.resume(b.c)
	}
}

// stop is called by the relay: a call that is under way is given up, as with a context that ends.
func (b *heartbeat) stop() {
	b.stopped = true
	if b.p.dead || b.c == nil || b.c.ended {
		return
	}
	if c := b.c.waits; c != nil {
		c.given, c.err = true, context.Canceled
	}
	b.p.resume(b.c)
}

// relayCall is something that a relay asked for.
type relayCall struct {
	p     *relay
	to    *coroutine
	what  relayOp
	pause bool
	given bool // up: no one waits for the response
	done  bool // on the other side

	max      int
	settle   []driver.Settlement
	receipts []any
	messages []driver.Message

	ds  []driver.Delivery
	out []driver.Outcome
	err error
}

type relayOp uint8

const (
	opReceive relayOp = iota
	opSettle
	opExtend
	opSend
)

func (o relayOp) String() string {
	return [...]string{"receive", "settle", "extend", "send"}[o]
}

// relayQueue is the outbox as one relay has it, relaySender where it sends to.
type (
	relayQueue  struct{ p *relay }
	relaySender struct{ p *relay }
)

func (q relayQueue) Features() driver.QueueFeatures {
	return driver.QueueFeatures{Name: "outbox", Kind: "sim", Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: true, DeadLetters: true}
}

func (q relayQueue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if ctx.Err() != nil && !q.p.dead {
		return nil, ctx.Err()
	}
	c := q.p.ask(&relayCall{what: opReceive, max: limit})
	return c.ds, c.err
}

func (q relayQueue) Settle(_ context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	c := q.p.ask(&relayCall{what: opSettle, settle: append([]driver.Settlement(nil), s...)})
	return c.out, c.err
}

func (q relayQueue) Extend(_ context.Context, _ time.Duration, receipts ...any) ([]driver.Outcome, error) {
	c := q.p.ask(&relayCall{what: opExtend, receipts: append([]any(nil), receipts...)})
	return c.out, c.err
}

func (s relaySender) Send(_ context.Context, m ...driver.Message) error {
	return s.p.ask(&relayCall{what: opSend, messages: append([]driver.Message(nil), m...)}).err
}

// ask sends a request and waits for its response.
func (p *relay) ask(c *relayCall) *relayCall {
	if p.dead {
		panic(errDied)
	}
	c.p, c.to = p, p.cur
	p.w.request(c)
	p.await(c)
	return c
}

// respond lets the relay go on.
func (w *relaySimulation) respond(c *relayCall) {
	switch p := c.p; {
	case p.dead || c.given || c.to.waits != c:
	case p.frozen > w.Now:
		w.on(p.frozen, func() { w.respond(c) })
	default:
		c.to.waits = nil
		if p.pausing == c {
			p.pausing = nil
		}
		p.resume(c.to)
	}
}
