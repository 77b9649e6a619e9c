package front

import "github.com/semel-dev/semel/driver"

// This file is W-TinyLFU (Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy", 2017): what is
// new stands in a small window; what falls out of it is kept only when it was asked for more often than what it would
// displace. A scan of keys that come once passes through the window and displaces nothing.

// segment is a part of the cache.
type segment uint8

const (
	window    segment = iota // new entries, the least recent falls out first
	probation                // the main part: entries that were not asked for again
	protected                // and those that were
	segments
)

// node is an entry's place in its segment's ring, the most recent first.
type node struct {
	entry
	hash       uint64
	cost       int64
	seg        segment
	prev, next *node
}

// policy holds nodes and decides which stay. It is not safe for concurrent use.
type policy struct {
	nodes map[driver.Key]*node
	root  [segments]node
	n     [segments]int
	limit [segments]int // of window and protected; the main part together holds size less window
	size  int
	bytes int64
	most  int64
	freq  sketch
}

func newPolicy(size int, most int64) *policy {
	p := &policy{nodes: map[driver.Key]*node{}, size: size, most: most, freq: newSketch(size)}
	p.limit[window] = max(1, size/100)
	p.limit[protected] = (size - p.limit[window]) * 8 / 10
	for s := range p.root {
		p.root[s].prev, p.root[s].next = &p.root[s], &p.root[s]
	}
	return p
}

// get looks an entry up and counts that it was asked for, whether it is there or not.
func (p *policy) get(k driver.Key, hash uint64) *node {
	p.freq.add(hash)
	return p.nodes[k]
}

// used moves an entry to the front.
func (p *policy) used(n *node) {
	to := n.seg
	if to == probation {
		to = protected
	}
	p.unlink(n)
	p.push(n, to)
	for p.n[protected] > p.limit[protected] {
		last := p.root[protected].prev
		p.unlink(last)
		p.push(last, probation)
	}
}

// put takes an entry in, in place of the one that its key has. One that alone is larger than all the room is not kept.
func (p *policy) put(k driver.Key, hash uint64, e *entry, cost int64) {
	if n := p.nodes[k]; n != nil {
		p.bytes += cost - n.cost
		n.entry, n.cost = *e, cost
		p.used(n)
	} else {
		n = &node{entry: *e, hash: hash, cost: cost}
		p.nodes[k] = n
		p.bytes += cost
		p.push(n, window)
	}
	p.shrink()
}

func (p *policy) remove(n *node) {
	p.unlink(n)
	delete(p.nodes, n.key)
	p.bytes -= n.cost
}

// shrink lets entries go until both bounds are kept.
func (p *policy) shrink() {
	for p.n[window] > p.limit[window] {
		p.admit(p.root[window].prev)
	}
	for p.bytes > p.most {
		for _, s := range [...]segment{probation, window, protected} {
			if p.n[s] > 0 {
				p.remove(p.root[s].prev)
				break
			}
		}
	}
}

// admit decides on what falls out of the window: there is room, or it is wanted more than what would have to go.
func (p *policy) admit(n *node) {
	p.unlink(n)
	p.push(n, probation)
	if p.n[probation]+p.n[protected] <= p.size-p.limit[window] {
		return
	}
	victim := p.root[probation].prev
	if victim == n && p.n[protected] > 0 {
		victim = p.root[protected].prev
	}
	if victim != n && p.freq.estimate(n.hash) > p.freq.estimate(victim.hash) {
		p.remove(victim)
		return
	}
	p.remove(n)
}

func (p *policy) push(n *node, s segment) {
	at := &p.root[s]
	n.seg, n.prev, n.next = s, at, at.next
	n.prev.next, n.next.prev = n, n
	p.n[s]++
}

func (p *policy) unlink(n *node) {
	n.prev.next, n.next.prev = n.next, n.prev
	p.n[n.seg]--
}

// sketch estimates how often a hash was added: counters of 4 bits, four for each hash, the least of which counts. They are
// halved when ten times as many were added as there are entries, so that what was wanted long ago is forgotten.
type sketch struct {
	words []uint64 // 16 counters each
	added int
	most  int
}

func newSketch(size int) sketch {
	words := 16
	for words < size {
		words *= 2
	}
	return sketch{words: make([]uint64, words), most: 10 * max(size, 16)}
}

// at is the i-th counter of a hash: its word, and the place of its lowest bit.
func (s *sketch) at(hash uint64, i int) (word int, bit uint) {
	h := mix(hash + uint64(i)*0x9e3779b97f4a7c15)
	return int(h & uint64(len(s.words)-1)), uint(h>>60) * 4
}

func (s *sketch) add(hash uint64) {
	grew := false
	for i := range 4 {
		w, b := s.at(hash, i)
		if s.words[w]>>b&15 < 15 {
			s.words[w] += 1 << b
			grew = true
		}
	}
	if !grew {
		return
	}
	if s.added++; s.added >= s.most {
		for i := range s.words {
			s.words[i] = s.words[i] >> 1 & 0x7777777777777777
		}
		s.added /= 2
	}
}

func (s *sketch) estimate(hash uint64) uint64 {
	least := uint64(15)
	for i := range 4 {
		w, b := s.at(hash, i)
		least = min(least, s.words[w]>>b&15)
	}
	return least
}

// mix spreads the bits of a number (the finalizer of SplitMix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// hashKey is FNV-1a over the lengths and parts of a key. It places counters only; keys are compared byte by byte.
func hashKey(k driver.Key, seed uint64) uint64 {
	h := seed ^ 14695981039346656037
	for _, s := range [...]string{k.Consumer, k.Tenant, k.Raw} {
		h = (h ^ uint64(len(s))) * 1099511628211
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	return mix(h)
}
