package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file stops runs while a downstream is down. While the breaker is open nothing is fetched, and deliveries that have
// not started are returned without spending an attempt. Then it is half open: one message runs, and its end closes the
// breaker, or opens it for twice as long.
//
// It also stops a broken deployment. Until the first run of the process has succeeded, it counts the keys whose runs failed
// for one reason (reason.go). At BreakerConfig.Keys the breaker opens, and only a success closes it again: one message after
// the other spends an attempt, the others spend none.

// BreakerConfig is when the breaker opens. The zero value: never.
type BreakerConfig struct {
	// Failures opens it after that many failures in a row. Ratio opens it when that part of at least Least runs within Window
	// failed. 0 = not.
	Failures int
	Ratio    float64
	Least    int
	Window   time.Duration
	// Keys opens it when the runs of that many keys failed for one reason and none has succeeded yet. 0 = not.
	Keys int
	// OpenMin is how long it stays open at first. It doubles up to OpenMax.
	OpenMin, OpenMax time.Duration
}

// breakerState is whether runs are started.
type breakerState uint8

const (
	brkClosed breakerState = iota
	brkOpen
	brkHalfOpen // one run tries
)

type breaker struct {
	state breakerState
	until time.Duration // when it is open
	pause time.Duration // how long it was open last; 0 = closed
	trial *Item         // the item that runs while it is half open
	row   int           // failures in a row
	// The runs within the present half of the window and the one before.
	runs, bad [2]int
	halfAt    time.Duration
	reason    string
	broken    bool // opened because no run succeeds: only a success closes it
}

// failing has the keys whose runs failed for one reason.
type failing struct {
	reason string
	keys   []driver.Key
}

// maxReasons bounds how many reasons are kept before a run has succeeded. The oldest is forgotten.
const maxReasons = 8

// maxAsked × OpenMax is the longest pause that a downstream can ask for.
const maxAsked = 10

// admits reports that an item may be claimed. Nil: any item.
func (m *Machine) admits(it *Item) bool {
	switch m.brk.state {
	case brkClosed:
		return true
	case brkHalfOpen:
		return m.brk.trial == nil || m.brk.trial == it
	}
	return false
}

// wants reports that a new delivery is needed: the breaker is closed, or half open without an item to try.
func (m *Machine) wants() bool {
	switch m.brk.state {
	case brkClosed:
		return true
	case brkHalfOpen:
		return m.brk.trial == nil && m.claimable == 0 && m.quarantine.len() == 0
	}
	return false
}

// shutFor is the delay of returned deliveries: a little longer than the breaker stays open.
func (m *Machine) shutFor() time.Duration {
	return max(m.brk.until-m.now, m.cfg.Breaker.OpenMin/4) + jitter(m.cfg.Nonce(), m.cfg.Breaker.OpenMin/2)
}

// countRun counts the end of a run. A run that was cancelled is not counted, unless it timed out and its result is
// Unavailable: a downstream that hangs is down.
func (m *Machine) countRun(it *Item, r *Result) {
	c, b := &m.cfg.Breaker, &m.brk
	failed := r.Class == Unavailable
	cut := it.cancelled != NoCause && !(failed && it.cancelled == CauseTimeout)
	if (c.Failures == 0 && c.Ratio == 0) || cut || r.Class == Transient {
		return
	}
	switch {
	case b.state == brkClosed:
		if b.count(failed, m.now, c) {
			m.openBreaker(r)
		}
	case b.state != brkHalfOpen || b.trial != it:
		// A run from before it opened: nothing new.
	case failed:
		m.openBreaker(r)
	case b.broken:
		// The durable end of the run decides: see failed and proven.
	default:
		*b = breaker{halfAt: b.halfAt}
		m.observe(TraceEvent{Kind: TraceResumed, Reason: "the downstream responds again"})
	}
}

// failed counts a failed run as long as none has succeeded, and opens the breaker when the deployment seems broken.
func (m *Machine) failed(it *Item, r *Result) {
	b, most := &m.brk, m.cfg.Breaker.Keys
	cut := it.cancelled != NoCause && it.cancelled != CauseTimeout
	again := r.Class == Failed && (it.grant.Failures > 0 || it.unprotected() || it.grant.Failures+1 >= m.maxAttempts(r))
	if m.succeeded || most == 0 || cut || !again && r.Class != Permanent {
		return // the retry may succeed
	}
	if b.broken {
		if b.state == brkHalfOpen {
			m.openBreaker(r)
		}
		return
	}
	key := it.Key
	if it.unprotected() {
		key.Raw = it.ID
	}
	reason := commonReason(reasonOf(r), key.Raw, it.ID)
	i := slices.IndexFunc(m.failing, func(f failing) bool { return f.reason == reason })
	if i < 0 {
		if i = len(m.failing); i == maxReasons {
			m.failing, i = slices.Delete(m.failing, 0, 1), i-1
		}
		m.failing = append(m.failing, failing{reason: reason})
	}
	f := &m.failing[i]
	if !slices.Contains(f.keys, key) {
		f.keys = append(f.keys, key)
	}
	if len(f.keys) >= most {
		b.broken, m.failing = true, nil
		m.openBreaker(r)
	}
}

// proven records that a run succeeded: the deployment is not broken, and later failures are those of messages.
func (m *Machine) proven() {
	if m.succeeded {
		return
	}
	m.succeeded, m.failing = true, nil
	if m.brk.broken {
		m.brk = breaker{halfAt: m.brk.halfAt}
		m.observe(TraceEvent{Kind: TraceResumed, Reason: "a run succeeded"})
	}
}

// count adds a run and reports whether the breaker has to open.
func (b *breaker) count(failed bool, now time.Duration, c *BreakerConfig) bool {
	for half := max(c.Window/2, 1); now-b.halfAt >= half; b.halfAt += half {
		b.runs[0], b.bad[0], b.runs[1], b.bad[1] = b.runs[1], b.bad[1], 0, 0
		if now-b.halfAt >= 2*half {
			b.runs[0], b.bad[0], b.halfAt = 0, 0, now-half
		}
	}
	b.runs[1]++
	if !failed {
		b.row = 0
		return false
	}
	b.row++
	b.bad[1]++
	if c.Failures > 0 && b.row >= c.Failures {
		return true
	}
	runs, bad := b.runs[0]+b.runs[1], b.bad[0]+b.bad[1]
	return c.Ratio > 0 && runs >= c.Least && float64(bad) >= c.Ratio*float64(runs)
}

// openBreaker stops the start of runs, for twice as long as the last time if the trial failed. If the downstream asks for a
// pause, the breaker stays open for at least that long.
func (m *Machine) openBreaker(r *Result) {
	c, b := &m.cfg.Breaker, &m.brk
	pause := c.OpenMin
	if b.state == brkHalfOpen {
		pause = min(2*b.pause, c.OpenMax)
	}
	shut := pause + jitter(m.cfg.Nonce(), pause/8)
	if r.HasAfter {
		shut = max(shut, min(r.After, maxAsked*c.OpenMax))
	}
	*b = breaker{state: brkOpen, pause: pause, until: m.now + shut, reason: reasonOf(r), halfAt: m.now, broken: b.broken}
	why := "the breaker is open"
	if b.broken {
		why = fmt.Sprintf("runs of %d or more keys failed for one reason, and none has succeeded since the start: "+
			"fix the handler, its configuration or the deployment. One message at a time is tried until one succeeds", c.Keys)
	}
	m.observe(TraceEvent{Kind: TracePaused, After: shut, Err: r.Err, Reason: fmt.Sprintf("%s: nothing is run for %v", why, shut.Round(time.Millisecond))})
	m.opened = true
}

// halfOpen lets one message try when the pause has ended.
func (m *Machine) halfOpen() {
	if m.brk.state == brkOpen && m.now >= m.brk.until {
		m.brk.state = brkHalfOpen
	}
}

// afterOutage is the delay of a message whose run found the downstream down. Its record does not count such failures, so the
// backoff grows with its deliveries. With a breaker it is at most OpenMax, because the breaker already slows all of them.
func (m *Machine) afterOutage(it *Item, r *Result) time.Duration {
	after := r.After
	if !r.HasAfter {
		after = m.backoffOf(r, max(it.Count-1, 0), it.nonce)
		if most := m.cfg.Breaker.OpenMax; most > 0 && (r.Rule == nil || r.Rule.BackoffMin == 0) {
			after = min(after, most)
		}
	}
	if m.brk.state == brkOpen {
		after = max(after, m.shutFor())
	}
	return after
}

// returnUnstarted returns the deliveries that have not started, because the worker stops or the breaker is open. Failures
// that wait to be recorded stay: that needs no run.
func (m *Machine) returnUnstarted() {
	if m.draining {
		m.drainItems()
		return
	}
	if m.brk.state != brkOpen {
		return
	}
	for it := m.head; it != nil; it = it.next {
		switch it.phase {
		case phHeld, phQueued, phWaiting:
			if it.unrecorded != nil || it.waitsFor != nil {
				continue // the end of its leader decides
			}
			m.dequeue(it)
			if it.holds() {
				m.releaseFor(it, Returned, m.shutFor())
				continue
			}
			after := m.shutFor()
			if it.asked {
				after = max(after, m.cfg.Lease) // its claim may be ours: until its lease ends the key is busy
			}
			m.returnDelivery(it, after)
		case phQuarantine:
			m.quarantine.remove(it)
			m.busy--
			m.releaseFor(it, Returned, m.shutFor())
		}
	}
}
