package keymigration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Options has the values of the claims and ends that this package writes by itself.
type Options struct {
	// Keep is how long records are kept; Lease is how long a claim lasts.
	Keep, Lease time.Duration
}

var errShort = errors.New("store returned fewer items than it was asked for")

// New wraps a store. [driver.As] finds a Committer and a Transactor if inner is one. Ask inner for other interfaces that
// write. Completions that commit with effects, messages or acks need a Transactor: see [Together].
func New(inner driver.Store, o Options) driver.Store {
	s := &store{inner: inner, o: o}
	s.committer, _ = driver.As[driver.Committer](inner)
	s.tx, _ = driver.As[driver.Transactor](inner)
	return s
}

// Together reports that a store can complete two records, with effects, messages and acks, in one atomic write.
func Together(s driver.Store) bool {
	_, yes := driver.As[driver.Transactor](s)
	return yes
}

type store struct {
	inner     driver.Store
	committer driver.Committer  // nil: the store commits nothing with records
	tx        driver.Transactor // nil: the store has no transactions
	o         Options
}

// Unwrap returns the store that keeps the records.
func (s *store) Unwrap() any { return s.inner }

// Features is that of the store, without claims at commits.
func (s *store) Features() driver.StoreFeatures {
	f := s.inner.Features()
	f.ClaimsAtCommit = false // a commit brings one claim, and there are two
	return f
}

// Claim asks for both records of every claim in one round trip. A claim is Acquired when both are. A second round trip ends
// the records that were acquired for nothing. Until that succeeds the verdict is unknown.
func (s *store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if !anyMigrating(c) {
		return s.inner.Claim(ctx, c...)
	}
	p := planOf(c)
	grants, err := s.inner.Claim(ctx, p.asks...)
	if err == nil && len(grants) != len(p.asks) {
		err = errShort
	}
	if err != nil {
		return nil, fmt.Errorf("claim two keys a message: %w", err)
	}
	out := make([]driver.Grant, len(c))
	var ends []driver.Finish
	var of []int
	for i := range c {
		var end *driver.Finish
		if out[i], end = p.grant(i, &c[i], grants, s.o.Keep); end != nil {
			ends, of = append(ends, *end), append(of, i)
		}
	}
	if len(ends) > 0 {
		s.settle(ctx, ends, of, out)
	}
	return out, nil
}

// settle ends the records that were acquired for nothing. If the outcome of that write is unknown, so is the claim: it is
// repeated with the same nonce, finds what is left of it, and is decided again.
func (s *store) settle(ctx context.Context, ends []driver.Finish, of []int, out []driver.Grant) {
	done, err := s.inner.Finish(ctx, ends...)
	if err == nil && len(done) != len(ends) {
		err = errShort
	}
	for j, i := range of {
		switch {
		case err != nil:
			out[i].Err = fmt.Errorf("end the claim of its other key: %w", err)
		case ok(done[j]), done[j] == driver.Lost && ends[j].Final == driver.Release:
		default:
			out[i].Err = fmt.Errorf("end the claim of its other key: %s", done[j])
		}
	}
}

func anyMigrating(c []driver.Claim) bool {
	for i := range c {
		if c[i].NewKey != (driver.Key{}) {
			return true
		}
	}
	return false
}

// Extend renews both leases of an attempt. It is Lost when one of them is, unless the previous key is completed already.
func (s *store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	all := make([]driver.Hold, len(h), 2*len(h))
	for i := range h {
		all[i] = h[i]
		all[i].NewKey = nil
	}
	for i := range h {
		if h[i].NewKey != nil {
			all = append(all, *h[i].NewKey)
		}
	}
	if len(all) == len(h) {
		return s.inner.Extend(ctx, lease, h...)
	}
	out, err := s.inner.Extend(ctx, lease, all...)
	if err == nil && len(out) != len(all) {
		err = errShort
	}
	if err != nil {
		return nil, fmt.Errorf("extend two leases an attempt: %w", err)
	}
	at := len(h)
	for i := range h {
		if h[i].NewKey == nil {
			continue
		}
		if n := out[at]; out[i] == driver.Applied && (n == driver.Lost || n == driver.Unknown) {
			out[i] = n
		}
		at++
	}
	return out[:len(h)], nil
}

// Finish ends attempts. A new key is completed after its previous key, in a round trip of its own: a worker that lost the
// previous key completes neither. Releases of new keys go with those of their previous keys. The outcome is Applied only if
// both are. Otherwise it is Unknown, to be repeated, or Lost, if another attempt has the new key: a redelivery finds the
// previous key, and waits for the new one.
func (s *store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	x := split(f)
	if x.newKeys == 0 {
		return s.inner.Finish(ctx, f...)
	}
	out, err := s.inner.Finish(ctx, append(x.previous, x.back...)...)
	if err == nil && len(out) != len(f)+len(x.back) {
		err = errShort
	}
	if err != nil {
		return nil, fmt.Errorf("end attempts with two keys: %w", err)
	}
	x.released(out[len(f):], out)
	out = out[:len(f)]
	return out, s.complete(ctx, &x, out)
}

// parts has the ends of attempts, split by key.
type parts struct {
	previous []driver.Finish // all, in their order
	// back has the new keys that are returned, done those that are completed. The indexes are those of their previous keys.
	back, done     []driver.Finish
	backOf, doneOf []int
	newKeys        int
}

func split(f []driver.Finish) parts {
	x := parts{previous: make([]driver.Finish, len(f), 2*len(f))}
	for i := range f {
		var n *driver.Finish
		x.previous[i], n = apart(f[i])
		switch {
		case n == nil:
			continue
		case n.Final == driver.Complete:
			x.done, x.doneOf = append(x.done, *n), append(x.doneOf, i)
		default:
			x.back, x.backOf = append(x.back, *n), append(x.backOf, i)
		}
		x.newKeys++
	}
	return x
}

// released makes an end unknown if the release of its new key is. A new key that another attempt has is returned already.
func (x *parts) released(newKeys, out []driver.Outcome) {
	for j, i := range x.backOf {
		if newKeys[j] == driver.Unknown {
			out[i] = driver.Unknown
		}
	}
}

// complete completes the new keys whose previous keys are completed.
func (s *store) complete(ctx context.Context, x *parts, out []driver.Outcome) error {
	var fs []driver.Finish
	var at []int
	for j, i := range x.doneOf {
		if ok(out[i]) {
			fs, at = append(fs, x.done[j]), append(at, i)
		}
	}
	if len(fs) == 0 {
		return nil
	}
	done, err := s.inner.Finish(ctx, fs...)
	if err == nil && len(done) != len(fs) {
		err = errShort
	}
	var lost []driver.Finish
	var lostAt []int
	for j, i := range at {
		switch {
		case err != nil:
			out[i] = driver.Unknown
		case done[j] == driver.Lost:
			lost, lostAt = append(lost, fs[j]), append(lostAt, i)
		case !ok(done[j]):
			out[i] = done[j]
		}
	}
	if err != nil {
		return fmt.Errorf("complete the second key: %w", err)
	}
	return s.again(ctx, lost, lostAt, out)
}

// again completes new keys that were lost while their previous keys were not: another worker took them over, and found the
// previous key held or parked. If another attempt holds the new key the end is Lost: no ack, so that it is redelivered. The
// message of a parked previous key was acked when it was parked: it is not redelivered, and its late completion stands.
func (s *store) again(ctx context.Context, lost []driver.Finish, at []int, out []driver.Outcome) error {
	if len(lost) == 0 {
		return nil
	}
	claims := make([]driver.Claim, len(lost))
	for j := range lost {
		claims[j] = s.afresh(lost[j].Hold.Key)
	}
	grants, err := s.inner.Claim(ctx, claims...)
	if err == nil && len(grants) != len(claims) {
		err = errShort
	}
	var fs []driver.Finish
	var fsAt []int
	for j, i := range at {
		switch {
		case err != nil || grants[j].Err != nil:
			out[i] = driver.Unknown
		case grants[j].Verdict == driver.Acquired, grants[j].Verdict == driver.Parked: // by this very claim, perhaps: late truth wins
			lost[j].Hold = grants[j].Hold
			fs, fsAt = append(fs, lost[j]), append(fsAt, i)
		case grants[j].Verdict != driver.Replay && out[i] != driver.Recovered:
			out[i] = driver.Lost
		}
	}
	if err != nil || len(fs) == 0 {
		return err
	}
	done, err := s.inner.Finish(ctx, fs...)
	for j, i := range fsAt { // the repetition claims and completes those without an outcome
		if err != nil || j >= len(done) || !ok(done[j]) {
			out[i] = driver.Unknown
		}
	}
	return err
}

// afresh claims a new key for an attempt that lost it, and is to complete it. If the completion fails, no worker may run it.
func (s *store) afresh(newKey driver.Key) driver.Claim {
	c := driver.Claim{Key: newKey, Lease: s.o.Lease, Takeover: driver.Once}
	_, _ = rand.Read(c.Nonce[:]) // never fails
	return c
}
