package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file has the items: what is known of a delivery in flight; made when it comes, let go of when it ends, used again
// when no answer names it; and what is derived from one item's nonce or key.

type phase uint8

const (
	phFree      phase = iota
	phHeld            // received; waits for its group, its twin or a slot
	phWaiting         // its pool has no room for it
	phQueued          // in its lane's claim queue
	phClaiming        // in a claim flush
	phReady           // claimed; has to run alone
	phRunning         // the handler or the probe runs
	phTx              // in the lane's open transaction, run or waiting to run
	phFinishing       // in the finish queue or flush
	phSettling        // in the settle queue or flush
)

// Item is one delivery in flight. Its exported fields never change while the shell can see it.
type Item struct {
	Arrival
	// Shell is for the shell's own use; it stays when the item is used again.
	Shell any

	lane  int
	phase phase
	refs  int  // answers that still name it
	kept  bool // an adapter that gave up may still be reading what it points to: never used again
	ended bool

	nonce driver.Nonce
	asked bool // a claim with this nonce was sent and not answered
	hold  driver.Hold
	grant driver.Grant // verdict's numbers: attempt, failures, unknown, policy

	leaseAt, leaseEnd time.Duration // renewed at, believed until; leaseEnd 0 = not claimed
	leased            time.Duration // for how long the latest claim asked
	beats             uint32        // extensions of it that were applied
	visAt, visEnd     time.Duration // visEnd 0 = no visibility timeout
	startedAt         time.Duration
	wakeAt            time.Duration // phHeld, phFinishing, phSettling: ask again at; 0 = it does not wait for that
	arrivedAt         time.Duration
	handled           time.Duration // how long the handler took, in all
	noExtend          bool          // its hard limit has passed: the lease ends by itself
	cancelled         Cause
	lost              bool // somebody else owns the record

	runs     bool // see Machine.runs
	leader   bool
	waitsFor *Item // the twin that runs
	twins    []*Item
	group    *group

	pool *pool
	gate gate
	paid bool // it took its turn of the rates, and has not begun to run

	condemned *Result // Open: failed inside a transaction; claim it, then record this
	suspect   bool    // it may kill its process: its claim is being given up, and it waits for its turn
	solo      bool    // Open: claimed durably before its transaction begins
	lined     bool    // Open: it queues for a transaction that others may share, not for a claim
	behind    bool    // Batched: its group stopped before it, in the same transaction

	work       driver.Work
	settlement driver.Settlement
	note       TraceEvent // the decision that is noted when it becomes durable
	ran        bool       // the handler ran in this attempt
	ending     bool       // counted in Machine.ending
	tries      int        // of the present flush
	refusal    refusal
	prev, next *Item
}

// Hold names the attempt that the item holds.
func (it *Item) Hold() driver.Hold { return it.hold }

// Attempt is the number of the present run.
func (it *Item) Attempt() int { return it.grant.Attempt }

// Failures is the number of recorded failed runs before the present one.
func (it *Item) Failures() int { return it.grant.Failures }

// Unknown tells that an earlier run may have had its effect.
func (it *Item) Unknown() bool { return it.grant.Unknown }

// mirrored items are claimed under two keys.
func (it *Item) migrating() bool { return it.NewKey != (driver.Key{}) }

// deadLetterKey is the key that a dead letter is of: that of the record that decided, which may be the mirror's.
func (it *Item) deadLetterKey() driver.Key {
	if it.migrating() && it.hold.Key == it.NewKey {
		return it.NewKey
	}
	return it.Key
}

// unprotected items run without a claim: they have no key, and the configuration allows that.
func (it *Item) unprotected() bool { return it.Unkeyed && it.KeyErr != nil }

// gone lets go of an item: its twins and its group go on.
func (m *Machine) gone(it *Item) {
	if it.ended {
		return
	}
	it.ended = true
	m.letGo(it)
	if it.leader {
		delete(m.leaders, it.Key)
		if it.migrating() {
			delete(m.leaders, it.NewKey)
		}
	}
	m.endsSoon(it, false)
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
	m.inFlight++
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
	m.inFlight--
}

// endsSoon counts the items whose end is known and on its way out: they make room for others.
func (m *Machine) endsSoon(it *Item, yes bool) {
	if it.ending != yes {
		it.ending = yes
		if yes {
			m.ending++
		} else {
			m.ending--
		}
	}
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
	return backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, failures, n)
}

// backoffOf is the backoff of a failure's class.
func (m *Machine) backoffOf(r *Result, failures int, n driver.Nonce) time.Duration {
	if r.Rule == nil || r.Rule.BackoffMin == 0 {
		return m.backoff(failures, n)
	}
	return backoff(r.Rule.BackoffMin, r.Rule.BackoffMax, failures, n)
}

// maxAttempts is how many runs may fail as this one did.
func (m *Machine) maxAttempts(r *Result) int {
	if r.Rule == nil || r.Rule.MaxAttempts == 0 {
		return m.cfg.MaxAttempts
	}
	return r.Rule.MaxAttempts
}

// backoff is the delay before the next run: from lo to twice that after the first failure, doubling, and never beyond hi.
func backoff(lo, hi time.Duration, failures int, n driver.Nonce) time.Duration {
	most := hi
	if failures < 40 && lo<<(failures+1) > 0 {
		most = min(hi, lo<<(failures+1))
	}
	least := max(lo, most/2)
	return least + jitter(n, max(most-least, 0))
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
