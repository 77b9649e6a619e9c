package dynamodb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

// TestS3_10_GateKeepsTenantsApart completes one key for two tenants: the gate drops the effects of neither.
func TestS3_10_GateKeepsTenantsApart(t *testing.T) {
	r := newFixture(t, demo("orders"))
	for i, tenant := range []string{"", "a", "b"} {
		c := claimOf("m1")
		c.Key.Tenant = tenant
		g := claimOne(t, r.Store, c, driver.Acquired)
		for range 2 {
			if o, err := r.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied {
				t.Fatalf("tenant %q: commit answered %v, %v", tenant, o, err)
			}
		}
		if n := r.effects(t, "m1"); n != i+1 || r.gateRows() != i+1 {
			t.Errorf("after tenant %q: %d effects and %d rows in the gate, wanted %d of each", tenant, n, r.gateRows(), i+1)
		}
	}
}

// TestFM32_UnsureSpeaksForAll lets one item of a call fail for certain, and the other without an answer though it was written:
// the call may not say that nothing was.
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
				return nil, errors.New("the answer is lost")
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
		unanswered := driver.Hold{Key: claimOf("unanswered " + name).Key, Nonce: newNonce()}
		if name != "Claim" {
			unanswered = claimOne(t, r.Store, claimOf("unanswered "+name), driver.Acquired).Hold
		}
		before := r.item(t, unanswered.Key.Raw)["rev"]
		if err := call(throttled.Hold, unanswered); err == nil || errors.Is(err, driver.ErrNotCommitted) {
			t.Errorf("%s answered %v, though one of its writes has no answer", name, err)
		}
		if after := r.item(t, unanswered.Key.Raw)["rev"]; same(before, after) {
			t.Errorf("%s: the write without an answer was not carried out", name)
		}
	}
}

// TestFM58_LongReasons ends attempts whose errors quote whole documents: the end is written, with the beginning of the reason.
func TestFM58_LongReasons(t *testing.T) {
	r := newFixture(t, Options{})
	for i, final := range []driver.Final{driver.Fail, driver.Park, driver.Release} {
		for _, n := range []int{maxReason, maxReason + 1, itemLimit + 1} {
			for _, commit := range []bool{false, true} {
				g := claimOne(t, r.Store, claimOf(fmt.Sprint(final, n, commit)), driver.Acquired)
				f := driver.Finish{Hold: g.Hold, Final: final, Keep: time.Hour, Reason: "no: " + strings.Repeat("é", n/2)}
				if commit {
					o, err := r.Commit(t.Context(), driver.Work{Finish: f})
					if err != nil || o[0] != driver.Applied {
						t.Fatalf("commit of %v with a reason of %d bytes answered %v, %v", final, n, o, err)
					}
				} else {
					finishOne(t, r.Store, f, driver.Applied)
				}
				rec, _, err := r.Record(t.Context(), g.Hold.Key)
				if err != nil || !strings.HasPrefix(f.Reason, strings.TrimSuffix(rec.Reason, "…")) || len(rec.Reason) < maxReason-4 ||
					len(rec.Reason) > maxReason+4 || strings.ContainsRune(rec.Reason, '\uFFFD') {
					t.Errorf("%d: the record of a reason of %d bytes has one of %d, %v", i, n, len(rec.Reason), err)
				}
			}
		}
	}
}

// dated answers with the time of the service, as DynamoDB does.
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

// TestLaw10_SweepOfAClockAhead sweeps by a clock that is years ahead, and one that is ahead by less than is tolerated: the
// first finds every retention over, and purges and parks nothing.
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
		t.Errorf("the running attempt is told %v, %v", o, err)
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

// TestS1_33_SweepsAreNotPutOffForEver: a process whose clock is a year ahead takes a pass. The others do not wait for a year.
func TestS1_33_SweepsAreNotPutOffForEver(t *testing.T) {
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

// TestFM42_DuplicatesLeaveLeasesOfClocksAhead: a holder's clock is ahead within the skew. Its duplicates cost one failed write
// each and leave its record alone; they come back when it may be over by their own clock.
func TestFM42_DuplicatesLeaveLeasesOfClocksAhead(t *testing.T) {
	r := newFixture(t, Options{})
	ahead := r.again(t, func(o *Options) { o.Clock = func() time.Time { return r.clock.Now().Add(9 * time.Second) } })
	claimOne(t, ahead, claimOf("a"), driver.Acquired)
	before := r.item(t, "a")
	for range 3 {
		if g := claimOne(t, r.Store, claimOf("a"), driver.Busy); g.Wait != time.Minute+9*time.Second+r.o.skew() {
			t.Errorf("the wait is %v", g.Wait)
		}
	}
	if after := r.item(t, "a"); !same(after["rev"], before["rev"]) {
		t.Errorf("duplicates changed the record from revision %v to %v", before["rev"], after["rev"])
	}
}

// TestDeadLettersBesideOtherNames keeps dead letters in a table whose keys are called as the dead letter's own attributes are.
func TestDeadLettersBesideOtherNames(t *testing.T) {
	for pk, sk := range map[string]string{"key": "at", "data": "dead_letter", "reason": "kind", "parts": "id"} {
		client := bareFake()
		o := Options{Layout: Layout{PartitionKey: pk, SortKey: sk}}
		if err := Create(t.Context(), client, "dead-letters", CreateOptions{Options: o}); err != nil {
			t.Fatal(err)
		}
		box, err := DeadLetters(client, "dead-letters", "orders", o)
		if err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("x", partSize+1)
		for _, id := range []string{"one", "two"} {
			l := fullDeadLetter(id, []byte(large))
			l.Reason = strings.Repeat("why", 2<<20)
			if err := box.PutDeadLetter(t.Context(), l); err != nil {
				t.Fatalf("keys %s and %s: %v", pk, sk, err)
			}
		}
		if err := box.DeleteDeadLetter(t.Context(), "one"); err != nil {
			t.Error(err)
		}
		all, err := box.DeadLetters(t.Context(), 0)
		if err != nil || len(all) != 1 || all[0].ID != "two" || string(all[0].Message.Body) != large {
			t.Errorf("keys %s and %s: %d dead letters listed, %v", pk, sk, len(all), err)
		}
	}
}

// TestS2_11_StatusOfOtherKinds adopts items whose status is a number, and such as have none.
func TestS2_11_StatusOfOtherKinds(t *testing.T) {
	o := tracker()
	o.Layout.Adopt = map[string]driver.State{"3": driver.Completed, "4": driver.Released, "": driver.Absent}
	r := newFixture(t, o)
	for id, status := range map[string]types.AttributeValue{"done": number(3), "failed": number(4), "none": nil, "empty": text("")} {
		item := attrs{"file_key": text(id), "status": status}
		if status == nil {
			delete(item, "status")
		}
		if _, err := r.client.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String("records"), Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	claimOne(t, r.Store, claimOf("done"), driver.Replay)
	for _, id := range []string{"failed", "none", "empty"} {
		finishOne(t, r.Store, completion(claimOne(t, r.Store, claimOf(id), driver.Acquired)), driver.Applied)
		claimOne(t, r.Store, claimOf(id), driver.Replay)
	}
}

// bodyOf reads what a request sends, and leaves it there.
func bodyOf(q *http.Request) string {
	b, _ := io.ReadAll(q.Body) // of memory
	q.Body = io.NopCloser(bytes.NewReader(b))
	return string(b)
}

// TestOpenOnOtherKeys opens tables whose keys are not those that the options name: the error says so.
func TestOpenOnOtherKeys(t *testing.T) {
	r := newFixture(t, Options{})
	for name, kind := range map[string]types.ScalarAttributeType{"pk": types.ScalarAttributeTypeN, "other": types.ScalarAttributeTypeS} {
		_, err := r.client.CreateTable(t.Context(), &awsdynamodb.CreateTableInput{
			TableName: aws.String("by-" + name), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &name, AttributeType: kind}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: &name, KeyType: types.KeyTypeHash}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []Layout{{}, {PartitionKey: "pk"}} {
			if _, err := Open(t.Context(), r.client, "by-"+name, Options{Layout: l}); err == nil || !strings.Contains(err.Error(), "doctor") {
				t.Errorf("a table by %s (%s) with layout %+v: %v", name, kind, l, err)
			}
		}
	}
}
