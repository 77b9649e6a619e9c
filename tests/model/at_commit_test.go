package model

import (
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/semel-dev/semel/driver"
)

// drawAtCommit has some of the claims without versions made at their commit.
func (w *comparison) drawAtCommit(cs []driver.Claim) {
	for i := range cs {
		cs[i].AtCommit = cs[i].Version == "" && rapid.IntRange(0, 2).Draw(w.t, "at commit") == 0
	}
}

// looksUp reports grants of a claim whose key has no record yet, and remembers it for a commit.
func (w *comparison) looksUp(c driver.Claim, a, b driver.Grant) bool {
	if (a.Hold.Token == 0) != (b.Hold.Token == 0) || a.Hold.Token == 0 && !c.AtCommit {
		w.t.Fatalf("key %q: memory granted token %d, the other %d", c.Key.Raw, a.Hold.Token, b.Hold.Token)
	}
	if a.Hold.Token > 0 {
		return false
	}
	w.looked = append(w.looked, c)
	return true
}

// bring commits works with their claims. Some were committed before, some keys have a record of another attempt by now, and
// some of the works hold their records.
func (w *comparison) bring(rt *rapid.T) {
	if len(w.looked) == 0 {
		rt.Skip("no key was looked up")
	}
	w.t = rt
	var claims []driver.Claim
	keys := map[driver.Key]bool{}
	for range rapid.IntRange(1, 20).Draw(rt, "claims") {
		c := rapid.SampledFrom(w.looked[max(0, len(w.looked)-30):]).Draw(rt, "brought")
		if !keys[c.Key] {
			keys[c.Key], claims = true, append(claims, c)
		}
	}
	culprit := rapid.IntRange(-2*len(claims), len(claims)-1).Draw(rt, "culprit")
	var held []attempt // in transactions of their own, perhaps: with a culprit it would be open what of them was committed
	if culprit < 0 && len(w.past) > 0 && rapid.Bool().Draw(rt, "among others") {
		for _, a := range w.someAttempts(rt) {
			if !keys[a.key] {
				held = append(held, a)
			}
		}
	}
	var ends []driver.Finish
	for range len(claims) + len(held) {
		ends = append(ends, w.drawFinish())
		ends[len(ends)-1].Final = driver.Complete
	}
	out, errs := both(w, "commit with claims", func(s *side, n int) ([]driver.Outcome, error) {
		works := make([]driver.Work, len(ends))
		for i := range works {
			works[i].Finish = ends[i]
			if i >= len(claims) {
				works[i].Finish.Hold = held[i-len(claims)].holds[n]
				continue
			}
			c := claims[i]
			works[i].Claim, works[i].Finish.Hold = &c, driver.Hold{Key: c.Key, Generation: 1, Nonce: c.Nonce}
			works[i].Effects = s.buffer([]string{fmt.Sprintf("brought-%x", c.Nonce)}, i == culprit)
		}
		return s.Commit(rt.Context(), works...)
	})
	for _, err := range errs {
		var item *driver.ItemError
		if err != nil && (!errors.As(err, &item) || item.Index != culprit) {
			rt.Fatalf("commit with claims returned %v, wanted item %d refused", err, culprit)
		}
	}
	for i := range out[0] {
		if out[0][i] != out[1][i] {
			rt.Fatalf("commit %d of %d claims and %d holds: memory returned %v, the other %v", i, len(claims), len(held), out[0][i], out[1][i])
		}
	}
}
