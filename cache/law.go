package cache

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file has the law: which grants are kept, and which claims hit them.

// entry is a verdict of the store for one key.
type entry struct {
	key     driver.Key
	version driver.Version     // of the claim
	fp      driver.Fingerprint // of the claim: only equal ones hit
	body    driver.BodyDigest  // likewise
	grant   driver.Grant       // Replay or Stale
	expires time.Time
	// retained: expires is before the end of the record's retention, which is known because this process completed it.
	retained bool
	// deliveries are IDs that ended with this verdict, the latest last.
	deliveries []delivery
}

type delivery struct {
	id         string
	redelivery bool // according to the store
}

// mostDeliveries is the maximum length of entry.deliveries.
const mostDeliveries = 8

// overhead is the approximate cost of an entry in addition to its texts: node, map slot, slice.
const overhead = 512

func (e *entry) cost() int64 {
	n := overhead + len(e.key.Consumer) + len(e.key.Tenant) + len(e.key.Raw) + len(e.version) + len(e.fp) +
		len(e.grant.Result) + len(e.grant.Reason)
	for _, d := range e.deliveries {
		n += len(d.id) + 32
	}
	return int64(n)
}

// run is an attempt that this process was granted. The later Replay is made from the claim's grant.
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

// call is a call of the store: when it began, and cache.changes at that time.
type call struct {
	at      time.Time
	changes uint64
}

func (c *cache) begin() call {
	c.lock()
	defer c.mu.Unlock()
	return call{c.o.Now(), c.changes}
}

// responded records whether the store responded. While it does not, no claim hits, so that the engine's probe during an outage
// reaches the store.
func (c *cache) responded(err error) {
	c.lock()
	defer c.mu.Unlock()
	c.down = err != nil
}

// lookup decides the claims that hit. out is nil if there are none. rest are the indexes of the others.
func (c *cache) lookup(claims []driver.Claim) (out []driver.Grant, rest []int, a call) {
	c.lock()
	defer c.mu.Unlock()
	a = call{c.o.Now(), c.changes}
	for i := range claims {
		g, ok := c.hit(&claims[i], a.at)
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

// hit returns the grant for a claim that hits an entry: the same version and fingerprint, not too old, not the attempt's own
// claim, and of a delivery that ended here before, or (Strangers) may have.
func (c *cache) hit(q *driver.Claim, now time.Time) (g driver.Grant, ok bool) {
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

// claimed learns from the store's grants.
func (c *cache) claimed(a call, claims []driver.Claim, grants []driver.Grant, err error) {
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
			if g.Hold.Token == 0 { // claimed at its commit, which draws a token that is not known here
				delete(c.runs, q.Key)
				continue
			}
			if c.runs[q.Key].grant.Hold != g.Hold { // else it is repeated, and the record keeps what the first one said
				c.remember(q.Key, run{*g, q.Fingerprint, q.BodyDigest, q.DeliveryID, a.at})
			}
		case g.OtherPayload: // with another fingerprint it may be a mismatch
		case g.Verdict == driver.Replay && g.Hold.Version == q.Version, g.Verdict == driver.Stale:
			c.keepGrant(a, q, g)
		case g.Verdict == driver.Mismatch:
		default:
			c.forget(q.Key)
		}
	}
}

// remember keeps a run. If there are too many, it forgets the oldest.
func (c *cache) remember(k driver.Key, r run) {
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

// keepGrant keeps the store's grant for a duplicate, unless it is out of date: from before an operation, or from before an
// attempt that this process knows.
func (c *cache) keepGrant(a call, q *driver.Claim, g *driver.Grant) {
	if a.changes != c.changes || c.runs[q.Key].grant.Hold.Token > g.Hold.Token {
		return
	}
	e := &entry{key: q.Key, version: q.Version, fp: q.Fingerprint, body: q.BodyDigest, grant: *g, expires: a.at.Add(c.o.MaxAge)}
	if n := c.kept.nodes[q.Key]; n != nil {
		if n.grant.Hold.Token > g.Hold.Token {
			return
		}
		if n.version == e.version && n.fp == e.fp && n.body == e.body && n.grant.Hold == g.Hold && n.grant.Verdict == g.Verdict {
			e.deliveries = n.deliveries
			if n.retained { // the known retention stays valid
				e.expires, e.retained = n.expires, true
			}
		}
	}
	e.saw(q.DeliveryID, g.Redelivery)
	c.kept.put(q.Key, e, e.cost())
}

// saw adds a delivery that ended with this verdict.
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
func (c *cache) worked(a call, w []driver.Work, outcome func(i int) driver.Outcome) {
	c.lock()
	defer c.mu.Unlock()
	for i := range w {
		c.finished(a, &w[i].Finish, outcome(i))
	}
}

// finished learns from the end of an attempt. It keeps only an applied completion by the attempt that this process was
// granted: a duplicate gets the grant of that claim with the result.
func (c *cache) finished(a call, f *driver.Finish, o driver.Outcome) {
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
	if o != driver.Applied || f.Final != driver.Complete || a.changes != c.changes {
		return
	}
	e := &entry{key: k, version: r.grant.Hold.Version, fp: r.fp, body: r.body, grant: r.grant, expires: a.at.Add(c.o.MaxAge), retained: true}
	if end := r.claimed.Add(f.Keep); end.Before(e.expires) {
		e.expires = end // the completion was applied some time after the claim, and its retention counts from there
	}
	g := &e.grant
	g.Verdict, g.Unknown, g.Result = driver.Replay, false, f.Result
	g.Reason, g.Trace = driver.CutTrace(f.Reason)
	e.saw(r.id, true)
	c.kept.put(k, e, e.cost())
}
