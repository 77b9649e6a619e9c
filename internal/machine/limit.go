package machine

import "time"

// This file bounds how often runs start, in all and for each pool, and how many of a pool's messages run at once. A message
// that has to wait is not claimed (law 1), its visibility is extended, and others pass it. A pool never has more items in
// its lane's queue than may start now, so the rest of the machine need not know about pools.

// bucket is a token bucket counted in time: a start costs every, and at most burst starts are saved.
type bucket struct {
	credit, at time.Duration
	filled     bool // it was used before: a fresh one is full
}

// fill adds the credit since the last call.
func (b *bucket) fill(now, every time.Duration, burst int) {
	full := every * time.Duration(burst)
	if !b.filled {
		b.filled, b.credit = true, full
	} else {
		b.credit = min(b.credit+now-b.at, full)
	}
	b.at = now
}

// whole is how many starts the bucket allows now.
func (b *bucket) whole(now, every time.Duration, burst int) int {
	if every == 0 {
		return noLimit
	}
	b.fill(now, every, burst)
	return int(max(b.credit, 0) / every)
}

// due is when the next start is allowed. Call it after whole, in the same step.
func (b *bucket) due(every time.Duration) time.Duration { return b.at + every - b.credit }

const noLimit = 1 << 30

// pool is the messages that share a limit.
type pool struct {
	name    string
	taken   int   // claimed, running, or in an open transaction
	queued  int   // in their lanes' queues
	waiting deque // in order of arrival
	starts  bucket
	blocked bool // is in Machine.blocked
	resting int  // how often it became idle: identifies its last entry in Machine.idle
}

// idlePool records when a pool became idle. The pool is forgotten when its bucket is full again.
type idlePool struct {
	p       *pool
	resting int
	at      time.Duration
}

// maxPools is how many pools without items in flight are remembered. Beyond that the oldest are forgotten before their
// buckets are full: their next messages then start with a full bucket.
const maxPools = 1 << 16

// gate is an item's share of its pool.
type gate uint8

const (
	gateNone   gate = iota
	gateQueued      // it is counted in pool.queued
	gateTaken       // it is counted in pool.taken
)

func (m *Machine) pooled() bool { return m.cfg.PoolEvery > 0 || m.cfg.PoolConcurrency > 0 }

// fits is how many more of a pool may queue up.
func (m *Machine) fits(p *pool) int {
	n := p.starts.whole(m.now, m.cfg.PoolEvery, m.cfg.PoolBurst)
	if m.cfg.PoolConcurrency > 0 {
		n = min(n, m.cfg.PoolConcurrency-p.taken)
	}
	return n - p.queued
}

// joinPool lets an item queue up, or wait for its pool.
func (m *Machine) joinPool(it *Item) (now bool) {
	if it.Pool == "" || it.unrecorded != nil || !m.pooled() {
		return true
	}
	p := m.pools[it.Pool]
	if p == nil {
		p = &pool{name: it.Pool}
		m.pools[it.Pool] = p
	}
	it.pool = p
	if p.waiting.len() == 0 && m.fits(p) > 0 {
		p.queued++
		it.gate = gateQueued
		return true
	}
	if m.waiting >= m.cfg.InFlight {
		m.putOff(it, p)
		return false
	}
	it.phase = phWaiting
	p.waiting.push(it)
	m.waiting++
	if !p.blocked && m.cfg.PoolEvery > 0 {
		p.blocked = true
		m.blocked = append(m.blocked, p)
	}
	m.wakePool(p)
	return false
}

// putOff returns a delivery when too many wait, so that one pool cannot take all the room in flight. The delay is about half
// of the time that those before it take, so that its pool does not run dry. If the broker counts deliveries it doubles with
// each, as in busyElsewhere.
func (m *Machine) putOff(it *Item, p *pool) {
	each := m.cfg.PoolEvery
	if each == 0 {
		each = m.avgHandler / time.Duration(m.cfg.PoolConcurrency)
	}
	after, most := time.Duration(p.waiting.len()+1)*each/2, m.cfg.Lease
	if m.cfg.Redrives {
		most = m.cfg.MaxRuntime
		for n := 1; n < it.Count && after < most; n++ {
			after *= 2
		}
	}
	after = max(min(after, most), time.Second)
	m.returnDelivery(it, after+jitter(m.cfg.Nonce(), after/4))
}

// wakePool makes sure that a pool is checked when its bucket allows the next start.
func (m *Machine) wakePool(p *pool) {
	if m.cfg.PoolEvery > 0 && p.starts.whole(m.now, m.cfg.PoolEvery, m.cfg.PoolBurst) <= p.queued {
		m.poolAt = min(m.poolAt, max(p.starts.due(m.cfg.PoolEvery)+time.Duration(p.queued)*m.cfg.PoolEvery, m.now+1))
	}
}

// flowOn queues the waiting items of a pool that may start.
func (m *Machine) flowOn(p *pool) {
	for p.waiting.len() > 0 && m.fits(p) > 0 {
		it := p.waiting.pop()
		m.waiting--
		p.queued++
		it.gate = gateQueued
		m.queueUp(it)
		if g := it.group; g != nil {
			m.lineUp(g, g.at(it)+1)
		}
	}
	if p.waiting.len() > 0 {
		m.wakePool(p)
	}
}

// flowPools checks the pools with waiting items.
func (m *Machine) flowPools() {
	m.poolAt = never
	// An item that starts lets the next one of its group wait for another pool, which joins m.blocked meanwhile.
	all := m.blocked
	m.blocked, m.spare = m.spare, nil
	for _, p := range all {
		m.flowOn(p)
		if p.blocked = p.waiting.len() > 0; p.blocked {
			m.blocked = append(m.blocked, p)
		}
	}
	clear(all)
	m.spare = all[:0]
}

// take charges an item that is about to run to the limits.
func (m *Machine) take(it *Item) {
	it.paid = true
	if m.cfg.Every > 0 {
		m.starts.fill(m.now, m.cfg.Every, m.cfg.Burst)
		m.starts.credit -= m.cfg.Every
	}
	if m.brk.state == brkHalfOpen {
		m.brk.trial = it
	}
	p := it.pool
	if p == nil {
		return
	}
	if it.gate == gateQueued {
		p.queued--
	}
	p.taken++
	it.gate = gateTaken
	if m.cfg.PoolEvery > 0 {
		p.starts.fill(m.now, m.cfg.PoolEvery, m.cfg.PoolBurst)
		p.starts.credit -= m.cfg.PoolEvery
	}
}

// releaseShare returns an item's share of the limits: it ran, or will not. If it was charged to the rates and did not run,
// it is refunded.
func (m *Machine) releaseShare(it *Item) {
	if p := m.dropShare(it); p != nil {
		m.flowOn(p)
		m.retirePool(p)
	}
}

func (m *Machine) dropShare(it *Item) *pool {
	if m.brk.trial == it {
		m.brk.trial = nil
	}
	refund := it.paid
	it.paid = false
	if refund && m.cfg.Every > 0 {
		m.starts.credit += m.cfg.Every
	}
	p := it.pool
	if p == nil || it.gate == gateNone {
		return nil
	}
	if it.gate == gateQueued {
		p.queued--
	} else {
		p.taken--
		if refund && m.cfg.PoolEvery > 0 {
			p.starts.credit += m.cfg.PoolEvery
		}
	}
	it.gate = gateNone
	return p
}

// requeued is releaseShare for an item that goes back to the head of its queue. If it is still to run, it keeps its place.
func (m *Machine) requeued(it *Item) {
	if it.unrecorded != nil {
		m.releaseShare(it)
		return
	}
	if m.dropShare(it); it.pool != nil {
		it.pool.queued++
		it.gate = gateQueued
	}
}

// leavePool takes an item out of those that wait for its pool.
func (m *Machine) leavePool(it *Item) {
	it.pool.waiting.remove(it)
	m.waiting--
	it.phase = phHeld
	m.retirePool(it.pool)
}

// retirePool forgets pools without items in flight whose buckets are full.
func (m *Machine) retirePool(p *pool) {
	if p.taken+p.queued+p.waiting.len() > 0 || m.pools[p.name] != p {
		return // forgotten while an item in quarantine had released its share: the name is another pool's by now
	}
	if m.cfg.PoolEvery == 0 {
		delete(m.pools, p.name)
		return
	}
	p.resting++
	m.idle = append(m.idle, idlePool{p, p.resting, m.now})
	full := m.cfg.PoolEvery * time.Duration(m.cfg.PoolBurst+1)
	n := 0
	for ; n < len(m.idle) && (m.now-m.idle[n].at >= full || len(m.idle)-n > maxPools); n++ {
		o := m.idle[n]
		if o.p.resting == o.resting && o.p.taken+o.p.queued+o.p.waiting.len() == 0 && m.pools[o.p.name] == o.p {
			delete(m.pools, o.p.name)
		}
	}
	if n > len(m.idle)/2 {
		m.idle = append(m.idle[:0:0], m.idle[n:]...)
	} else {
		m.idle = m.idle[n:]
	}
}

// mayStart is how many runs the rate allows to start now.
func (m *Machine) mayStart() int { return m.starts.whole(m.now, m.cfg.Every, m.cfg.Burst) }

// ahead bounds what is fetched by the starts that the rate allows in the next two seconds: a delivery that waits here is
// kept from other workers.
func (m *Machine) ahead(most int) int {
	if m.cfg.Every == 0 {
		return most
	}
	soon := m.mayStart() + int(min(2*time.Second/m.cfg.Every, noLimit))
	return min(most, m.busy+max(soon, 1))
}
