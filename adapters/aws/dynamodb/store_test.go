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
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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
		t.Fatalf("claim of key %q returned %+v, %v; wanted %v", c.Key.Raw, g, err, want)
	}
	return g[0]
}

func finishOne(t testing.TB, s *Store, f driver.Finish, want driver.Outcome) {
	t.Helper()
	o, err := s.Finish(t.Context(), f)
	if err != nil || o[0] != want {
		t.Fatalf("finish (%v) of key %q returned %v, %v; wanted %v", f.Final, f.Hold.Key.Raw, o, err, want)
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

// item is the item of a key as it is in the table.
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

// twice sends every write twice and returns the second response, as the SDK, a proxy or a broken connection does.
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

// TestFM31_OwnWriteIsNoDuplicate sends every write twice. The refusal of the second write is never taken for another
// writer's.
func TestFM31_OwnWriteIsNoDuplicate(t *testing.T) {
	r := newFixture(t, Options{})
	s := r.again(t, nil, func(next http.RoundTripper) http.RoundTripper { return twice{next} })
	g := claimOne(t, s, claimOf("a"), driver.Acquired)
	if g.Attempt != 1 || g.Unknown {
		t.Errorf("the claim counts %d attempts (unknown %v), wanted one", g.Attempt, g.Unknown)
	}
	if o, err := s.Extend(t.Context(), time.Minute, g.Hold); err != nil || o[0] != driver.Applied {
		t.Errorf("extend returned %v, %v", o, err)
	}
	if row, _ := s.rows.of(g.Hold); row.Beat != 1 {
		t.Errorf("the lease was renewed %d times by one extension", row.Beat)
	}
	finishOne(t, s, completion(g), driver.Applied)
	g = claimOne(t, s, claimOf("b"), driver.Acquired)
	if o, err := s.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied || r.effects(t, "b") != 1 {
		t.Errorf("commit returned %v, %v with %d effects", o, err, r.effects(t, "b"))
	}
	claimOne(t, s, claimOf("a"), driver.Replay)
}

// TestFM31_SDKRepeats loses the response to a claim once: the write is repeated and recognised.
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

// TestFM32_NoResponseCommit loses the response of a transaction: the same bytes are sent again (one transaction), and a
// later repetition by the engine, which has other bytes, returns Applied and writes nothing.
func TestFM32_NoResponseCommit(t *testing.T) {
	r := newFixture(t, Options{})
	s, f := r.faulty(t, awstest.Plan{Schedule: []awstest.Fault{{Operation: "TransactWriteItems", Call: 1, Kind: awstest.After}}})
	g := claimOne(t, s, claimOf("a"), driver.Acquired)
	for range 3 {
		if o, err := s.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied {
			t.Fatalf("commit returned %v, %v", o, err)
		}
		r.clock.Advance(time.Second) // other bytes
	}
	finishOne(t, s, completion(g), driver.Applied)
	if n := r.effects(t, "a"); n != 1 || f.Counts()["after"] != 1 {
		t.Errorf("%d effects after %v, wanted one", n, f.Counts())
	}
	// No response arrives during the whole call: the outcome is unknown, and a repetition returns it.
	g = claimOne(t, s, claimOf("b"), driver.Acquired)
	dead := awstest.NewFaults(awstest.Plan{Rates: awstest.Rates{After: 1}})
	cut := r.again(t, func(o *Options) { o.RetryFor = 100 * time.Millisecond })
	cut.client = awsdynamodb.NewFromConfig(awstest.Config(r.fake, dead.Wrap))
	cut.rows.put(must(s.rows.of(g.Hold)))
	if _, err := cut.Commit(t.Context(), r.withEffect(g)); err == nil || errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("a commit without any response returned %v; it may have been applied", err)
	}
	if o, err := s.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied || r.effects(t, "b") != 1 {
		t.Errorf("the repetition returned %v, %v with %d effects", o, err, r.effects(t, "b"))
	}
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("there is none")
	}
	return v
}

// TestConflictsAndThrottlingAreNoVerdict: every kind of write is repeated after a conflict or throttling, and never lost.
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
			t.Fatalf("claim returned %+v", g)
		}
		w = append(w, r.withEffect(g))
	}
	o, err := s.Commit(t.Context(), w...)
	for i := range w {
		if err != nil || o[i] != driver.Applied || r.effects(t, fmt.Sprint(i)) != 1 {
			t.Fatalf("commit returned %v, %v; key %d has %d effects", o, err, i, r.effects(t, fmt.Sprint(i)))
		}
	}
	again := make([]driver.Finish, len(w))
	for i := range w {
		again[i] = w[i].Finish
	}
	if o, err := s.Finish(t.Context(), again...); err != nil || o[5] != driver.Applied {
		t.Errorf("finish with rows that have to be read returned %v, %v", o, err)
	}
	t.Logf("faults: %v", f.Counts())
	if c := f.Counts(); c["throttled"] != 3 || c["conflict"] != 2 || c["partial"] != 1 || c["503"] != 1 {
		t.Errorf("faults %v, wanted each kind", c)
	}
	// Repeated conflicts on the item of an effect are no refusal. After some of them each work gets its own transaction.
	gs, err = s.Claim(t.Context(), claimOf("y"), claimOf("z"))
	if err != nil {
		t.Fatal(err)
	}
	r.fake.Conflict(5, func(_, table string, _ fakedynamodb.Item) bool { return table == r.ledger })
	o, err = s.Commit(t.Context(), r.withEffect(gs[0]), r.withEffect(gs[1]))
	if err != nil || o[0] != driver.Applied || o[1] != driver.Applied || r.effects(t, "y") != 1 || r.effects(t, "z") != 1 {
		t.Errorf("a commit with five conflicts returned %v, %v", o, err)
	}
	// Endless conflicts: the write definitely did not happen, and may be repeated.
	r.fake.Conflict(-1, nil)
	short := r.again(t, func(o *Options) { o.RetryFor = 100 * time.Millisecond })
	if _, err := short.Claim(t.Context(), claimOf("x")); !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("a claim that always conflicts returned %v, wanted ErrNotCommitted", err)
	}
}

// TestFM36_HangingConnection abandons a connection that never responds, and goes on.
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
			t.Errorf("a claim that hangs forever returned %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := s.Claim(ctx, claimOf("c")); err == nil || time.Since(began) > time.Second {
			t.Errorf("a claim past its context returned %v after %v", err, time.Since(began))
		}
	})
}

// TestFM40_TTLLag keeps items in the table after their time to live, as the service does for days: only the record's own
// times count. Records in progress have no time to live.
func TestFM40_TTLLag(t *testing.T) {
	r := newFixture(t, Options{})
	claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	if v := r.item(t, "a")["ttl"]; v != nil {
		t.Errorf("a record in progress has a time to live: %v", v)
	}
	r.clock.Advance(3 * time.Minute)
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired) // the lease has ended, although the item still exists
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

// TestFM32_UnsureSpeaksForAll lets one item of a call definitely fail, and writes the other but loses its response: the call
// must not report that nothing was written.
func TestFM32_UnsureSpeaksForAll(t *testing.T) {
	r := newFixture(t, Options{})
	s := r.again(t, func(o *Options) { o.RetryFor = 50 * time.Millisecond }, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			switch read := strings.HasSuffix(q.Header.Get("X-Amz-Target"), "GetItem"); {
			case read:
			case strings.Contains(bodyOf(q), r.shape.partition(claimOf("throttled").Key)):
				return nil, &types.ProvisionedThroughputExceededException{Message: aws.String("too fast")}
			default:
				if res, err := next.RoundTrip(q); err == nil {
					_ = res.Body.Close()
				}
				return nil, errors.New("the response is lost")
			}
			return next.RoundTrip(q)
		})
	})
	throttled := claimOne(t, r.Store, claimOf("throttled"), driver.Acquired)
	for name, call := range map[string]func(h ...driver.Hold) error{
		"Claim": func(h ...driver.Hold) error {
			_, err := s.Claim(t.Context(), driver.Claim{Key: h[0].Key, Nonce: newNonce()}, driver.Claim{Key: h[1].Key, Nonce: h[1].Nonce})
			return err
		},
		"Extend": func(h ...driver.Hold) error { _, err := s.Extend(t.Context(), time.Minute, h...); return err },
		"Finish": func(h ...driver.Hold) error {
			_, err := s.Finish(t.Context(), driver.Finish{Hold: h[0], Final: driver.Complete}, driver.Finish{Hold: h[1], Final: driver.Complete})
			return err
		},
		"Commit": func(h ...driver.Hold) error {
			_, err := s.Commit(t.Context(), driver.Work{Finish: driver.Finish{Hold: h[0], Final: driver.Complete}},
				driver.Work{Finish: driver.Finish{Hold: h[1], Final: driver.Complete}})
			return err
		},
	} {
		unsure := driver.Hold{Key: claimOf("unsure " + name).Key, Nonce: newNonce()}
		if name != "Claim" {
			unsure = claimOne(t, r.Store, claimOf("unsure "+name), driver.Acquired).Hold
		}
		before := r.item(t, unsure.Key.Raw)["rev"]
		if err := call(throttled.Hold, unsure); err == nil || errors.Is(err, driver.ErrNotCommitted) {
			t.Errorf("%s returned %v, although one of its writes got no response", name, err)
		}
		if after := r.item(t, unsure.Key.Raw)["rev"]; same(before, after) {
			t.Errorf("%s: the write without a response was not carried out", name)
		}
	}
}

// bodyOf reads the body of a request, and restores it.
func bodyOf(q *http.Request) string {
	b, _ := io.ReadAll(q.Body) // of memory
	q.Body = io.NopCloser(bytes.NewReader(b))
	return string(b)
}

// errRefused is why the first request of refusing fails.
var errRefused = errors.New("refused by the test")

// refusing fails its first request, and does not respond to the others.
type refusing struct {
	requests int
	hangs    func()
}

func (r *refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	if r.requests++; r.requests == 1 {
		return nil, errRefused
	}
	r.hangs()
	<-q.Context().Done()
	return nil, q.Context().Err()
}

// TestOpenNamesTheCause: an Open that ends while it repeats a request names the error of the request before.
func TestOpenNamesTheCause(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := awsdynamodb.NewFromConfig(awstest.Config(nil, func(http.RoundTripper) http.RoundTripper { return &refusing{hangs: cancel} }))
	if _, err := Open(ctx, c, "records", Options{}); !errors.Is(err, errRefused) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want %v, and that the context ended", err, errRefused)
	}
}
