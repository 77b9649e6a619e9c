package dynamodb

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/driver"
)

// fill completes n keys, those with an odd number to be kept for longer, and leaves every hundredth abandoned.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	const batch = 1000
	for from := 0; from < n; from += batch {
		var cs []driver.Claim
		for i := from; i < min(n, from+batch); i++ {
			cs = append(cs, driver.Claim{
				Key: driver.Key{Consumer: "fill", Raw: fmt.Sprint(i)}, Nonce: driver.Nonce{1, byte(i), byte(i >> 8)}, Lease: time.Minute,
			})
		}
		gs, err := s.Claim(t.Context(), cs...)
		if err != nil {
			t.Fatal(err)
		}
		var fs []driver.Finish
		for i, g := range gs {
			if (from+i)%100 == 0 {
				continue
			}
			keep := time.Hour
			if (from+i)%2 == 1 {
				keep = 1000 * time.Hour
			}
			fs = append(fs, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep, Result: make([]byte, 200)})
		}
		if _, err := s.Finish(t.Context(), fs...); err != nil {
			t.Fatal(err)
		}
	}
}

// scans counts the pages that were read.
type scans struct {
	mu sync.Mutex
	n  int
}

func (c *scans) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Amz-Target") == "DynamoDB_20120810.Scan" {
			c.mu.Lock()
			c.n++
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// TestS1_33_SweepManyRecords sweeps 20,000 records by the minute, as consumers do: a call reads few pages, one process of
// two does the pass, and nobody begins another before Options.SweepEvery has passed.
func TestS1_33_SweepManyRecords(t *testing.T) {
	n := 20000
	if testing.Short() {
		n = 2000
	}
	var pages scans
	r := newFixture(t, Options{SweepEvery: 6 * time.Hour}, pages.count)
	other := r.again(t, nil, pages.count)
	fill(t, r.Store, n)
	r.clock.Advance(24 * time.Hour)
	before, began := r.Consumed().Reads+other.Consumed().Reads, r.Consumed().Writes+other.Consumed().Writes
	var sum driver.Swept
	calls, most := 0, 0
	for range 120 {
		for _, s := range []*Store{r.Store, other} {
			for more := true; more; calls++ {
				at := pages.n
				swept, again, err := s.Sweep(t.Context(), time.Hour, 1000)
				if err != nil {
					t.Fatal(err)
				}
				sum.Purged, sum.Abandoned, more = sum.Purged+swept.Purged, sum.Abandoned+swept.Abandoned, again
				most = max(most, pages.n-at)
			}
		}
		r.clock.Advance(time.Minute)
	}
	once := pages.n
	read := r.Consumed().Reads + other.Consumed().Reads - before
	if want := (driver.Swept{Purged: n/2 - n/100, Abandoned: n / 100}); sum != want {
		t.Errorf("swept %+v, wanted %+v", sum, want)
	}
	if most > sweepPages || once > 16 {
		t.Errorf("one call read %d pages, all of them %d: wanted %d at most in one, and one pass over some 14 MB", most, once, sweepPages)
	}
	rs, err := r.Records(t.Context(), driver.RecordFilter{State: driver.Uncertain, Limit: 7})
	if err != nil || len(rs) != 7 {
		t.Errorf("%d abandoned records listed, %v", len(rs), err)
	}
	t.Logf("%d records, %d calls: %d pages, %.1f read units, %.0f write units", n, calls, once, read,
		r.Consumed().Writes+other.Consumed().Writes-began)
}

// ttlFixture is a store on a fake that goes by the same clock, so that its time to live can delete records.
func ttlFixture(t *testing.T) *fixture {
	t.Helper()
	clock := awstest.Frozen(midday)
	fake := fakedynamodb.New(fakedynamodb.Options{Clock: clock, TTLLag: -1})
	r := &fixture{client: awsdynamodb.NewFromConfig(awstest.Config(fake)), fake: fake, clock: clock, ledger: "ledger", o: Options{Clock: clock.Now}}
	r.makeTables(t, "records", &r.o)
	r.Store = r.again(t, nil)
	return r
}

// TestFM40_ExpiredItemsStay: what is past its retention may lie in the table for days. Until it is gone it is a record, and replays;
// a released one is claimed again; and none can be claimed whose lease lasts.
func TestFM40_ExpiredItemsStay(t *testing.T) {
	r := ttlFixture(t)
	done, back := claimNow(t, r, "done", 1), claimNow(t, r, "back", 2)
	endNow(t, r, driver.Finish{Hold: done.Hold, Final: driver.Complete, Keep: time.Hour, Result: []byte("x")}, driver.Applied)
	endNow(t, r, driver.Finish{Hold: back.Hold, Final: driver.Release, Ran: driver.NotApplied, Keep: time.Hour}, driver.Applied)
	r.clock.Advance(48 * time.Hour)
	if g := claimNow(t, r, "done", 3); g.Verdict != driver.Replay || string(g.Result) != "x" {
		t.Errorf("a completed key that TTL has not deleted yet: %v", g.Verdict)
	}
	if g := claimNow(t, r, "back", 4); g.Verdict != driver.Acquired {
		t.Errorf("a released key that TTL has not deleted yet: %v", g.Verdict)
	}
	if deleted := r.fake.DeleteExpired(); deleted != 1 {
		t.Errorf("TTL deleted %d items, wanted the completed one alone: the other is running", deleted)
	}
	g := claimNow(t, r, "done", 5)
	if g.Verdict != driver.Acquired || g.Hold.Token <= done.Hold.Token {
		t.Errorf("after TTL: %v with token %d, before it was %d", g.Verdict, g.Hold.Token, done.Hold.Token)
	}
}

// TestFM41_TTLPurgesNothingEarly: DynamoDB may delete a record from its TTL on, so that lies behind its retention, and
// what runs or is uncertain has none.
func TestFM41_TTLPurgesNothingEarly(t *testing.T) {
	r := ttlFixture(t)
	running, parked, done := claimNow(t, r, "running", 1), claimNow(t, r, "parked", 2), claimNow(t, r, "done", 3)
	endNow(t, r, driver.Finish{Hold: parked.Hold, Final: driver.Park, Keep: time.Hour}, driver.Applied)
	endNow(t, r, driver.Finish{Hold: done.Hold, Final: driver.Complete, Keep: time.Hour}, driver.Applied)
	for _, step := range []struct {
		by   time.Duration
		gone int
	}{{time.Hour - time.Second, 0}, {time.Second, 0}, {r.Store.o.TTLSlack + 2*time.Second, 1}, {365 * 24 * time.Hour, 0}} {
		r.clock.Advance(step.by)
		if deleted := r.fake.DeleteExpired(); deleted != step.gone {
			t.Errorf("after %v more TTL deleted %d items, wanted %d", step.by, deleted, step.gone)
		}
	}
	for _, h := range []driver.Hold{running.Hold, parked.Hold} {
		if _, ok, err := r.Record(t.Context(), h.Key); !ok || err != nil {
			t.Errorf("record of key %q: found %v, %v", h.Key.Raw, ok, err)
		}
	}
}

// TestLaw10_SweepChecksAgain: between the page and the delete the record changes; it stays. And a claim that was abandoned,
// and comes back before the sweep writes, goes on.
func TestLaw10_SweepChecksAgain(t *testing.T) {
	var fresh *Store
	var once sync.Once
	between := func() {}
	r := newFixture(t, Options{}, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(q)
			if q.Header.Get("X-Amz-Target") == "DynamoDB_20120810.Scan" {
				between()
			}
			return res, err
		})
	})
	fresh = r.again(t, nil)
	back, lost := claimNow(t, fresh, "back", 1), claimNow(t, fresh, "lost", 2)
	endNow(t, fresh, driver.Finish{Hold: back.Hold, Final: driver.Release, Ran: driver.NotApplied, Keep: time.Hour}, driver.Applied)
	r.clock.Advance(3 * time.Hour)
	between = func() {
		once.Do(func() {
			if g := claimNow(t, fresh, "back", 3); g.Verdict != driver.Acquired {
				t.Errorf("a released key: %v", g.Verdict)
			}
			if out, err := fresh.Extend(context.WithoutCancel(t.Context()), time.Minute, lost.Hold); err != nil || out[0] != driver.Applied {
				t.Errorf("a holder that comes back: %v, %v", out, err)
			}
		})
	}
	if swept, _, err := r.Sweep(t.Context(), time.Hour, 0); err != nil || swept != (driver.Swept{}) {
		t.Errorf("swept %+v, %v; wanted nothing: both changed meanwhile", swept, err)
	}
	for _, raw := range []string{"back", "lost"} {
		rec, ok, err := fresh.Record(t.Context(), driver.Key{Consumer: "c", Raw: raw})
		if err != nil || !ok || rec.State != driver.InProgress {
			t.Errorf("key %q is %v, %v afterwards", raw, rec.State, err)
		}
	}
}

// TestFM12_StrandedIsTakenOver: an operator gives an abandoned key back, and its next token is greater.
func TestFM12_AbandonedIsTakenOver(t *testing.T) {
	r := newFixtureAt(t, awstest.Frozen(midday), Options{})
	g := claimNow(t, r, "k", 1)
	r.clock.Advance(30 * 24 * time.Hour)
	if swept, more, err := r.Sweep(t.Context(), 14*24*time.Hour, 10); err != nil || more || swept.Abandoned != 1 {
		t.Fatalf("swept %+v, %v", swept, err)
	}
	op := driver.Operation{
		Kind: driver.Resolve, Key: g.Hold.Key, Token: g.Hold.Token, Generation: 1, As: driver.Released, Keep: time.Hour, By: "ann",
	}
	if _, o, err := r.Operate(t.Context(), op); err != nil || o != driver.Applied {
		t.Fatalf("resolve answered %v, %v", o, err)
	}
	next := claimNow(t, r.again(t, nil), "k", 2)
	if next.Verdict != driver.Acquired || next.Hold.Token <= g.Hold.Token {
		t.Errorf("the key afterwards: %v with token %d, before it was %d", next.Verdict, next.Hold.Token, g.Hold.Token)
	}
	trail, err := r.Audit(t.Context(), driver.AuditFilter{Key: g.Hold.Key})
	if err != nil || len(trail) != 1 || trail[0].By != "ann" {
		t.Errorf("the trail is %+v, %v", trail, err)
	}
}

// TestFM12_SweepWaitsForClocks: a record whose token is ahead of a clock that is allowed to be behind is not purged yet: who
// goes by that clock would hand out a smaller token afterwards.
func TestFM12_SweepWaitsForClocks(t *testing.T) {
	r := newFixture(t, Options{})
	off := func(d time.Duration) func(o *Options) {
		return func(o *Options) { o.Clock = func() time.Time { return r.clock.Now().Add(d) } }
	}
	ahead, behind := r.again(t, off(4*time.Second)), r.again(t, off(-5*time.Second))
	g := claimNow(t, ahead, "k", 1)
	endNow(t, ahead, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: time.Millisecond}, driver.Applied)
	r.clock.Advance(5 * time.Second)
	if swept, _, err := r.Sweep(t.Context(), 0, 0); err != nil || swept.Purged != 0 {
		t.Errorf("swept %+v, %v: its token is ahead of a clock that is 5 s behind", swept, err)
	}
	r.clock.Advance(r.Store.o.skew())
	if swept, _, err := r.Sweep(t.Context(), 0, 0); err != nil || swept.Purged != 1 {
		t.Errorf("swept %+v, %v; wanted the record", swept, err)
	}
	if next := claimNow(t, behind, "k", 2); next.Hold.Token <= g.Hold.Token {
		t.Errorf("token %d came after token %d", next.Hold.Token, g.Hold.Token)
	}
}
