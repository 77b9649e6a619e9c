package machine

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file has the items: the state of a delivery in flight, and what is derived from one item's nonce, key or age.

// UnknownAge is the age of a message whose send time is unknown.
const UnknownAge = time.Duration(-1 << 63)

type phase uint8

const (
	phFree       phase = iota
	phHeld             // received; waits for its group, its leader, a pause or its turn in quarantine
	phWaiting          // waits for room in its pool
	phQueued           // in its lane's claim queue
	phClaiming         // in a claim flush
	phQuarantine       // claimed; has to run in quarantine
	phRunning          // the handler or the probe runs
	phTx               // in the lane's open transaction, run or waiting to run
	phFinishing        // in the finish queue or flush
	phSettling         // in the settle queue or flush
)

// Item is one delivery in flight. Its exported fields never change while the shell can see it.
type Item struct {
	Arrival
	// Shell is for the shell's own use. It stays when the item is reused.
	Shell any

	lane  int
	phase phase
	refs  int  // actions in flight that name it
	kept  bool // an adapter that gave up may still be reading what it points to: it is never reused
	ended bool

	nonce driver.Nonce
	asked bool // a claim with this nonce was sent, and its outcome is unknown
	hold  driver.Hold
	grant driver.Grant // of the latest claim: attempt, failures, unknown, policy

	leaseAt, leaseEnd time.Duration // renewed at, believed until; leaseEnd 0 = not claimed
	leased            time.Duration // lease of the latest claim
	beats             uint32        // extensions of it that were applied
	visAt, visEnd     time.Duration // visEnd 0 = no visibility timeout
	startedAt         time.Duration
	wakeAt            time.Duration // phHeld, phFinishing, phSettling: retry at; 0 = no retry is due
	arrivedAt         time.Duration
	handled           time.Duration // how long the handler took, in all
	noExtend          bool          // its hard limit has passed: its lease expires
	cancelled         Cause
	lost              bool // another worker owns the record

	runs       bool // see Machine.runs
	leader     bool
	waitsFor   *Item   // it is a local duplicate of this leader
	duplicates []*Item // local duplicates that wait for it
	group      *group

	pool *pool
	gate gate
	paid bool // it was charged to the rates, and has not begun to run

	unrecorded *Result      // its run failed without a durable claim: claim it, then record this
	releasing  bool         // its claim is being released; it stays in flight and waits for its turn in quarantine
	preclaimed bool         // Open: claimed durably before its transaction begins
	atCommit   bool         // its commit claims it
	claim      driver.Claim // atCommit: what the commit carries. No write follows a commit that carried it
	durably    bool         // its next claims are durable, although this is its first delivery
	lined      bool         // Open: it queues for a transaction that others may share, not for a claim
	behind     bool         // Batched: its group stopped before it, in the same transaction

	work       driver.Work
	settlement driver.Settlement
	trace      TraceEvent // the decision, traced when it becomes durable
	ran        bool       // the handler ran in this attempt
	ending     bool       // counted in Machine.ending
	tries      int        // of the present flush
	refusal    refusal
	prev, next *Item
}

// Hold returns the item's hold: key, token and nonce of its attempt.
func (it *Item) Hold() driver.Hold { return it.hold }

// Attempt returns the number of the present run.
func (it *Item) Attempt() int { return it.grant.Attempt }

// Failures returns the number of recorded failed runs before the present one.
func (it *Item) Failures() int { return it.grant.Failures }

// Unknown reports that an earlier run may have had its effect.
func (it *Item) Unknown() bool { return it.grant.Unknown }

// migrating reports that the item is claimed under two keys.
func (it *Item) migrating() bool { return it.NewKey != (driver.Key{}) }

// deadLetterKey is the key of the item's dead letter: that of the record that decided, which may be the new key's.
func (it *Item) deadLetterKey() driver.Key {
	if it.migrating() && it.hold.Key == it.NewKey {
		return it.NewKey
	}
	return it.Key
}

// unprotected reports that the item runs without a claim: it has no key, and the configuration allows that.
func (it *Item) unprotected() bool { return it.Unkeyed && it.KeyErr != nil }

func (m *Machine) newItem() *Item {
	var it *Item
	if n := len(m.free); n > 0 {
		it = m.free[n-1]
		m.free = m.free[:n-1]
		duplicates, shell := it.duplicates[:0], it.Shell
		*it = Item{}
		it.duplicates, it.Shell = duplicates, shell
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

// endsSoon counts the items that are being finished or settled: they make room for others.
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

// age is how old a message is by now. Negative = unknown.
func (m *Machine) age(it *Item) time.Duration {
	if it.Age < -m.cfg.Park {
		return -1 // sent in the future: a clock is wrong by more than the wait
	}
	return max(it.Age, 0) + m.now - it.arrivedAt
}

// tooOld reports that a message waited longer than MaxAge before its key was begun. A key that was begun goes on at any age:
// after an earlier run, deferred or not (see driver.Record.Attempt), with a doubt, or reopened by an operator. So does a
// message that an operator sent again.
func (m *Machine) tooOld(it *Item) bool {
	if m.cfg.MaxAge <= 0 || it.Age == UnknownAge || driver.IsRedrive(it.ID) {
		return false
	}
	g := &it.grant
	if it.Version != "" && g.Redelivery {
		return false // another version ran meanwhile: the record counts its runs
	}
	if g.Attempt > 1 || g.Failures > 0 || g.Takeovers > 0 || g.Unknown || it.hold.Generation > 1 {
		return false
	}
	return m.age(it) > m.cfg.MaxAge
}

// mayClaimAtCommit reports that the commit of an item may claim it: this is its first delivery, and it has not run before.
func (m *Machine) mayClaimAtCommit(it *Item) bool {
	return m.cfg.AtCommit && it.Count == 1 && !it.durably && !m.tooOld(it)
}

func (m *Machine) oldReason(it *Item) string {
	return fmt.Sprintf("too old: sent %s ago, more than %s, and never begun", m.age(it).Round(time.Millisecond), m.cfg.MaxAge)
}

func (m *Machine) backoff(failures int, n driver.Nonce) time.Duration {
	return backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, failures, n)
}

// backoffOf is the backoff after a failure of r's class.
func (m *Machine) backoffOf(r *Result, failures int, n driver.Nonce) time.Duration {
	if r.Rule == nil || r.Rule.BackoffMin == 0 {
		return m.backoff(failures, n)
	}
	return backoff(r.Rule.BackoffMin, r.Rule.BackoffMax, failures, n)
}

// maxAttempts is how many runs may fail with r's class.
func (m *Machine) maxAttempts(r *Result) int {
	if r.Rule == nil || r.Rule.MaxAttempts == 0 {
		return m.cfg.MaxAttempts
	}
	return r.Rule.MaxAttempts
}

// backoff is the delay before the next run: from lo to 2×lo after the first failure, doubling, at most hi.
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
