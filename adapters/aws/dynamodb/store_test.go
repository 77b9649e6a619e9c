package dynamodb

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/driver"
)

func newNonce() (n driver.Nonce) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

func claimOf(raw string) driver.Claim {
	return driver.Claim{Key: driver.Key{Consumer: "orders", Raw: raw}, Nonce: newNonce(), Lease: time.Minute}
}

func claimOne(t testing.TB, s *Store, c driver.Claim, want driver.Verdict) driver.Grant {
	t.Helper()
	g, err := s.Claim(t.Context(), c)
	if err != nil || g[0].Err != nil || g[0].Verdict != want {
		t.Fatalf("claim of key %q answered %+v, %v; wanted %v", c.Key.Raw, g, err, want)
	}
	return g[0]
}

func finishOne(t testing.TB, s *Store, f driver.Finish, want driver.Outcome) {
	t.Helper()
	o, err := s.Finish(t.Context(), f)
	if err != nil || o[0] != want {
		t.Fatalf("finish (%v) of key %q answered %v, %v; wanted %v", f.Final, f.Hold.Key.Raw, o, err, want)
	}
}

func completion(g driver.Grant) driver.Finish {
	return driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: time.Hour, Result: []byte("result of " + g.Hold.Key.Raw)}
}

// withEffect completes a grant with one addition to the ledger.
func (r *fixture) withEffect(g driver.Grant) driver.Work {
	w := &Writes{}
	w.Add(r.ledger, ledgerKey(g.Hold.Key.Raw), "n", 1)
	return driver.Work{Finish: completion(g), Effects: w}
}

func (r *fixture) effects(t testing.TB, raw string) int {
	t.Helper()
	n, err := ledgerOf(r.client, r.ledger).Count(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// item is the item of a key as it lies in the table.
func (r *fixture) item(t testing.TB, raw string) attrs {
	t.Helper()
	out, err := r.client.GetItem(t.Context(), &awsdynamodb.GetItemInput{
		TableName: aws.String("records"), Key: r.shape.keyOf(driver.Key{Consumer: "orders", Raw: raw}), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

// faulty opens a store behind faults.
func (r *fixture) faulty(t testing.TB, p awstest.Plan) (*Store, *awstest.Faults) {
	t.Helper()
	f := awstest.NewFaults(p)
	return r.again(t, nil, f.Wrap), f
}

// twice sends every write two times and hands out the second answer, as the SDK, a proxy or a broken connection does.
type twice struct{ next http.RoundTripper }

func (x twice) RoundTrip(q *http.Request) (*http.Response, error) {
	target := q.Header.Get("X-Amz-Target")
	if !strings.HasSuffix(target, "UpdateItem") && !strings.HasSuffix(target, "TransactWriteItems") {
		return x.next.RoundTrip(q)
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	first := q.Clone(q.Context())
	first.Body, q.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
	res, err := x.next.RoundTrip(first)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return x.next.RoundTrip(q)
}

// TestFM31_OwnWriteIsNoDuplicate sends every write twice, and sees the refusal of the second: it is never taken for
// somebody else's.
func TestFM31_OwnWriteIsNoDuplicate(t *testing.T) {
	r := newFixture(t, Options{})
	s := r.again(t, nil, func(next http.RoundTripper) http.RoundTripper { return twice{next} })
	g := claimOne(t, s, claimOf("a"), driver.Acquired)
	if g.Attempt != 1 || g.Unknown {
		t.Errorf("the claim counts %d attempts (unknown %v), wanted one", g.Attempt, g.Unknown)
	}
	if o, err := s.Extend(t.Context(), time.Minute, g.Hold); err != nil || o[0] != driver.Applied {
		t.Errorf("extend answered %v, %v", o, err)
	}
	if row, _ := s.rows.of(g.Hold); row.Beat != 1 {
		t.Errorf("the lease was renewed %d times by one extension", row.Beat)
	}
	finishOne(t, s, completion(g), driver.Applied)
	g = claimOne(t, s, claimOf("b"), driver.Acquired)
	if o, err := s.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied || r.effects(t, "b") != 1 {
		t.Errorf("commit answered %v, %v with %d effects", o, err, r.effects(t, "b"))
	}
	claimOne(t, s, claimOf("a"), driver.Replay)
}

// TestFM31_SDKRepeats leaves the answer to a claim out once: the write is repeated and recognised.
func TestFM31_SDKRepeats(t *testing.T) {
	r := newFixture(t, Options{})
	s, f := r.faulty(t, awstest.Plan{Schedule: []awstest.Fault{
		{Operation: "UpdateItem", Call: 1, Kind: awstest.After}, {Operation: "UpdateItem", Call: 3, Kind: awstest.Internal, Done: true},
	}})
	g := claimOne(t, s, claimOf("a"), driver.Acquired)
	finishOne(t, s, completion(g), driver.Applied)
	if f.Counts()["after"] != 1 || f.Counts()["500"] != 1 {
		t.Fatalf("faults %v, wanted both", f.Counts())
	}
	if got := r.item(t, "a")["rev"]; !same(got, number(2)) {
		t.Errorf("the item has revision %v, wanted 2: a repetition must not count", got)
	}
}

// TestFM32_NoResponseCommit loses the answer of a transaction: the same bytes are sent again (one transaction), and a later
// repetition by the engine, which has other bytes, answers Applied and writes nothing.
func TestFM32_NoResponseCommit(t *testing.T) {
	r := newFixture(t, Options{})
	s, f := r.faulty(t, awstest.Plan{Schedule: []awstest.Fault{{Operation: "TransactWriteItems", Call: 1, Kind: awstest.After}}})
	g := claimOne(t, s, claimOf("a"), driver.Acquired)
	for range 3 {
		if o, err := s.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied {
			t.Fatalf("commit answered %v, %v", o, err)
		}
		r.clock.Advance(time.Second) // other bytes
	}
	finishOne(t, s, completion(g), driver.Applied)
	if n := r.effects(t, "a"); n != 1 || f.Counts()["after"] != 1 {
		t.Errorf("%d effects after %v, wanted one", n, f.Counts())
	}
	// Nobody gets an answer for as long as the call lasts: unknown, and whoever repeats it gets the truth.
	g = claimOne(t, s, claimOf("b"), driver.Acquired)
	dead := awstest.NewFaults(awstest.Plan{Rates: awstest.Rates{After: 1}})
	cut := r.again(t, func(o *Options) { o.RetryFor = 100 * time.Millisecond })
	cut.client = awsdynamodb.NewFromConfig(awstest.Config(r.fake, dead.Wrap))
	cut.rows.put(must(s.rows.of(g.Hold)))
	if _, err := cut.Commit(t.Context(), r.withEffect(g)); err == nil || errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("a commit without any answer says %v; it may have been applied", err)
	}
	if o, err := s.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied || r.effects(t, "b") != 1 {
		t.Errorf("the repetition answered %v, %v with %d effects", o, err, r.effects(t, "b"))
	}
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("there is none")
	}
	return v
}

// TestConflictsAndThrottlingAreNoVerdict lets every kind of write meet both: it is repeated, and never lost.
func TestConflictsAndThrottlingAreNoVerdict(t *testing.T) {
	r := newFixture(t, Options{})
	s, f := r.faulty(t, awstest.Plan{Schedule: []awstest.Fault{
		{Operation: "UpdateItem", Call: 1, Kind: awstest.Throttled}, {Operation: "UpdateItem", Call: 2, Kind: awstest.Conflict},
		{Operation: "UpdateItem", Call: 4, Kind: awstest.Unavailable}, {Operation: "TransactWriteItems", Call: 1, Kind: awstest.Throttled},
		{Operation: "TransactWriteItems", Call: 2, Kind: awstest.Conflict}, {Operation: "BatchGetItem", Call: 1, Kind: awstest.Throttled},
		{Operation: "BatchGetItem", Call: 2, Kind: awstest.Partial},
	}})
	var cs []driver.Claim
	for i := range 6 {
		cs = append(cs, claimOf(fmt.Sprint(i)))
	}
	gs, err := s.Claim(t.Context(), cs...)
	if err != nil {
		t.Fatal(err)
	}
	var w []driver.Work
	for _, g := range gs {
		if g.Err != nil || g.Verdict != driver.Acquired {
			t.Fatalf("claim answered %+v", g)
		}
		w = append(w, r.withEffect(g))
	}
	o, err := s.Commit(t.Context(), w...)
	for i := range w {
		if err != nil || o[i] != driver.Applied || r.effects(t, fmt.Sprint(i)) != 1 {
			t.Fatalf("commit answered %v, %v; key %d has %d effects", o, err, i, r.effects(t, fmt.Sprint(i)))
		}
	}
	again := make([]driver.Finish, len(w))
	for i := range w {
		again[i] = w[i].Finish
	}
	if o, err := s.Finish(t.Context(), again...); err != nil || o[5] != driver.Applied {
		t.Errorf("finish with rows that have to be read answered %v, %v", o, err)
	}
	t.Logf("faults: %v", f.Counts())
	if c := f.Counts(); c["throttled"] != 3 || c["conflict"] != 2 || c["partial"] != 1 || c["503"] != 1 {
		t.Errorf("faults %v, wanted each kind", c)
	}
	// Again and again, on an effect's item: still no refusal. The works go alone after a while.
	gs, err = s.Claim(t.Context(), claimOf("y"), claimOf("z"))
	if err != nil {
		t.Fatal(err)
	}
	r.fake.Conflict(5, func(_, table string, _ fakedynamodb.Item) bool { return table == r.ledger })
	o, err = s.Commit(t.Context(), r.withEffect(gs[0]), r.withEffect(gs[1]))
	if err != nil || o[0] != driver.Applied || o[1] != driver.Applied || r.effects(t, "y") != 1 || r.effects(t, "z") != 1 {
		t.Errorf("a commit that met five transactions answered %v, %v", o, err)
	}
	// Without end: it certainly did not happen, and may be repeated.
	r.fake.Conflict(-1, nil)
	short := r.again(t, func(o *Options) { o.RetryFor = 100 * time.Millisecond })
	if _, err := short.Claim(t.Context(), claimOf("x")); !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("a claim that always meets a transaction says %v, wanted ErrNotCommitted", err)
	}
}

// TestFM36_HangingConnection gives up a connection that never answers, and goes on.
func TestFM36_HangingConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		s, _ := r.faulty(t, awstest.Plan{Schedule: []awstest.Fault{{Operation: "UpdateItem", Call: 1, Kind: awstest.Hang}}})
		began := time.Now()
		claimOne(t, s, claimOf("a"), driver.Acquired)
		if d := time.Since(began); d < 3*time.Second || d > 4*time.Second {
			t.Errorf("the claim took %v, wanted Options.CallTimeout and a little", d)
		}
		all := awstest.NewFaults(awstest.Plan{Rates: awstest.Rates{Hang: 1}})
		s.client = awsdynamodb.NewFromConfig(awstest.Config(r.fake, all.Wrap))
		began = time.Now()
		if _, err := s.Claim(t.Context(), claimOf("b")); err == nil || time.Since(began) > 20*time.Second {
			t.Errorf("a claim that hangs forever answered %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := s.Claim(ctx, claimOf("c")); err == nil || time.Since(began) > time.Second {
			t.Errorf("a claim past its context answered %v after %v", err, time.Since(began))
		}
	})
}

// TestFM40_TTLLag keeps items in the table that are past their time to live, as the service does for days: only the
// record's own times count. Items in work have none.
func TestFM40_TTLLag(t *testing.T) {
	r := newFixture(t, Options{})
	claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	if v := r.item(t, "a")["ttl"]; v != nil {
		t.Errorf("a record in progress has a time to live: %v", v)
	}
	r.clock.Advance(3 * time.Minute)
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired) // the lease is over, whatever lies in the table
	finishOne(t, r.Store, completion(g), driver.Applied)
	until := r.clock.Now().Add(time.Hour + r.Store.o.TTLSlack).Unix()
	if v := r.item(t, "a")["ttl"]; !same(v, number(until)) {
		t.Errorf("the time to live is %v, wanted retention and slack (%d)", v, until)
	}
	r.clock.Advance(100 * time.Hour)
	claimOne(t, r.Store, claimOf("a"), driver.Replay)
	park := claimOne(t, r.Store, claimOf("b"), driver.Acquired)
	finishOne(t, r.Store, driver.Finish{Hold: park.Hold, Final: driver.Park, Keep: time.Hour}, driver.Applied)
	if v := r.item(t, "b")["ttl"]; v != nil {
		t.Errorf("a parked record has a time to live: %v", v)
	}
}

// TestFM42_ClockSkew lets the clock of the claimer be ahead and behind: within MaxClockSkew nobody takes a live lease, and with
// strict observation nobody does whatever the clocks say.
func TestFM42_ClockSkew(t *testing.T) {
	at := func(clock *awstest.Clock) func(o *Options) { return func(o *Options) { o.Clock = clock.Now } }
	r := newFixture(t, Options{})
	ahead := awstest.Frozen(midday.Add(9 * time.Second))
	other := r.again(t, at(ahead))
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	ahead.Advance(time.Minute) // 9 s past the end of the lease by this clock, and exactly at its end by the other
	claimOne(t, other, claimOf("a"), driver.Busy)
	ahead.Advance(2 * time.Second)
	if got := claimOne(t, other, claimOf("a"), driver.Acquired); !got.Unknown || got.Hold.Token <= g.Hold.Token {
		t.Errorf("the takeover is %+v after token %d", got, g.Hold.Token)
	}
	finishOne(t, r.Store, completion(g), driver.Lost) // fenced, although its own clock says that it has time
	// A record from a clock that was far ahead, and stepped back: the lease lasts no longer than it was asked for.
	claimOne(t, other, claimOf("b"), driver.Acquired)
	if b := claimOne(t, r.Store, claimOf("b"), driver.Busy); b.Wait > time.Minute+r.o.skew() {
		t.Errorf("the lease of a clock that is ahead lasts for %v", b.Wait)
	}
	if v := r.item(t, "b")["lease_until"]; !same(v, number(r.clock.Now().Add(time.Minute).UnixMicro())) {
		t.Errorf("lease_until is %v, wanted now and the lease", v)
	}
}

// TestFM42_Observe compares no clocks: only the time during which a record was seen unchanged counts.
func TestFM42_Observe(t *testing.T) {
	r := newFixture(t, Options{Observe: true})
	mine := awstest.Frozen(midday.Add(1000 * time.Hour))
	other := r.again(t, func(o *Options) { o.Clock = mine.Now })
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	for range 5 { // it lives: every extension is seen
		claimOne(t, other, claimOf("a"), driver.Busy)
		mine.Advance(50 * time.Second)
		if o, err := r.Extend(t.Context(), time.Minute, g.Hold); err != nil || o[0] != driver.Applied {
			t.Fatalf("extend answered %v, %v", o, err)
		}
	}
	claimOne(t, other, claimOf("a"), driver.Busy)
	mine.Advance(59 * time.Second)
	if b := claimOne(t, other, claimOf("a"), driver.Busy); b.Wait != time.Second {
		t.Errorf("the wait is %v, wanted what is left of the lease as observed", b.Wait)
	}
	mine.Advance(2 * time.Second)
	if got := claimOne(t, other, claimOf("a"), driver.Acquired); !got.Unknown {
		t.Error("a takeover leaves no doubt")
	}
}
