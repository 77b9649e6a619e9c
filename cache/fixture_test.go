package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// behind is the store behind a cache: it counts calls and claims, fails on demand, and hides outcomes.
type behind struct {
	*memory.Store
	calls, claims int
	fail          error
	unknown       bool
	during        func() // a call, after it was decided
	history       uint64
}

func (b *behind) History() uint64 { return b.history }

func (b *behind) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	b.calls++
	b.claims += len(c)
	if b.fail != nil {
		return nil, b.fail
	}
	g, err := b.Store.Claim(ctx, c...)
	b.meanwhile()
	return g, err
}

func (b *behind) meanwhile() {
	if f := b.during; f != nil {
		b.during = nil
		f()
	}
}

func (b *behind) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	b.calls++
	out, err := b.Store.Finish(ctx, f...)
	if b.unknown {
		clear(out)
	}
	b.meanwhile()
	return out, err
}

func (b *behind) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	b.calls++
	b.claims += len(c)
	return b.Store.Begin(ctx, c...)
}

// fixture is a cache on a store that another process uses too.
type fixture struct {
	t      *testing.T
	clock  *clock
	behind *behind
	other  *memory.Store
	cache  driver.Store
	nonces uint64
}

func newFixture(t *testing.T, o cache.Options) *fixture {
	db, clock := openDB()
	r := &fixture{t: t, clock: clock, other: db.Store(), behind: &behind{Store: db.Store()}}
	o.Now = clock.now
	r.cache = cache.New(r.behind, o)
	return r
}

const (
	fp1  = driver.Fingerprint("body1")
	fp2  = driver.Fingerprint("body2")
	keep = time.Hour
)

func (r *fixture) ask(raw, id string, with ...func(*driver.Claim)) driver.Claim {
	r.nonces++
	c := driver.Claim{Key: driver.Key{Consumer: "c", Raw: raw}, Fingerprint: fp1, DeliveryID: id, Lease: time.Minute}
	binary.BigEndian.PutUint64(c.Nonce[:], r.nonces)
	for _, f := range with {
		f(&c)
	}
	return c
}

func (r *fixture) claim(s driver.Store, raw, id string, with ...func(*driver.Claim)) driver.Grant {
	r.t.Helper()
	g, err := s.Claim(r.t.Context(), r.ask(raw, id, with...))
	if err != nil || len(g) != 1 || g[0].Err != nil {
		r.t.Fatalf("claim %s: %+v, %v", raw, g, err)
	}
	return g[0]
}

func (r *fixture) finish(s driver.Store, f driver.Finish) driver.Outcome {
	r.t.Helper()
	if f.Keep == 0 {
		f.Keep = keep
	}
	out, err := s.Finish(r.t.Context(), f)
	if err != nil {
		r.t.Fatal(err)
	}
	return out[0]
}

// done claims and completes a key through the cache.
func (r *fixture) done(raw, id string, with ...func(*driver.Claim)) driver.Hold {
	r.t.Helper()
	g := r.claim(r.cache, raw, id, with...)
	if g.Verdict != driver.Acquired {
		r.t.Fatalf("claim of %s: %v", raw, g.Verdict)
	}
	if o := r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete, Result: []byte(raw)}); o != driver.Applied {
		r.t.Fatalf("complete %s: %v", raw, o)
	}
	return g.Hold
}

// hit wants a claim to be decided without the store, and as the store would. miss wants the claim to reach the store.
func (r *fixture) hit(raw, id string, with ...func(*driver.Claim)) {
	r.t.Helper()
	before := r.behind.claims
	got := r.claim(r.cache, raw, id, with...)
	if r.behind.claims != before {
		r.t.Errorf("claim of %s by %q asked the store: %v", raw, id, got.Verdict)
	}
	if want := r.claim(r.other, raw, id, with...); got.Verdict != want.Verdict || got.Hold != want.Hold ||
		!bytes.Equal(got.Result, want.Result) || got.Redelivery != want.Redelivery {
		r.t.Errorf("claim of %s by %q: the cache says %+v, the store %+v", raw, id, got, want)
	}
}

func (r *fixture) miss(want driver.Verdict, raw, id string, with ...func(*driver.Claim)) driver.Grant {
	r.t.Helper()
	before := r.behind.claims
	got := r.claim(r.cache, raw, id, with...)
	if r.behind.claims != before+1 || got.Verdict != want {
		r.t.Errorf("claim of %s by %q: %v with %d calls of the store, wanted %v with one",
			raw, id, got.Verdict, r.behind.claims-before, want)
	}
	return got
}

func payload(fp driver.Fingerprint) func(*driver.Claim) {
	return func(c *driver.Claim) { c.Fingerprint = fp }
}

func version(n int64) func(*driver.Claim) {
	return func(c *driver.Claim) { c.Version = driver.IntVersion(n) }
}
