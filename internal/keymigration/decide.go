package keymigration

import (
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
)

// collisionWait is for how long a claim is put off whose key another claim of the same call asks for.
const collisionWait = 50 * time.Millisecond

// plan is the claims of one call to the store, each of them for one record.
type plan struct {
	asks []driver.Claim
	// primary and mirror are the places of each claim in asks; -1 = it is not asked.
	primary, mirror []int
}

// planOf takes mirrored claims apart, primaries first. The keys of one call have to be distinct: of two claims that meet in
// a key the later one is not asked, and is Busy.
func planOf(claims []driver.Claim) plan {
	p := plan{
		asks:    make([]driver.Claim, 0, 2*len(claims)),
		primary: make([]int, len(claims)), mirror: make([]int, len(claims)),
	}
	taken := make(map[driver.Key]bool, 2*len(claims))
	for i := range claims {
		c := claims[i]
		p.primary[i], p.mirror[i] = -1, -1
		migrating := c.NewKey != (driver.Key{})
		if taken[c.Key] || migrating && taken[c.NewKey] {
			continue
		}
		p.primary[i] = len(p.asks)
		taken[c.Key] = true
		if migrating {
			taken[c.NewKey] = true
		}
		c.NewKey = driver.Key{}
		p.asks = append(p.asks, c)
	}
	for i := range claims {
		if p.primary[i] < 0 || claims[i].NewKey == (driver.Key{}) {
			continue
		}
		c := claims[i]
		c.Key, c.NewKey, c.Nonce = c.NewKey, driver.Key{}, nonceOf(c.Nonce)
		// The primary's policy rules. Under Once an expired mirror would be parked, and nobody has a dead letter to open it with.
		c.Takeover = driver.Resume
		p.mirror[i] = len(p.asks)
		p.asks = append(p.asks, c)
	}
	return p
}

// nonceOf is the nonce of a mirror: another one, because stores tell the attempts of one transaction apart by it, and always
// the same one, because an unanswered claim is repeated.
func nonceOf(n driver.Nonce) driver.Nonce {
	for i := range n {
		n[i] = ^n[i]
	}
	return n
}

// answer makes the grant of the i-th claim out of what the store answered. end is what has to be written to the one of its
// records that was acquired for nothing; nil = nothing.
func (p *plan) answer(i int, c *driver.Claim, grants []driver.Grant, keep time.Duration) (g driver.Grant, end *driver.Finish) {
	switch {
	case p.primary[i] < 0:
		return driver.Grant{
			Verdict: driver.Busy, Hold: driver.Hold{Key: c.Key}, Takeover: c.Takeover, Wait: collisionWait,
		}, nil
	case p.mirror[i] < 0:
		return grants[p.primary[i]], nil
	}
	return decide(grants[p.primary[i]], grants[p.mirror[i]], keep)
}

// decide is the table of two answers. What is unknown stays unknown, and keeps what it may hold: the same claims are
// repeated. Whoever is Busy makes both wait, because a duplicate is acked only when both records are terminal; but for a
// primary that failed, was parked or is another payload's: its dead letter is what is left of the message. Else the primary's
// answer goes before the mirror's, but for a completed one beside a mirror that failed or was parked: who ended that one
// may have died before its dead letter was written. A record that was acquired beside a terminal one is completed with its
// result where there is one, and returned where there is none.
func decide(p, m driver.Grant, keep time.Duration) (g driver.Grant, end *driver.Finish) {
	pHeld, mHeld := p.Verdict == driver.Acquired, m.Verdict == driver.Acquired
	switch {
	case p.Err != nil:
		return p, nil
	case m.Err != nil:
		g = p
		g.Err = m.Err
		if pHeld && errors.Is(m.Err, driver.ErrUnreadable) {
			return g, unstarted(p.Hold, keep) // it is not asked for again
		}
		return g, nil
	case pHeld && mHeld:
		return both(p, m), nil
	case p.Verdict == driver.Busy && m.Verdict == driver.Busy:
		p.Wait = max(p.Wait, m.Wait)
		return p, nil
	case p.Verdict == driver.Busy && mHeld:
		return p, unstarted(m.Hold, keep)
	case p.Verdict == driver.Busy:
		return p, nil
	case m.Verdict == driver.Busy && pHeld:
		return m, unstarted(p.Hold, keep)
	case p.Verdict == driver.Replay && (m.Verdict == driver.Busy || m.Verdict == driver.Failed || m.Verdict == driver.Parked):
		return m, nil
	case mHeld && p.Verdict == driver.Replay:
		return p, completed(m.Hold, p.Result, keep)
	case mHeld && p.Verdict == driver.Late:
		return p, unstarted(m.Hold, keep) // nothing is known under this identity but that it came now
	case mHeld && p.Verdict == driver.Parked && !m.Unknown:
		// The dead letter may be forgotten, or decided under the previous key alone: who will know only the mirror has the doubt too.
		return p, doubtful(m.Hold, keep)
	case mHeld:
		// It did not run. What ended without a word under this identity ended under the other one too, which counts it: here
		// it would stand in the way of a person who sends the message again.
		return p, idle(m.Hold, keep)
	case !pHeld:
		return p, nil
	case m.Verdict == driver.Replay:
		return m, completed(p.Hold, m.Result, keep)
	}
	return m, unstarted(p.Hold, keep)
}

// both is the grant of who holds both records: the primary's, with what is known under the mirror alone.
func both(p, m driver.Grant) driver.Grant {
	g := p
	hold := m.Hold
	g.Hold.NewKey = &hold
	g.Attempt, g.Failures = max(p.Attempt, m.Attempt), max(p.Failures, m.Failures)
	g.Takeovers, g.Uncertainty = max(p.Takeovers, m.Takeovers), max(p.Uncertainty, m.Uncertainty)
	g.Takeover = max(p.Takeover, m.Takeover)
	// A milder policy than the primary's is that of mirrors alone: no worker without the previous recipe ran this key, so the
	// primary knows of every run. A person may have lifted its doubt there, and only there.
	g.Unknown = p.Unknown || m.Unknown && m.Takeover >= p.Takeover
	g.Redelivery = p.Redelivery || m.Redelivery
	return g
}

// unstarted gives a record back as it was.
func unstarted(h driver.Hold, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Release, Ran: driver.Unstarted, Keep: keep}
}

// idle gives a mirror back as one that did no harm.
func idle(h driver.Hold, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Release, Ran: driver.NotApplied, Refund: true, Keep: keep}
}

// doubtful gives a mirror back with the doubt of its primary.
func doubtful(h driver.Hold, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Release, Ran: driver.MaybeApplied, Refund: true, Keep: keep}
}

func completed(h driver.Hold, result []byte, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Complete, Keep: keep, Result: result, Reason: "completed under its other key"}
}

// apart takes the mirror out of the end of an attempt: the end of the primary and that of the mirror, nil = there is none.
//
// A mirror fails, and is parked, with nobody: the dead letter has the primary's key and token, and opens the primary alone. It
// is returned with the doubt that the run left, so that who only knows the mirror asks the probe, or parks.
func apart(f driver.Finish) (primary driver.Finish, mirror *driver.Finish) {
	if f.Hold.NewKey == nil {
		return f, nil
	}
	m := f
	m.Hold, f.Hold.NewKey = *f.Hold.NewKey, nil
	switch f.Final {
	case driver.Complete:
	case driver.Release:
		m.Refund = true // failed runs are counted once
	default:
		ran := f.Ran
		if f.Final == driver.Park {
			ran = driver.MaybeApplied
		}
		if ran == driver.Unstarted || f.Compensated {
			ran = driver.NotApplied
		}
		m = driver.Finish{Hold: m.Hold, Final: driver.Release, Ran: ran, Refund: true, Keep: f.Keep, Reason: f.Reason}
	}
	return f, &m
}

// ok tells that a write is durable.
func ok(o driver.Outcome) bool {
	return o == driver.Applied || o == driver.Recovered || o == driver.Settled
}
