package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file keeps the items: made when a delivery comes, let go of when it ends, used again when no answer names them;
// and what is derived from one item's nonce or key.

// gone lets go of an item: its twins and its group go on.
func (m *Machine) gone(it *Item) {
	if it.ended {
		return
	}
	it.ended = true
	if it.leader {
		delete(m.leaders, it.Key)
	}
	m.unlink(it)
	m.releaseTwins(it)
	m.leaveGroup(it)
	m.retire(it)
}

func (m *Machine) newItem() *Item {
	var it *Item
	if n := len(m.free); n > 0 {
		it = m.free[n-1]
		m.free = m.free[:n-1]
		twins, shell := it.twins[:0], it.Shell
		*it = Item{}
		it.twins, it.Shell = twins, shell
	} else {
		it = &Item{}
	}
	it.prev = m.tail
	if m.tail != nil {
		m.tail.next = it
	} else {
		m.head = it
		m.beatAt = m.now + m.beat()
	}
	m.tail = it
	m.inHand++
	return it
}

func (m *Machine) unlink(it *Item) {
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		m.head = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		m.tail = it.prev
	}
	it.prev, it.next = nil, nil
	m.inHand--
}

// retire puts an item up for reuse when no answer names it any more.
func (m *Machine) retire(it *Item) {
	if it.ended && it.refs == 0 && it.phase != phFree {
		it.phase = phFree
		if !it.kept {
			m.limbo = append(m.limbo, it)
		}
	}
}

func (m *Machine) backoff(failures int, n driver.Nonce) time.Duration {
	d := m.cfg.BackoffMax
	if failures < 40 && m.cfg.BackoffMin<<failures > 0 {
		d = min(d, m.cfg.BackoffMin<<failures)
	}
	return d/2 + jitter(n, d/2)
}

// jitter spreads by the item's own random nonce: [0, d].
func jitter(n driver.Nonce, d time.Duration) time.Duration {
	return d * time.Duration(uint64(n[14])<<8|uint64(n[15])) / 0xffff
}

// laneOf shards by key, so that lanes never wait for each other's rows (FNV-1a).
func laneOf(raw string, lanes int) int {
	h := uint32(2166136261)
	for i := range len(raw) {
		h = (h ^ uint32(raw[i])) * 16777619
	}
	return int(h % uint32(lanes))
}
