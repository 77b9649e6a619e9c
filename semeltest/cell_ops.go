package semeltest

import (
	"crypto/sha256"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// op is one operation under test.
type op struct {
	name     string
	operator bool
	atCommit bool // it needs StoreFeatures.ClaimsAtCommit
	step     step
}

// operations are all operations that are tried on each state.
func operations() []op {
	all := claimOps()
	for _, h := range holds() {
		all = append(all, op{name: "extend, " + h.name, step: step{make: func(c *cell) request {
			hold := h.pick(c)
			return request{extend: &hold}
		}}})
		for _, f := range finals() {
			all = append(all, op{name: f.name + ", " + h.name, step: step{make: func(c *cell) request {
				g := f.Finish
				g.Hold, g.Keep, g.Reason = h.pick(c), c.keep, own+"last"
				return request{finish: &g}
			}}})
		}
	}
	return append(append(all, operatorOps()...), atCommitOps()...)
}

// atCommitOps are claims that only look for a record, and commits that bring such claims.
func atCommitOps() []op {
	var all []op
	for _, fp := range []driver.Fingerprint{fpSame, fpOther, ""} {
		for _, mine := range []bool{true, false} {
			claim := func(c *cell) *driver.Claim {
				q := &driver.Claim{
					Key: c.key, Nonce: newNonce(), Fingerprint: fp, BodyDigest: c.body(""), DeliveryID: "delivery-4", Lease: later,
					AtCommit: true,
				}
				if mine {
					q.Nonce = c.held.Nonce
				}
				return q
			}
			name := fmt.Sprintf("fingerprint %q, own nonce %v", fp, mine)
			all = append(all,
				op{name: "claim at commit, " + name, atCommit: true, step: step{make: func(c *cell) request {
					return request{claim: claim(c)}
				}}},
				op{name: "commit with its claim, " + name, atCommit: true, step: step{make: func(c *cell) request {
					q := claim(c)
					hold := driver.Hold{Key: c.key, Generation: 1, Nonce: q.Nonce}
					return request{insert: &driver.Work{Claim: q, Finish: driver.Finish{
						Hold: hold, Final: driver.Complete, Keep: c.keep, Result: []byte("result-5"), Reason: own + "last",
					}}}
				}}})
		}
	}
	return all
}

func claimOps() []op {
	var all []op
	fps := []struct {
		name string
		fp   driver.Fingerprint
	}{{"same", fpSame}, {"differs", fpOther}, {"other recipe", fpOlder}, {"none", ""}}
	for _, p := range []driver.Takeover{driver.Resume, driver.Probe, driver.Once} {
		for i, f := range fps {
			for _, mine := range []bool{true, false} {
				name := fmt.Sprintf("claim by %v, fingerprint %s, own nonce %v", p, f.name, mine)
				all = append(all, op{name: name, step: step{make: func(c *cell) request {
					q := &driver.Claim{Key: c.key, Nonce: newNonce(), Fingerprint: f.fp, BodyDigest: c.body(""), Lease: later, Takeover: p}
					q.DeliveryID = []string{"delivery-1", "delivery-3"}[i%2]
					if mine {
						q.Nonce = c.held.Nonce
					}
					return request{claim: q}
				}}})
			}
		}
	}
	return append(all, bodyOps()...)
}

type holdKind struct {
	name string
	pick func(c *cell) driver.Hold
}

// holds relates the writer to the record: every token with every nonce, and another generation.
func holds() []holdKind {
	all := []holdKind{{"other generation", func(c *cell) driver.Hold {
		h := c.held
		h.Generation++
		return h
	}}}
	for i, token := range []string{"older token", "my token", "newer token"} {
		for _, mine := range []bool{true, false} {
			all = append(all, holdKind{fmt.Sprintf("%s, own nonce %v", token, mine), func(c *cell) driver.Hold {
				h := c.held
				h.Token += uint64(i)
				h.Token--
				if !mine {
					h.Nonce = newNonce()
				}
				return h
			}})
		}
	}
	return all
}

type namedFinish struct {
	name string
	driver.Finish
}

func finals() []namedFinish {
	all := []namedFinish{
		{"complete", driver.Finish{Final: driver.Complete, Result: []byte("result-3")}},
		{"fail", driver.Finish{Final: driver.Fail}},
		{"park", driver.Finish{Final: driver.Park}},
	}
	for ran, name := range []string{"unstarted", "not applied", "maybe applied"} {
		f := driver.Finish{Final: driver.Release, Ran: driver.Ran(ran), RetryAfter: retry}
		all = append(all, namedFinish{"release " + name, f})
		f.Refund, f.RetryAfter = true, 0
		all = append(all, namedFinish{"release with refund " + name, f})
	}
	return all
}

func operatorOps() []op {
	kinds := []struct {
		name string
		driver.Operation
	}{
		{"resolve as completed", driver.Operation{Kind: driver.Resolve, As: driver.Completed, Result: []byte("result-4")}},
		{"resolve as failed", driver.Operation{Kind: driver.Resolve, As: driver.FailedState}},
		{"resolve as released", driver.Operation{Kind: driver.Resolve, As: driver.Released}},
		{"redrive", driver.Operation{Kind: driver.Redrive}},
		{"redrive, verified, edited", driver.Operation{Kind: driver.Redrive, Verified: true, Fingerprint: fpOther}},
		{"redrive to a new generation", driver.Operation{Kind: driver.Redrive, NewGeneration: true}},
		{"discard", driver.Operation{Kind: driver.Discard}},
		{"force release", driver.Operation{Kind: driver.ForceRelease}},
		{"reopen", driver.Operation{Kind: driver.Reopen}},
		{"erase", driver.Operation{Kind: driver.Erase}},
	}
	var all []op
	for _, k := range kinds {
		for _, token := range []string{"its token", "older token", "newer token", "no token", "generation before"} {
			all = append(all, op{operator: true, name: k.name + ", " + token, step: step{make: func(c *cell) request {
				o := k.Operation
				o.Key, o.Keep, o.Reason, o.Token, o.Generation = c.key, c.keep, own+"last", c.model.Token, c.model.Generation
				switch token {
				case "older token":
					o.Token--
				case "newer token":
					o.Token++
				case "no token":
					o.Token = 0
				case "generation before":
					o.Generation--
				}
				return request{operate: &o}
			}}})
		}
	}
	return all
}

// body is the digest of a body that is sent under the cell's key. It differs for every key, so that a store that mixes
// them up is found.
func (c *cell) body(name string) driver.BodyDigest {
	return driver.NewBodyDigest(1, sha256.Sum256([]byte(c.key.Raw+" "+name)))
}

// bodyOps are claims with another body than the record's, or an unknown one.
func bodyOps() []op {
	var all []op
	for _, f := range []struct {
		name  string
		fp    driver.Fingerprint
		whole bool
	}{{"none", "", false}, {"of the body", fpSame, true}, {"of the body, other recipe", fpOlder, true}, {"other recipe", fpOlder, false}} {
		for _, body := range []string{"other", "unknown"} {
			name := fmt.Sprintf("claim with body %s, fingerprint %s", body, f.name)
			all = append(all, op{name: name, step: step{make: func(c *cell) request {
				q := &driver.Claim{Key: c.key, Nonce: newNonce(), Fingerprint: f.fp, WholeBody: f.whole, Lease: later}
				if body == "other" {
					q.BodyDigest = c.body(body)
				}
				return request{claim: q}
			}}})
		}
	}
	return all
}
