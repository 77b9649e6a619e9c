package longterm

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

const (
	keepLong = 400 * 24 * time.Hour
	keep     = time.Hour
	lease    = time.Minute
)

// rig is a store with a tier before it, and a clock that moves when it is told to.
type rig struct {
	t      testing.TB
	at     atomic.Int64
	db     *memory.DB
	lt     *lt
	tier   *Tier
	store  driver.Store
	nonces uint64
}

// lt is the store's tier with faults.
type lt struct {
	*memory.Store
	fail    error
	before  func() // a lookup
	looks   int
	blind   bool // scans of what is recent see nothing
	scanned int
}

func (l *lt) Remembered(ctx context.Context, k ...driver.Key) ([]driver.Digest, error) {
	l.looks++
	if l.before != nil {
		l.before()
	}
	if l.fail != nil {
		return nil, l.fail
	}
	return l.Store.Remembered(ctx, k...)
}

func (l *lt) ScanDigests(ctx context.Context, recent bool, each func(driver.DigestHash, time.Time) error) error {
	if l.scanned++; l.fail != nil {
		return l.fail
	}
	if recent && l.blind {
		return nil
	}
	return l.Store.ScanDigests(ctx, recent, each)
}

func newRig(t testing.TB, o Options) *rig {
	r := &rig{t: t}
	r.at.Store(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano())
	r.db = memory.Open(memory.WithClock(r.now))
	r.lt = &lt{Store: r.db.Store()}
	o.Consumers, o.Keep, o.Retention, o.Now = []string{"c"}, keepLong, keep, r.now
	if o.Wall == nil {
		o.Wall = r.now
	}
	r.tier = NewTier(r.lt, o)
	r.store = New(r.lt.Store, r.tier)
	if err := r.tier.Remember(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) now() time.Time          { return time.Unix(0, r.at.Load()).UTC() }
func (r *rig) advance(d time.Duration) { r.at.Add(int64(d)) }

func (r *rig) ask(raw, id string) driver.Claim {
	r.nonces++
	c := driver.Claim{Key: driver.Key{Consumer: "c", Raw: raw}, DeliveryID: id, Lease: lease}
	binary.BigEndian.PutUint64(c.Nonce[:], r.nonces)
	return c
}

func (r *rig) send(s driver.Store, c driver.Claim) driver.Grant {
	r.t.Helper()
	g, err := s.Claim(r.t.Context(), c)
	if err != nil || len(g) != 1 {
		r.t.Fatalf("claim of %s: %+v, %v", c.Key.Raw, g, err)
	}
	return g[0]
}

func (r *rig) want(v driver.Verdict, raw, id string) driver.Grant {
	r.t.Helper()
	g := r.send(r.store, r.ask(raw, id))
	if g.Err != nil || g.Verdict != v {
		r.t.Fatalf("claim of %s by %q: %v (%v), wanted %v", raw, id, g.Verdict, g.Err, v)
	}
	return g
}

func (r *rig) finish(h driver.Hold, f driver.Final) {
	r.t.Helper()
	out, err := r.store.Finish(r.t.Context(), driver.Finish{Hold: h, Final: f, Keep: keep, Ran: driver.MaybeApplied})
	if err != nil || out[0] != driver.Applied {
		r.t.Fatalf("%v of %s: %v, %v", f, h.Key.Raw, out, err)
	}
}

func (r *rig) sweep() driver.Swept {
	r.t.Helper()
	s, _, err := r.lt.Sweep(r.t.Context(), 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// gone lets all records' retentions end, and the records go.
func (r *rig) gone() {
	r.advance(keep + time.Second)
	r.sweep()
	r.advance(driver.DigestOverlap + time.Second)
	r.sweep()
}

func (r *rig) ready() {
	r.t.Helper()
	if err := r.tier.fill(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) operate(op driver.Operation) driver.Record {
	r.t.Helper()
	op.Keep = keep
	rec, o, err := r.lt.Operate(r.t.Context(), op)
	if err != nil || o != driver.Applied {
		r.t.Fatalf("%v: %v, %v", op.Kind, o, err)
	}
	return rec
}

// TestFM41_LateDuplicateIsSetAside: a copy that comes after the record is gone is parked, whatever the end of the key was,
// and stays so until a person decides.
func TestFM41_LateDuplicateIsSetAside(t *testing.T) {
	for _, ready := range []bool{false, true} {
		r := newRig(t, Options{})
		r.finish(r.want(driver.Acquired, "done", "m1").Hold, driver.Complete)
		r.finish(r.want(driver.Acquired, "failed", "m2").Hold, driver.Fail)
		r.finish(r.want(driver.Acquired, "doubt", "m3").Hold, driver.Release)
		r.gone()
		if ready {
			r.ready()
		}
		for raw, says := range map[string]string{"done": "was completed on 2026-01-02", "failed": "failed for good", "doubt": "in doubt"} {
			g := r.want(driver.Parked, raw, "late")
			if !strings.Contains(g.Reason, says) || g.Hold.Token == 0 {
				t.Errorf("%s: parked with %+v, wanted %q", raw, g, says)
			}
			again := r.want(driver.Parked, raw, "later")
			if again.Hold.Token != g.Hold.Token {
				t.Errorf("%s: the letter of the next copy is another: token %d, %d before", raw, again.Hold.Token, g.Hold.Token)
			}
			if rec, _, _ := r.lt.Record(t.Context(), g.Hold.Key); rec.State != driver.Uncertain || !rec.Unknown {
				t.Errorf("%s: the record is %+v", raw, rec)
			}
		}
		r.finish(r.want(driver.Acquired, "new", "m4").Hold, driver.Complete)
		if s := r.tier.Stats(); s.Hits != 3 || ready != (s.Skipped == 1) || s.FalsePositives != 0 {
			t.Errorf("ready %v: %+v", ready, s)
		}
	}
}

// TestResolveLateDuplicate: each decision of a person ends it, and "retry" lets the message that was sent again run.
func TestResolveLateDuplicate(t *testing.T) {
	r := newRig(t, Options{})
	for _, raw := range []string{"completed", "failed", "retry"} {
		r.finish(r.want(driver.Acquired, raw, "m").Hold, driver.Complete)
	}
	r.gone()
	for _, x := range []struct {
		raw  string
		as   driver.State
		want driver.Verdict
	}{
		{"completed", driver.Completed, driver.Replay}, {"failed", driver.FailedState, driver.Failed},
		{"retry", driver.Released, driver.Acquired},
	} {
		g := r.want(driver.Parked, x.raw, "late")
		r.operate(driver.Operation{
			Kind: driver.Resolve, Key: g.Hold.Key, Token: g.Hold.Token, Generation: g.Hold.Generation, As: x.as,
		})
		r.want(x.want, x.raw, "redrive-1")
		if x.want == driver.Acquired {
			// It dies without a word, and the broker hands the same message out again.
			r.advance(lease + time.Second)
			g = r.want(driver.Acquired, x.raw, "redrive-1")
			r.finish(g.Hold, driver.Complete)
			r.want(driver.Replay, x.raw, "late")
		}
	}
	// A copy of the redrive's own message that comes when all is over is a late duplicate too, also after a claim of it that
	// nobody looked at.
	r.gone()
	r.want(driver.Acquired, "unlooked", "x")
	if g := r.send(r.lt.Store, r.ask("retry", "redrive-1")); g.Verdict != driver.Acquired {
		t.Fatalf("claimed behind the tier: %v", g.Verdict)
	}
	r.advance(lease + time.Second)
	r.want(driver.Parked, "retry", "redrive-1")
}

// TestUnansweredLook: without an answer to the look, or to the parking, the claim is unknown; the same one again is decided.
func TestUnansweredLook(t *testing.T) {
	r := newRig(t, Options{})
	r.finish(r.want(driver.Acquired, "done", "m1").Hold, driver.Complete)
	r.gone()
	c := r.ask("done", "late")
	r.lt.fail = errors.New("no answer")
	if g := r.send(r.store, c); g.Err == nil {
		t.Fatalf("a look without an answer: %+v", g)
	}
	r.lt.fail = nil
	if g := r.send(r.store, c); g.Verdict != driver.Parked || g.Err != nil {
		t.Errorf("the same claim again: %+v", g)
	}
	// The parking finds that somebody else has the key by now.
	r.finish(r.want(driver.Acquired, "other", "m1").Hold, driver.Complete)
	r.gone()
	r.lt.before = func() {
		r.lt.before = nil
		r.advance(lease + time.Second)
		if g := r.send(r.lt.Store, r.ask("other", "x")); g.Verdict != driver.Acquired {
			t.Fatalf("taking over: %v", g.Verdict)
		}
	}
	if g := r.send(r.store, r.ask("other", "late")); g.Err == nil {
		t.Errorf("parked what another has: %+v", g)
	}
}

// TestRememberedKeysInTransactions: an open transaction is begun anew without the keys that are remembered.
func TestRememberedKeysInTransactions(t *testing.T) {
	r := newRig(t, Options{})
	tx, ok := driver.As[driver.Transactor](r.store)
	if !ok {
		t.Fatal("the tier hides the store's transactions")
	}
	for _, raw := range []string{"a", "b"} {
		r.finish(r.want(driver.Acquired, raw, "m").Hold, driver.Complete)
	}
	r.gone()
	r.finish(r.want(driver.Acquired, "replayed", "m").Hold, driver.Complete)
	claims := []driver.Claim{r.ask("new1", "1"), r.ask("a", "2"), r.ask("replayed", "3"), r.ask("new2", "4"), r.ask("b", "5")}
	x, grants, err := tx.Begin(t.Context(), claims...)
	if err != nil {
		t.Fatal(err)
	}
	want := []driver.Verdict{driver.Acquired, driver.Parked, driver.Replay, driver.Acquired, driver.Parked}
	var works []driver.Work
	for i, g := range grants {
		if g.Verdict != want[i] || g.Err != nil {
			t.Errorf("claim %d: %v (%v), wanted %v", i, g.Verdict, g.Err, want[i])
		}
		if g.Verdict == driver.Acquired {
			works = append(works, driver.Work{Finish: driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep}})
		}
	}
	if err := x.Commit(t.Context(), works...); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"new1", "new2"} {
		r.want(driver.Replay, raw, "again")
	}
	// All of them remembered: no transaction is left.
	r.finish(r.want(driver.Acquired, "c", "m").Hold, driver.Complete)
	r.gone()
	if x, grants, err := tx.Begin(t.Context(), r.ask("c", "late")); x != nil || err != nil || grants[0].Verdict != driver.Parked {
		t.Errorf("only remembered keys: %v, %+v, %v", x, grants, err)
	}
	r.lt.fail = errors.New("no answer")
	if _, _, err := tx.Begin(t.Context(), r.ask("new3", "1")); err == nil {
		t.Error("a transaction whose look was not answered was begun")
	}
}

// TestFilterIsBelievedForAWhile: a filter saves looks while it was refreshed in time; it answers "perhaps" to everything
// before it is filled, when it was not refreshed, and when it missed announcements.
func TestFilterIsBelievedForAWhile(t *testing.T) {
	r := newRig(t, Options{})
	looks := func(raw string) int {
		before := r.lt.looks
		r.want(driver.Acquired, raw, "m")
		return r.lt.looks - before
	}
	if looks("1") != 1 {
		t.Error("a filter that was not filled was believed")
	}
	r.ready()
	if looks("2") != 0 {
		t.Error("a filled filter saved no look")
	}
	r.advance(Trust)
	if looks("3") != 1 {
		t.Error("a filter that was not refreshed was believed")
	}
	if err := r.tier.refresh(t.Context()); err != nil || looks("4") != 1 || !r.tier.stale() {
		t.Errorf("a filter that missed announcements was believed (%v)", err)
	}
	r.ready()
	for i := range 10 {
		r.advance(Trust - time.Second)
		if err := r.tier.refresh(t.Context()); err != nil || looks("5"+string(rune('a'+i))) != 0 {
			t.Errorf("a filter that is refreshed saved no look (%v)", err)
		}
	}
	r.lt.fail = errors.New("no answer")
	if r.tier.refresh(t.Context()) == nil {
		t.Error("a refresh without an answer is none")
	}
	r.lt.fail = nil
	r.advance(Trust)
	if looks("6") != 1 {
		t.Error("a filter whose refresh failed was believed")
	}
}
