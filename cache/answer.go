package cache

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is the law: what is kept, and what is answered from it.

// entry is what the store said of one key.
type entry struct {
	key     driver.Key
	version driver.Version     // that was claimed
	fp      driver.Fingerprint // that was claimed: the answer is for this one alone
	body    driver.BodyDigest  // likewise
	grant   driver.Grant       // Replay or Stale
	expires time.Time
	// retained: expires is before the end of the record's retention, because this process completed it and knows.
	retained bool
	// deliveries are ids that ended at this answer, the latest last.
	deliveries []delivery
}

type delivery struct {
	id         string
	redelivery bool // what the store said
}

// mostDeliveries bounds entry.deliveries.
const mostDeliveries = 8

// overhead is about what an entry costs beside its texts: node, map slot, slice.
const overhead = 512

func (e *entry) cost() int64 {
	n := overhead + len(e.key.Consumer) + len(e.key.Tenant) + len(e.key.Raw) + len(e.version) + len(e.fp) +
		len(e.grant.Result) + len(e.grant.Reason)
	for _, d := range e.deliveries {
		n += len(d.id) + 32
	}
	return int64(n)
}

// run is an attempt that this process was granted: what its completion will be answered with is in the claim's grant.
type run struct {
	grant   driver.Grant
	fp      driver.Fingerprint
	body    driver.BodyDigest
	id      string
	claimed time.Time // before the claim was sent
}

type started struct {
	key   driver.Key
	token uint64
}

// asked is a call of the store under way: when it began, and how many acts of operators there were before it.
type asked struct {
	at   time.Time
	acts uint64
}

func (c *cache) begin() asked {
	c.lock()
	defer c.mu.Unlock()
	return asked{c.o.Now(), c.acts}
}

// asked notes whether the store answered: while it does not, claims are not answered for it, so that the engine's probe of
// an outage finds out.
func (c *cache) asked(err error) {
	c.lock()
	defer c.mu.Unlock()
	c.down = err != nil
}

// lookup answers the claims that the cache may answer. out is nil when there are none; rest are the places of the others.
func (c *cache) lookup(claims []driver.Claim) (out []driver.Grant, rest []int, a asked) {
	c.lock()
	defer c.mu.Unlock()
	a = asked{c.o.Now(), c.acts}
	for i := range claims {
		g, ok := c.answer(&claims[i], a.at)
		switch {
		case ok && out == nil:
			out = make([]driver.Grant, len(claims))
			for j := range i {
				rest = append(rest, j)
			}
			out[i] = g
		case ok:
			out[i] = g
		case out != nil:
			rest = append(rest, i)
		}
	}
	return out, rest, a
}

// answer decides whether an entry answers a claim: the same version and fingerprint, not too old, not the attempt's own
// claim, and of a delivery that ended here before, or (Strangers) may have.
func (c *cache) answer(q *driver.Claim, now time.Time) (g driver.Grant, ok bool) {
	n := c.kept.nodes[q.Key]
	if n != nil && !now.Before(n.expires) {
		c.kept.remove(n)
		n = nil
	}
	if n == nil || c.down || n.version != q.Version || n.fp != q.Fingerprint || n.body != q.BodyDigest || n.grant.Hold.Nonce == q.Nonce ||
		driver.IsRedrive(q.DeliveryID) {
		c.misses++
		return g, false
	}
	redelivery, known := n.knows(q.DeliveryID)
	if !known && q.DeliveryID != "" && !c.o.Strangers {
		c.misses++
		return g, false
	}
	c.hits++
	c.kept.used(n)
	g = n.grant
	g.Redelivery = redelivery
	return g, true
}

// claimed learns from the answers of the store.
func (c *cache) claimed(a asked, claims []driver.Claim, grants []driver.Grant, err error) {
	c.lock()
	defer c.mu.Unlock()
	if c.down = err != nil; err != nil || len(grants) != len(claims) {
		return
	}
	for i := range claims {
		q, g := &claims[i], &grants[i]
		switch {
		case g.Err != nil:
		case g.Verdict == driver.Acquired:
			c.forget(q.Key)
			c.note(q.Key, run{*g, q.Fingerprint, q.BodyDigest, q.DeliveryID, a.at})
		case g.OtherPayload: // with another fingerprint asked for it may be a mismatch
		case g.Verdict == driver.Replay && g.Hold.Version == q.Version, g.Verdict == driver.Stale:
			c.keepAnswer(a, q, g)
		case g.Verdict == driver.Mismatch:
		default:
			c.forget(q.Key)
		}
	}
}

// note remembers a run; of too many the oldest is forgotten.
func (c *cache) note(k driver.Key, r run) {
	c.runs[k] = r
	c.order = append(c.order, started{k, r.grant.Hold.Token})
	for len(c.order) > 0 {
		first := c.order[0]
		if c.runs[first.key].grant.Hold.Token == first.token {
			if len(c.order) <= c.mostRuns {
				break
			}
			delete(c.runs, first.key)
		}
		c.order = c.order[1:]
	}
}

func (c *cache) forget(k driver.Key) {
	if n := c.kept.nodes[k]; n != nil {
		c.kept.remove(n)
	}
}

// keepAnswer keeps what the store answered to a duplicate. An answer from before an operator's act, or from before an
// attempt that this process knows of, came too late.
func (c *cache) keepAnswer(a asked, q *driver.Claim, g *driver.Grant) {
	if a.acts != c.acts || c.runs[q.Key].grant.Hold.Token > g.Hold.Token {
		return
	}
	e := &entry{key: q.Key, version: q.Version, fp: q.Fingerprint, body: q.BodyDigest, grant: *g, expires: a.at.Add(c.o.MaxAge)}
	if n := c.kept.nodes[q.Key]; n != nil {
		if n.grant.Hold.Token > g.Hold.Token {
			return
		}
		if n.version == e.version && n.fp == e.fp && n.body == e.body && n.grant.Hold == g.Hold && n.grant.Verdict == g.Verdict {
			e.deliveries = n.deliveries
			if n.retained { // what is known of its retention stays true; the age is the answer's that told it
				e.expires, e.retained = n.expires, true
			}
		}
	}
	e.saw(q.DeliveryID, g.Redelivery)
	c.kept.put(q.Key, e, e.cost())
}

// saw notes a delivery that ended here.
func (e *entry) saw(id string, redelivery bool) {
	if _, known := e.knows(id); known || id == "" {
		return
	}
	d := e.deliveries
	if len(d) == mostDeliveries {
		d = d[1:]
	}
	e.deliveries = append(d[:len(d):len(d)], delivery{id, redelivery})
}

// worked learns from a commit.
func (c *cache) worked(a asked, w []driver.Work, outcome func(i int) driver.Outcome) {
	c.lock()
	defer c.mu.Unlock()
	for i := range w {
		c.finished(a, &w[i].Finish, outcome(i))
	}
}

// finished learns from the end of an attempt. Only a completion that was applied, by the very attempt that this process
// was granted, is kept: what a duplicate will be answered is the grant of its claim with the result.
func (c *cache) finished(a asked, f *driver.Finish, o driver.Outcome) {
	k := f.Hold.Key
	if o == driver.Unknown {
		return
	}
	r, known := c.runs[k]
	if !known || r.grant.Hold != f.Hold {
		return
	}
	delete(c.runs, k)
	c.forget(k)
	if o != driver.Applied || f.Final != driver.Complete || a.acts != c.acts {
		return
	}
	e := &entry{key: k, version: r.grant.Hold.Version, fp: r.fp, body: r.body, grant: r.grant, expires: a.at.Add(c.o.MaxAge), retained: true}
	if end := r.claimed.Add(f.Keep); end.Before(e.expires) {
		e.expires = end // a completion that is repeated was applied some time after the claim: its retention counts from there
	}
	g := &e.grant
	g.Verdict, g.Unknown, g.Result, g.Reason = driver.Replay, false, f.Result, f.Reason
	e.saw(r.id, true)
	c.kept.put(k, e, e.cost())
}
