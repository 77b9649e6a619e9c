package dynamodb

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// fill completes n keys, those with an odd number with a longer retention, and leaves every hundredth abandoned.
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

// TestS1_33_SweepManyRecords sweeps 20,000 records (a part of them outside of nightly runs) every minute, as consumers do: a call
// reads few pages, one process of two does the pass, and no other pass begins before Options.SweepEvery has passed.
func TestS1_33_SweepManyRecords(t *testing.T) {
	n := 20000 / semeltest.Sampled(10) / 100 * 100 // one of a hundred is abandoned
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
	want := min(7, n/100)
	rs, err := r.Records(t.Context(), driver.RecordFilter{State: driver.Uncertain, Limit: 7})
	if err != nil || len(rs) != want {
		t.Errorf("%d abandoned records listed, %v", len(rs), err)
	}
	t.Logf("%d records, %d calls: %d pages, %.1f read units, %.0f write units", n, calls, once, read,
		r.Consumed().Writes+other.Consumed().Writes-began)
}

// ttlFixture is a store on a fake with the same clock, so that its time to live can delete records.
func ttlFixture(t *testing.T) *fixture {
	t.Helper()
	clock := awstest.Frozen(midday)
	fake := fakedynamodb.New(fakedynamodb.Options{Clock: clock, TTLLag: -1})
	r := &fixture{client: awsdynamodb.NewFromConfig(awstest.Config(fake)), fake: fake, clock: clock, ledger: "ledger", o: Options{Clock: clock.Now}}
	r.makeTables(t, "records", &r.o)
	r.Store = r.again(t, nil)
	return r
}

// TestFM40_ExpiredItemsStay: a record may stay in the table for days after its retention. Until it is deleted a completed
// one replays, a released one can be claimed again, and one with a live lease cannot be claimed.
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

// TestFM41_TTLPurgesNothingEarly: DynamoDB may delete a record from its TTL on, so the TTL is after its retention, and
// records that run or are uncertain have none.
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

// TestLaw10_SweepChecksAgain: a record that changes between the page and the delete stays. A holder of an abandoned claim
// that returns before the sweep writes goes on.
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
				t.Errorf("a holder that returns: %v, %v", out, err)
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

// TestFM12_AbandonedIsTakenOver: an operator releases an abandoned key, and its next token is greater.
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
		t.Fatalf("resolve returned %v, %v", o, err)
	}
	next := claimNow(t, r.again(t, nil), "k", 2)
	if next.Verdict != driver.Acquired || next.Hold.Token <= g.Hold.Token {
		t.Errorf("the key afterwards: %v with token %d, before it was %d", next.Verdict, next.Hold.Token, g.Hold.Token)
	}
	entries, err := r.Audit(t.Context(), driver.AuditFilter{Key: g.Hold.Key})
	if err != nil || len(entries) != 1 || entries[0].By != "ann" {
		t.Errorf("the audit log is %+v, %v", entries, err)
	}
}

// TestFM12_SweepWaitsForClocks: a record whose token is ahead of a tolerated clock is not purged yet, because a worker with
// that clock would draw a smaller token afterwards.
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
		t.Errorf("token %d after token %d", next.Hold.Token, g.Hold.Token)
	}
}

// dated adds the time of the service to responses, as DynamoDB does.
func dated(now func() time.Time) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(q)
			if err == nil {
				res.Header.Set("Date", now().UTC().Format(http.TimeFormat))
			}
			return res, err
		})
	}
}

// TestLaw10_SweepOfAClockAhead sweeps with clocks that are ahead by more than the tolerated skew, up to years: by them every
// retention has ended, but they purge and park nothing. A clock that is ahead within the skew sweeps.
func TestLaw10_SweepOfAClockAhead(t *testing.T) {
	r := newFixture(t, Options{})
	service := func() time.Time { return r.clock.Now() }
	at := func(ahead time.Duration) *Store {
		return r.again(t, func(o *Options) { o.Clock = func() time.Time { return r.clock.Now().Add(ahead) } }, dated(service))
	}
	done, live := claimOne(t, r.Store, claimOf("done"), driver.Acquired), claimOne(t, r.Store, claimOf("live"), driver.Acquired)
	finishOne(t, r.Store, completion(done), driver.Applied)
	for _, ahead := range []time.Duration{12 * time.Second, 3 * time.Hour, 5 * 365 * 24 * time.Hour} {
		if swept, more, err := at(ahead).Sweep(t.Context(), time.Hour, 0); swept != (driver.Swept{}) || more || err == nil ||
			!strings.Contains(err.Error(), "NTP") {
			t.Errorf("a clock that is %v ahead swept %+v, %v", ahead, swept, err)
		}
	}
	claimOne(t, r.Store, claimOf("done"), driver.Replay)
	if o, err := r.Extend(t.Context(), time.Minute, live.Hold); err != nil || o[0] != driver.Applied {
		t.Errorf("the running attempt got %v, %v", o, err)
	}
	r.clock.Advance(3 * time.Hour)
	for _, ahead := range []time.Duration{-time.Minute, 9 * time.Second} {
		if _, _, err := at(ahead).Sweep(t.Context(), time.Hour, 0); err != nil {
			t.Errorf("a clock that is %v ahead: %v", ahead, err)
		}
	}
	if rs, err := r.Records(t.Context(), driver.RecordFilter{}); err != nil || len(rs) != 1 || rs[0].State != driver.Uncertain {
		t.Errorf("afterwards there are %+v, %v; wanted the abandoned claim, parked", rs, err)
	}
}

// TestS1_33_SweepsAreNotPutOffForever: a process whose clock is a year ahead reserves a pass. The others do not wait for a
// year.
func TestS1_33_SweepsAreNotPutOffForever(t *testing.T) {
	r := newFixture(t, Options{SweepEvery: time.Hour})
	year := 365 * 24 * time.Hour
	wrong := awstest.Frozen(midday.Add(year))
	ahead := r.again(t, func(o *Options) { o.Clock = wrong.Now })
	due := func(s *Store, want bool) {
		t.Helper()
		r.clock.Advance(time.Second)
		wrong.Advance(time.Second)
		if got, err := s.sweepDue(t.Context()); err != nil || got != want {
			t.Errorf("a pass is due: %v, %v; wanted %v", got, err, want)
		}
	}
	due(ahead, true)
	due(r.Store, true)
	due(r.Store, false)
	due(r.again(t, nil), false)
	wrong.Advance(-year) // NTP puts it right
	due(ahead, false)
	r.clock.Advance(time.Hour + time.Minute)
	wrong.Advance(time.Hour + time.Minute)
	due(ahead, true)
	due(r.Store, false)
}
