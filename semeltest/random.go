package semeltest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// past is one earlier attempt or claim of a key: late copies of its writes arrive at any time.
type past struct {
	holds  []driver.Hold
	nonces []driver.Nonce
}

// testRandom runs random histories on a few keys, each operation compared with the table. SEMEL_SEED repeats one.
func testRandom(t testing.TB, s StoreSetup) {
	seed := rand.Uint64()
	if v := os.Getenv("SEMEL_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("SEMEL_SEED: %v", err)
		}
		seed = n
	}
	rounds, waits := 60, 8
	switch {
	case s.Advance != nil && s.Sample > 1: // the same again on another layout
		rounds, waits = 150, 30
	case s.Advance != nil:
		rounds, waits = 600, 120
	}
	b := newBench(t, s)
	r := rand.New(rand.NewPCG(seed, 1))
	_, operator := driver.As[driver.Operator](s.Store)
	cells := make([]*cell, 16)
	pasts := make([]past, len(cells))
	for i := range cells {
		cells[i] = b.newCell("key " + strconv.Itoa(i))
		cells[i].fp = fpSame
	}
	for round := range rounds {
		kind := r.IntN(4)
		if kind == 3 && !operator {
			kind = 0
		}
		var on []*cell
		var qs []request
		for _, i := range r.Perm(len(cells))[:1+r.IntN(len(cells))] {
			on = append(on, cells[i])
			qs = append(qs, randomRequest(r, kind, cells[i], &pasts[i]))
		}
		b.do(on, qs)
		for _, c := range on {
			b.inspect(c)
		}
		for i, c := range cells {
			if p := &pasts[i]; len(p.holds) == 0 || p.holds[len(p.holds)-1] != c.held {
				p.holds = append(p.holds, c.held)
			}
		}
		// A short lease ends before the next request, because the model's clock stands still between waits.
		if anyShort(qs) || r.IntN(rounds) < waits/2 {
			b.wait()
		}
		if b.bad.total > 0 {
			b.bad.report(t)
			t.Fatalf("in round %d of SEMEL_SEED=%d", round, seed)
		}
	}
	t.Logf("%d rounds, SEMEL_SEED=%d", rounds, seed)
}

func anyShort(qs []request) bool {
	for _, q := range qs {
		if q.claim != nil && q.claim.Lease == short || q.finish != nil && q.finish.RetryAfter == short {
			return true
		}
	}
	return false
}

func pick[E any](r *rand.Rand, of ...E) E { return of[r.IntN(len(of))] }

func randomRequest(r *rand.Rand, kind int, c *cell, p *past) request {
	hold := c.held
	if n := len(p.holds); n > 0 && r.IntN(3) == 0 {
		hold = p.holds[r.IntN(n)]
	}
	switch kind {
	case 0:
		q := &driver.Claim{
			Key: c.key, Nonce: newNonce(), Fingerprint: pick(r, fpSame, fpSame, fpSame, fpOther, fpOlder, ""),
			BodyDigest: pick(r, c.body(""), c.body(""), c.body("other"), 0), WholeBody: r.IntN(2) == 0,
			DeliveryID: "delivery-" + strconv.Itoa(r.IntN(12)), Lease: pick(r, long, long, long, short),
			Takeover: pick(r, driver.Resume, driver.Resume, driver.Resume, driver.Probe, driver.Once),
		}
		if n := len(p.nonces); n > 0 && r.IntN(3) == 0 {
			q.Nonce = p.nonces[r.IntN(n)]
		}
		p.nonces = append(p.nonces, q.Nonce)
		return request{claim: q}
	case 1:
		return request{extend: &hold}
	case 2:
		f := &driver.Finish{
			Hold: hold, Final: pick(r, driver.Complete, driver.Fail, driver.Release, driver.Release, driver.Release, driver.Park),
			Ran: driver.Ran(r.IntN(3)), Refund: r.IntN(4) == 0, RetryAfter: pick(r, 0, 0, short, retry),
			Keep: keep, Result: []byte{byte(r.Uint32())}, Reason: own + strconv.Itoa(r.IntN(100)),
		}
		return request{finish: f}
	}
	o := &driver.Operation{
		Kind: driver.OperationKind(1 + r.IntN(5)), Key: c.key, Token: c.model.Token, Generation: c.model.Generation,
		As: pick(r, driver.Completed, driver.FailedState, driver.Released), Result: []byte("r"),
		Reason: own + "operator", Verified: r.IntN(2) == 0, NewGeneration: r.IntN(2) == 0, Keep: keep,
	}
	if r.IntN(20) == 0 {
		o.Kind = driver.Erase
	}
	switch r.IntN(5) {
	case 0:
		o.Token = hold.Token
	case 1:
		o.Token = 0
	case 2:
		o.Generation--
	}
	return request{operate: o}
}
