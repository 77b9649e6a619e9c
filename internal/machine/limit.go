package machine

import "time"

// This file bounds how often runs are started, altogether and for the messages of each pool, and how many of a pool's may
// run at once. Whoever has to wait does so unclaimed (law 1), with its visibility kept alive, and lets others pass. A
// pool never has more in its lane's queue than may start now, so that nothing else has to know of pools.

// bucket is a token bucket counted in time: a start costs every, and no more than burst starts are saved up.
type bucket struct {
	credit, at time.Duration
	filled     bool // it was used before: a fresh one is full
}

// fill adds what was saved up since it was looked at last.
func (b *bucket) fill(now, every time.Duration, burst int) {
	full := every * time.Duration(burst)
	if !b.filled {
		b.filled, b.credit = true, full
	} else {
		b.credit = min(b.credit+now-b.at, full)
	}
	b.at = now
}

// whole is how many may start now.
func (b *bucket) whole(now, every time.Duration, burst int) int {
	if every == 0 {
		return noLimit
	}
	b.fill(now, every, burst)
	return int(max(b.credit, 0) / every)
}

// due is when the next one may start; it is to be asked after whole, in the same step.
func (b *bucket) due(every time.Duration) time.Duration { return b.at + every - b.credit }

const noLimit = 1 << 30

// pool is those who share a limit.
type pool struct {
	name    string
	taken   int   // that are claimed, run, or belong to an open transaction
	queued  int   // in their lanes' queues
	waiting deque // in order of arrival
	starts  bucket
	blocked bool // is in Machine.blocked
	resting int  // how often it became idle: names its last entry in Machine.idle
}

// idlePool remembers when a pool became idle: it is forgotten when its bucket is full again.
type idlePool struct {
	p       *pool
	resting int
	at      time.Duration
}

// maxPools is how many pools are remembered that have nobody in flight. Of more the oldest are forgotten before their buckets
// are full: their next messages may then come as a new pool's.
const maxPools = 1 << 16

// gate is what an item holds of its pool.
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
	if it.Pool == "" || it.txFailure != nil || !m.pooled() {
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

// putOff gives a delivery back of which too many wait, so that one pool cannot fill the hand: for about as long as half of
// those before it take, so that its pool does not run dry. Where deliveries are counted they have to be few, as those of
// busy keys.
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

// wakePool makes sure that a pool is looked at when its bucket has something for those who wait.
func (m *Machine) wakePool(p *pool) {
	if m.cfg.PoolEvery > 0 && p.starts.whole(m.now, m.cfg.PoolEvery, m.cfg.PoolBurst) <= p.queued {
		m.poolAt = min(m.poolAt, max(p.starts.due(m.cfg.PoolEvery)+time.Duration(p.queued)*m.cfg.PoolEvery, m.now+1))
	}
}

// flowOn queues up those of a pool who may go on.
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

// flowPools looks at the pools in which somebody waits.
func (m *Machine) flowPools() {
	m.poolAt = never
	all := m.blocked
	m.blocked = m.blocked[:0]
	for _, p := range all {
		m.flowOn(p)
		if p.blocked = p.waiting.len() > 0; p.blocked {
			m.blocked = append(m.blocked, p)
		}
	}
	clear(all[len(m.blocked):])
}

// take marks an item as one that is about to run.
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

// releaseShare returns what an item holds of the limits: it ran, or will not. What it did not use of the rates is for others.
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

// requeued is releaseShare for an item that is put back at the head of its queue: if it is still to run, its place is its own.
func (m *Machine) requeued(it *Item) {
	if it.txFailure != nil {
		m.releaseShare(it)
		return
	}
	if m.dropShare(it); it.pool != nil {
		it.pool.queued++
		it.gate = gateQueued
	}
}

// leavePool takes an item out of those who wait.
func (m *Machine) leavePool(it *Item) {
	it.pool.waiting.remove(it)
	m.waiting--
	it.phase = phHeld
	m.retirePool(it.pool)
}

// retirePool forgets pools that have nobody in flight and could start as many as a new one.
func (m *Machine) retirePool(p *pool) {
	if p.taken+p.queued+p.waiting.len() > 0 || m.pools[p.name] != p {
		return // forgotten while one that has to run alone had given up its share: the name is another pool's by now
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

// ahead bounds what is fetched by what the rate lets start in the next two seconds: what waits here is kept from others.
func (m *Machine) ahead(most int) int {
	if m.cfg.Every == 0 {
		return most
	}
	soon := m.mayStart() + int(min(2*time.Second/m.cfg.Every, noLimit))
	return min(most, m.busy+max(soon, 1))
}
