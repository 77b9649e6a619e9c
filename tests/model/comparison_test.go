package model

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semel-dev/semel/driver"
)

// attempt is one that was acquired on both sides: the tokens differ, everything else is the same.
type attempt struct {
	key   driver.Key
	nonce driver.Nonce
	holds [2]driver.Hold
}

// comparison is what the random operations work on.
type comparison struct {
	t     *rapid.T
	sides [2]*side
	keys  []driver.Key
	past  []attempt
	last  [2]map[driver.Key]uint64 // the greatest token seen
	runs  int

	looked []driver.Claim // claims of keys without a record, for a commit

	nonces uint64
}

const (
	lease = time.Minute
	keep  = time.Hour
)

// compareWith runs random histories against the side that open makes anew for each.
func compareWith(t *testing.T, open func(rt *rapid.T) *side) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		w := &comparison{t: rt, sides: [2]*side{memorySide(), open(rt)}}
		for i := range w.last {
			w.last[i] = map[driver.Key]uint64{}
		}
		for i := range 20 { // more than what makes a transaction write its records at once
			w.keys = append(w.keys, driver.Key{Consumer: "model", Raw: fmt.Sprint("key-", i)})
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": w.claim, "finish": w.finish, "extend": w.extend, "commit": w.commit, "bring": w.bring, "transaction": w.transaction,
			"operate": w.operate, "advance": w.advance, "sweep": w.sweep, "steps": w.steps, "": w.same,
		})
	})
}

// both runs f on each side and returns both results.
func both[T any](w *comparison, what string, f func(s *side, i int) (T, error)) (out [2]T, errs [2]error) {
	for i, s := range w.sides {
		out[i], errs[i] = f(s, i)
	}
	if (errs[0] == nil) != (errs[1] == nil) {
		w.t.Fatalf("%s: memory returned %v, the other %v", what, errs[0], errs[1])
	}
	return out, errs
}

func (w *comparison) someKeys(label string) []driver.Key {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(w.keys), 1, len(w.keys), rapid.ID).Draw(w.t, label)
}

func (w *comparison) drawClaims(label string) []driver.Claim {
	var cs []driver.Claim
	for _, k := range w.someKeys(label) {
		c := driver.Claim{
			Key: k, Lease: lease, DeliveryID: rapid.SampledFrom([]string{"", "d1", "d2"}).Draw(w.t, "delivery"),
			Fingerprint: rapid.SampledFrom([]driver.Fingerprint{"", "rcp1a", "rcp1a", "rcp1b"}).Draw(w.t, "fingerprint"),
			BodyDigest:  rapid.SampledFrom([]driver.BodyDigest{0, 1<<56 | 7, 1<<56 | 8, 2<<56 | 7}).Draw(w.t, "body"),
			WholeBody:   rapid.Bool().Draw(w.t, "whole body"),
			Takeover:    rapid.SampledFrom([]driver.Takeover{driver.Resume, driver.Resume, driver.Probe, driver.Once}).Draw(w.t, "policy"),
		}
		w.drawVersion(&c)
		w.nonces++
		binary.BigEndian.PutUint64(c.Nonce[:], w.nonces)
		if old := w.attemptsOf(k); len(old) > 0 && rapid.IntRange(0, 3).Draw(w.t, "again") == 0 {
			c.Nonce = old[len(old)-1].nonce
		}
		cs = append(cs, c)
	}
	return cs
}

func (w *comparison) attemptsOf(k driver.Key) (all []attempt) {
	for _, a := range w.past {
		if a.key == k {
			all = append(all, a)
		}
	}
	return all
}

func (w *comparison) claim(rt *rapid.T) {
	w.t = rt
	cs := w.drawClaims("claimed")
	w.drawAtCommit(cs)
	gs, _ := both(w, "claim", func(s *side, _ int) ([]driver.Grant, error) { return s.Claim(rt.Context(), cs...) })
	w.granted(cs, gs)
}

// granted compares grants and remembers what was acquired.
func (w *comparison) granted(cs []driver.Claim, gs [2][]driver.Grant) {
	for i := range cs {
		a, b := gs[0][i], gs[1][i]
		if a.Err != nil || b.Err != nil {
			w.t.Fatalf("key %q: %v, %v", cs[i].Key.Raw, a.Err, b.Err)
		}
		if x, y := plainGrant(a), plainGrant(b); x != y {
			w.t.Fatalf("key %q: memory returned %s\nthe other  %s", cs[i].Key.Raw, x, y)
		}
		if (a.Wait - b.Wait).Abs() > lease/2 {
			w.t.Fatalf("key %q: wait %v, %v", cs[i].Key.Raw, a.Wait, b.Wait)
		}
		if a.Verdict != driver.Acquired || w.looksUp(cs[i], a, b) {
			continue
		}
		for side, g := range [2]driver.Grant{a, b} {
			if w.repeats(cs[i].Nonce, side, g.Hold) {
				continue
			}
			if last := w.last[side][cs[i].Key]; g.Hold.Token < last {
				w.t.Fatalf("key %q: token %d after %d on side %d", cs[i].Key.Raw, g.Hold.Token, last, side)
			}
			w.last[side][cs[i].Key] = g.Hold.Token
		}
		w.past = append(w.past, attempt{key: cs[i].Key, nonce: cs[i].Nonce, holds: [2]driver.Hold{a.Hold, b.Hold}})
	}
}

// repeats reports whether a claim with this nonce got this hold before. Sent again it gets the hold again, with its token, though
// a transaction that was rolled back saw a greater one meanwhile.
func (w *comparison) repeats(nonce driver.Nonce, side int, h driver.Hold) bool {
	for _, a := range w.past {
		if a.nonce == nonce && a.holds[side] == h {
			return true
		}
	}
	return false
}

// plainGrant is what does not depend on the store: no token, no time.
func plainGrant(g driver.Grant) string {
	return fmt.Sprintf("%v version %q gap %v gen %d epoch %d nonce %x attempt %d failures %d takeovers %d unknown %v/%d policy %v result %q reason %q disposed %v redelivery %v",
		g.Verdict, g.Hold.Version, g.Gap, g.Hold.Generation, g.Hold.Epoch, g.Hold.Nonce, g.Attempt, g.Failures, g.Takeovers, g.Unknown, g.Uncertainty,
		g.Takeover, g.Result, g.Reason, g.Disposed, g.Redelivery)
}

// someAttempts picks attempts of different keys, live and long gone.
func (w *comparison) someAttempts(rt *rapid.T) []attempt {
	if len(w.past) == 0 {
		rt.Skip("nothing was claimed")
	}
	w.t = rt
	var out []attempt
	for _, k := range w.someKeys("of keys") {
		if all := w.attemptsOf(k); len(all) > 0 {
			out = append(out, rapid.SampledFrom(all[max(0, len(all)-3):]).Draw(rt, "attempt"))
		}
	}
	if len(out) == 0 {
		rt.Skip("nothing was claimed")
	}
	return out
}

func (w *comparison) drawFinish() driver.Finish {
	w.runs++
	return driver.Finish{
		Final: rapid.SampledFrom([]driver.Final{driver.Complete, driver.Complete, driver.Fail, driver.Release, driver.Park}).Draw(w.t, "final"),
		Ran:   rapid.SampledFrom([]driver.Ran{driver.Unstarted, driver.NotApplied, driver.MaybeApplied}).Draw(w.t, "ran"),
		Keep:  keep, Refund: rapid.Bool().Draw(w.t, "refund"), Compensated: rapid.IntRange(0, 3).Draw(w.t, "compensated") == 0,
		RetryAfter: rapid.SampledFrom([]time.Duration{0, 10 * lease}).Draw(w.t, "retry"),
		Result:     rapid.SampledFrom([][]byte{nil, []byte("result")}).Draw(w.t, "result"),
		Reason:     rapid.SampledFrom([]string{"", "reason"}).Draw(w.t, "reason"),
	}
}

func (w *comparison) compare(what string, as []attempt, out [2][]driver.Outcome) {
	for i, a := range as {
		if out[0][i] != out[1][i] {
			w.t.Fatalf("%s of key %q: memory returned %v, the other %v", what, a.key.Raw, out[0][i], out[1][i])
		}
	}
}

func (w *comparison) finish(rt *rapid.T) {
	as := w.someAttempts(rt)
	fs := make([]driver.Finish, len(as))
	for i := range as {
		fs[i] = w.drawFinish()
	}
	out, _ := both(w, "finish", func(s *side, n int) ([]driver.Outcome, error) {
		mine := append([]driver.Finish(nil), fs...)
		for i := range mine {
			mine[i].Hold = as[i].holds[n]
		}
		return s.Finish(rt.Context(), mine...)
	})
	w.compare("finish", as, out)
}

func (w *comparison) extend(rt *rapid.T) {
	as := w.someAttempts(rt)
	out, _ := both(w, "extend", func(s *side, n int) ([]driver.Outcome, error) {
		holds := make([]driver.Hold, len(as))
		for i := range as {
			holds[i] = as[i].holds[n]
		}
		return s.Extend(rt.Context(), lease, holds...)
	})
	w.compare("extend", as, out)
}

func (w *comparison) commit(rt *rapid.T) {
	as := w.someAttempts(rt)
	fs := make([]driver.Finish, len(as))
	for i := range as {
		fs[i] = w.drawFinish()
		if rapid.IntRange(0, 2).Draw(rt, "plain") > 0 {
			fs[i].Final = driver.Complete
		}
	}
	culprit := rapid.IntRange(-2*len(as), len(as)-1).Draw(rt, "culprit")
	id := fmt.Sprint("commit-", w.runs)
	out, errs := both(w, "commit", func(s *side, n int) ([]driver.Outcome, error) {
		works := make([]driver.Work, len(as))
		for i := range as {
			works[i].Finish = fs[i]
			works[i].Finish.Hold = as[i].holds[n]
			works[i].Effects = s.buffer([]string{id + as[i].key.Raw, id}, i == culprit)
		}
		return s.Commit(rt.Context(), works...)
	})
	if errs[0] == nil {
		w.compare("commit", as, out)
		return
	}
	for _, err := range errs {
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != culprit {
			rt.Fatalf("commit returned %v, wanted item %d refused", err, culprit)
		}
	}
}

// transaction claims, runs and commits a part of it, or rolls back.
func (w *comparison) transaction(rt *rapid.T) {
	w.t = rt
	cs := w.drawClaims("begun")
	var txs [2]driver.Tx
	gs, _ := both(w, "begin", func(s *side, n int) (g []driver.Grant, err error) {
		txs[n], g, err = s.Begin(rt.Context(), cs...)
		if tx := txs[n]; tx != nil { // a failing comparison must not leave it open: it holds locks
			rt.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		}
		return g, err
	})
	before := len(w.past)
	w.granted(cs, gs)
	held := w.past[before:]
	rollback := rapid.IntRange(0, 3).Draw(rt, "rollback") == 0
	var run []attempt
	var fs []driver.Finish
	for _, a := range held {
		if rapid.IntRange(0, 3).Draw(rt, "skip") > 0 {
			f := w.drawFinish()
			f.Final = driver.Complete
			run, fs = append(run, a), append(fs, f)
		}
	}
	id := fmt.Sprint("tx-", w.runs)
	_, _ = both(w, "transaction", func(s *side, n int) (struct{}, error) {
		if txs[n] == nil {
			return struct{}{}, nil
		}
		works := make([]driver.Work, len(run))
		for i, a := range run {
			works[i].Finish = fs[i]
			works[i].Finish.Hold = a.holds[n]
			if err := s.addTx(rt.Context(), txs[n], id+a.key.Raw); err != nil {
				return struct{}{}, err
			}
		}
		if rollback {
			return struct{}{}, txs[n].Rollback(rt.Context())
		}
		return struct{}{}, txs[n].Commit(rt.Context(), works...)
	})
}

func (w *comparison) operate(rt *rapid.T) {
	as := w.someAttempts(rt)
	a := as[0]
	op := driver.Operation{
		Kind: rapid.SampledFrom([]driver.OperationKind{driver.Resolve, driver.Redrive, driver.Discard, driver.ForceRelease}).Draw(rt, "operation"),
		Key:  a.key, Generation: a.holds[0].Generation, As: rapid.SampledFrom([]driver.State{driver.Completed, driver.FailedState, driver.Released}).Draw(rt, "as"),
		Keep: keep, Reason: "operator", By: rapid.SampledFrom([]string{"", "ann"}).Draw(rt, "by"), Result: []byte("by hand"), NewGeneration: rapid.Bool().Draw(rt, "rerun"), Verified: rapid.Bool().Draw(rt, "verified"),
	}
	named := rapid.Bool().Draw(rt, "token")
	out, _ := both(w, "operate", func(s *side, n int) (driver.Outcome, error) {
		mine := op
		if named {
			mine.Token = a.holds[n].Token
		}
		_, o, err := s.Operate(rt.Context(), mine)
		return o, err
	})
	if out[0] != out[1] {
		rt.Fatalf("operate on key %q: memory returned %v, the other %v", a.key.Raw, out[0], out[1])
	}
}

func (w *comparison) advance(rt *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{2 * lease, 11 * lease, keep + lease}).Draw(rt, "by")
	for _, s := range w.sides {
		if err := s.advance(d); err != nil {
			rt.Fatal(err)
		}
	}
}

func (w *comparison) sweep(rt *rapid.T) {
	w.t = rt
	horizon := rapid.SampledFrom([]time.Duration{0, keep}).Draw(rt, "horizon")
	out, _ := both(w, "sweep", func(s *side, _ int) (driver.Swept, error) {
		sum, more, err := s.Sweep(rt.Context(), horizon, 0)
		if more {
			err = errors.Join(err, errors.New("more"))
		}
		return sum, err
	})
	if out[0] != out[1] {
		rt.Fatalf("sweep: memory returned %+v, the other %+v", out[0], out[1])
	}
}

// same compares everything that is stored: records and effects.
func (w *comparison) same(rt *rapid.T) {
	var stored [2]map[driver.Key]driver.Record
	for i, s := range w.sides {
		rs, err := s.Records(rt.Context(), driver.RecordFilter{})
		if err != nil {
			rt.Fatal(err)
		}
		stored[i] = map[driver.Key]driver.Record{}
		for _, r := range rs {
			stored[i][r.Key] = r
		}
	}
	for _, k := range w.keys {
		var text [2]string
		for i := range text {
			r, found := stored[i][k]
			text[i] = fmt.Sprintf("%v %v gen %d epoch %d nonce %x spent %v policy %v attempt %d failures %d takeovers %d unknown %v/%d fp %q body %x reason %q disposed %v deliveries %q watermark %q",
				found, r.State, r.Generation, r.Epoch, r.Nonce, r.Spent, r.Takeover, r.Attempt, r.Failures, r.Takeovers, r.Unknown,
				r.Uncertainty, r.Fingerprint, r.BodyDigest, r.Reason, r.Disposed, r.Deliveries, driver.AppendWatermark(nil, &r.Watermark))
			if r.State == driver.Completed {
				text[i] += fmt.Sprintf(" result %q", r.Result)
			}
			if r.State == driver.InProgress {
				text[i] += fmt.Sprintf(" lease %v beat %d", r.Lease, r.Beat)
			}
		}
		if text[0] != text[1] {
			rt.Fatalf("key %q:\nmemory    %s\nthe other %s", k.Raw, text[0], text[1])
		}
	}
	var effects [2]map[string]int
	for i, s := range w.sides {
		var err error
		if effects[i], err = s.count(rt.Context()); err != nil {
			rt.Fatal(err)
		}
	}
	if fmt.Sprint(effects[0]) != fmt.Sprint(effects[1]) {
		rt.Fatalf("effects: memory has %v, the other %v", effects[0], effects[1])
	}
	w.sameAudit(rt)
}
