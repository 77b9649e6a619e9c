package keymigration

import (
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
)

// collisionWait is the delay of a claim whose key another claim of the same call has.
const collisionWait = 50 * time.Millisecond

// plan has the claims of one call to the store, each for one record.
type plan struct {
	asks []driver.Claim
	// previous and newKey are the places of each claim in asks. -1 = it is not asked.
	previous, newKey []int
}

// planOf splits claims with two keys, previous keys first. The keys of one call have to be distinct: if two claims share a
// key, the later one is not asked, and is Busy.
func planOf(claims []driver.Claim) plan {
	p := plan{
		asks:     make([]driver.Claim, 0, 2*len(claims)),
		previous: make([]int, len(claims)), newKey: make([]int, len(claims)),
	}
	taken := make(map[driver.Key]bool, 2*len(claims))
	for i := range claims {
		c := claims[i]
		p.previous[i], p.newKey[i] = -1, -1
		migrating := c.NewKey != (driver.Key{})
		if taken[c.Key] || migrating && taken[c.NewKey] {
			continue
		}
		p.previous[i] = len(p.asks)
		taken[c.Key] = true
		if migrating {
			taken[c.NewKey] = true
		}
		c.NewKey = driver.Key{}
		p.asks = append(p.asks, c)
	}
	for i := range claims {
		if p.previous[i] < 0 || claims[i].NewKey == (driver.Key{}) {
			continue
		}
		c := claims[i]
		c.Key, c.NewKey, c.Nonce = c.NewKey, driver.Key{}, nonceOf(c.Nonce)
		// The previous key's policy rules. Under Once an expired claim of the new key would be parked, without a dead letter to
		// reopen it.
		c.Takeover = driver.Resume
		p.newKey[i] = len(p.asks)
		p.asks = append(p.asks, c)
	}
	return p
}

// nonceOf is the nonce of a new key. It differs, because stores tell the attempts of one transaction apart by it. It is
// always the same, because a claim whose outcome is unknown is repeated.
func nonceOf(n driver.Nonce) driver.Nonce {
	for i := range n {
		n[i] = ^n[i]
	}
	return n
}

// grant makes the grant of the i-th claim from the store's grants. If one of its records was acquired for nothing, end has
// to be written to that record. Nil = nothing.
func (p *plan) grant(i int, c *driver.Claim, grants []driver.Grant, keep time.Duration) (g driver.Grant, end *driver.Finish) {
	switch {
	case p.previous[i] < 0:
		return driver.Grant{
			Verdict: driver.Busy, Hold: driver.Hold{Key: c.Key}, Takeover: c.Takeover, Wait: collisionWait,
		}, nil
	case p.newKey[i] < 0:
		return grants[p.previous[i]], nil
	}
	return decide(grants[p.previous[i]], grants[p.newKey[i]], keep)
}

// decide is the table of two grants: p of the previous key, n of the new key.
//
//   - An unknown grant stays unknown, and keeps what it may hold: the same claims are repeated.
//   - If one is Busy both wait, because a duplicate is acked only when both records are terminal. The exception is a previous
//     key that failed, was parked or has another payload: only its dead letter is left of the message.
//   - Else the previous key's grant decides. The exception is a completed one with a new key that failed or was parked: the
//     worker that ended that one may have crashed before it wrote the dead letter.
//   - A record that was acquired next to a terminal one is completed with that one's result, or returned if it has none.
func decide(p, n driver.Grant, keep time.Duration) (g driver.Grant, end *driver.Finish) {
	pHeld, nHeld := p.Verdict == driver.Acquired, n.Verdict == driver.Acquired
	switch {
	case p.Err != nil:
		return p, nil
	case n.Err != nil:
		g = p
		g.Err = n.Err
		if pHeld && errors.Is(n.Err, driver.ErrUnreadable) {
			return g, unstarted(p.Hold, keep) // it is not asked for again
		}
		return g, nil
	case pHeld && nHeld:
		return both(p, n), nil
	case p.Verdict == driver.Busy && n.Verdict == driver.Busy:
		p.Wait = max(p.Wait, n.Wait)
		return p, nil
	case p.Verdict == driver.Busy && nHeld:
		return p, unstarted(n.Hold, keep)
	case p.Verdict == driver.Busy:
		return p, nil
	case n.Verdict == driver.Busy && pHeld:
		return n, unstarted(p.Hold, keep)
	case p.Verdict == driver.Replay && (n.Verdict == driver.Busy || n.Verdict == driver.Failed || n.Verdict == driver.Parked):
		return n, nil
	case nHeld && p.Verdict == driver.Replay:
		return p, completed(n.Hold, p.Result, keep)
	case nHeld && p.Verdict == driver.Late:
		return p, unstarted(n.Hold, keep) // nothing is known about the new key but this claim
	case nHeld && p.Verdict == driver.Parked && !n.Unknown:
		// The dead letter may be forgotten, or resolved for the previous key alone. Workers that know only the new key must see
		// the doubt too.
		return p, doubtful(n.Hold, keep)
	case nHeld:
		// It did not run. If a run of the new key crashed, it crashed for the previous key too, which counts it. Counted here as
		// well, it would block an operator who sends the message again.
		return p, idle(n.Hold, keep)
	case !pHeld:
		return p, nil
	case n.Verdict == driver.Replay:
		return n, completed(p.Hold, n.Result, keep)
	}
	return n, unstarted(p.Hold, keep)
}

// both is the grant of both records: the previous key's, with what only the new key's record knows.
func both(p, n driver.Grant) driver.Grant {
	g := p
	hold := n.Hold
	g.Hold.NewKey = &hold
	g.Attempt, g.Failures = max(p.Attempt, n.Attempt), max(p.Failures, n.Failures)
	g.Takeovers, g.Uncertainty = max(p.Takeovers, n.Takeovers), max(p.Uncertainty, n.Uncertainty)
	g.Takeover = max(p.Takeover, n.Takeover)
	// If the new key's policy is milder than the previous key's, no worker without the previous recipe ran this key: the
	// previous key's record knows of every run. An operator may have lifted the doubt there, and only there.
	g.Unknown = p.Unknown || n.Unknown && n.Takeover >= p.Takeover
	g.Redelivery = p.Redelivery || n.Redelivery
	return g
}

// unstarted returns a record as it was.
func unstarted(h driver.Hold, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Release, Ran: driver.Unstarted, Keep: keep}
}

// idle returns a new key as one whose run had no effect.
func idle(h driver.Hold, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Release, Ran: driver.NotApplied, Refund: true, Keep: keep}
}

// doubtful returns a new key with the doubt of its previous key.
func doubtful(h driver.Hold, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Release, Ran: driver.MaybeApplied, Refund: true, Keep: keep}
}

func completed(h driver.Hold, result []byte, keep time.Duration) *driver.Finish {
	return &driver.Finish{Hold: h, Final: driver.Complete, Keep: keep, Result: result, Reason: "completed under its other key"}
}

// apart splits the end of an attempt into those of the previous and the new key. Nil = it has no new key.
//
// A new key is never failed or parked: the dead letter has the previous key and its token, and reopens only that. The new
// key is returned with the doubt that the run left, so that a worker that only knows the new key asks the probe, or parks.
func apart(f driver.Finish) (previous driver.Finish, newKey *driver.Finish) {
	if f.Hold.NewKey == nil {
		return f, nil
	}
	n := f
	n.Hold, f.Hold.NewKey = *f.Hold.NewKey, nil
	switch f.Final {
	case driver.Complete:
	case driver.Release:
		n.Refund = true // failed runs are counted once
	default:
		ran := f.Ran
		if f.Final == driver.Park {
			ran = driver.MaybeApplied
		}
		if ran == driver.Unstarted || f.Compensated {
			ran = driver.NotApplied
		}
		n = driver.Finish{Hold: n.Hold, Final: driver.Release, Ran: ran, Refund: true, Keep: f.Keep, Reason: f.Reason}
	}
	return f, &n
}

// ok reports that a write is durable.
func ok(o driver.Outcome) bool {
	return o == driver.Applied || o == driver.Recovered || o == driver.Settled
}
