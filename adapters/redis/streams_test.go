package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// receive receives n messages.
func receive(t *testing.T, q *Queue, n int) (out []driver.Delivery) {
	t.Helper()
	for len(out) < n {
		ds, err := q.Receive(t.Context(), n-len(out))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ds...)
	}
	return out
}

func send(t *testing.T, q *Queue, n int) {
	t.Helper()
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{ID: fmt.Sprint("m-", i), Body: []byte("x")}
	}
	if err := q.Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

// expire makes a delivery expire, as if its consumer had been silent for the visibility.
func expire(t *testing.T, q *Queue, d driver.Delivery) {
	t.Helper()
	rc := d.Receipt.(*receipt)
	args := []any{"XCLAIM", q.keys[0], Group, rc.q.consumer, 0, rc.entry, "IDLE", q.visible.Milliseconds(), "JUSTID"}
	if err := q.s.client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

func settleOne(t *testing.T, q *Queue, s driver.Settlement) driver.Outcome {
	t.Helper()
	o, err := q.Settle(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return o[0]
}

// TestFM18_ExpiredDeliveryIsLost: a delivery that another consumer, or the same one, has received again is Lost for certain:
// neither its extension nor its end changes anything.
func TestFM18_ExpiredDeliveryIsLost(t *testing.T) {
	old := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	for _, holder := range []*Queue{another(t, shared(t), old), old} {
		send(t, old, 1)
		stale := receive(t, old, 1)[0]
		if o, err := old.Extend(t.Context(), 0, stale.Receipt); err != nil || o[0] != driver.Applied {
			t.Errorf("the extension of a delivery: %v, %v", o, err)
		}
		expire(t, old, stale)
		holder.search.next = time.Time{}
		d := receive(t, holder, 1)[0]
		if d.ID != stale.ID || d.Count != 2 {
			t.Fatalf("after it expired, %+v was delivered", d)
		}
		if o, err := old.Extend(t.Context(), 0, stale.Receipt); err != nil || o[0] != driver.Lost {
			t.Errorf("the extension of an expired delivery: %v, %v", o, err)
		}
		for _, a := range []driver.Action{driver.Ack, driver.Retry, driver.Defer, driver.Dead} {
			l := &driver.DeadLetter{ID: "l", Message: stale.Message}
			if o := settleOne(t, old, driver.Settlement{Receipt: stale.Receipt, Action: a, DeadLetter: l}); o != driver.Lost {
				t.Errorf("%v of an expired delivery: %v", a, o)
			}
		}
		if _, found, err := old.DeadLetter(t.Context(), "l"); err != nil || !found {
			t.Errorf("the dead letter follows from the record, whoever has the message: %v, %v", found, err)
		}
		if o := settleOne(t, old, driver.Settlement{Receipt: stale.Receipt, Close: "l"}); o != driver.Lost {
			t.Errorf("the ack of an expired delivery: %v", o)
		}
		if _, found, err := old.DeadLetter(t.Context(), "l"); err != nil || found {
			t.Errorf("a late completion leaves its uncertain dead letter open: %v, %v", found, err)
		}
		if o := settleOne(t, holder, driver.Settlement{Receipt: d.Receipt}); o != driver.Applied {
			t.Errorf("the ack of its holder: %v", o)
		}
	}
}

// TestFM18_ClaimedByAProgram: an entry that a program of other people has claimed is theirs, although it was not counted.
func TestFM18_ClaimedByAProgram(t *testing.T) {
	q := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	send(t, q, 1)
	d := receive(t, q, 1)[0]
	if err := q.s.client.Do(t.Context(), "XCLAIM", q.keys[0], Group, "theirs", 0, d.Receipt.(*receipt).entry, "JUSTID").Err(); err != nil {
		t.Fatal(err)
	}
	if o := settleOne(t, q, driver.Settlement{Receipt: d.Receipt}); o != driver.Lost {
		t.Errorf("the ack of a message that another program holds: %v", o)
	}
}

// TestFM27_SearchGoesOn: the server looks at ten times as many entries as it may return. An expired delivery behind more
// that are in flight is found, because the next search begins where the last one ended.
func TestFM27_SearchGoesOn(t *testing.T) {
	q := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	const n = 100
	send(t, q, n)
	ds := receive(t, q, n)
	last := slices.MaxFunc(ds, func(a, b driver.Delivery) int {
		return strings.Compare(a.Receipt.(*receipt).entry, b.Receipt.(*receipt).entry)
	})
	expire(t, q, last)
	for range n {
		q.search.next = time.Time{}
		found, _, _, err := q.take(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 && found[0].ID == last.ID {
			return
		}
	}
	t.Error("the expired delivery is never found")
}

// TestFM30_TrimmedStream: an entry that somebody trims while it is in flight is gone, and stops nobody.
func TestFM30_TrimmedStream(t *testing.T) {
	q := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	send(t, q, 3)
	ds := receive(t, q, 2)
	if err := q.s.client.XTrimMaxLen(t.Context(), q.keys[0], 1).Err(); err != nil {
		t.Fatal(err)
	}
	if o := settleOne(t, q, driver.Settlement{Receipt: ds[0].Receipt, Action: driver.Retry}); o != driver.Applied {
		t.Errorf("the retry of a trimmed message: %v", o)
	}
	if o, err := q.Extend(t.Context(), 0, ds[1].Receipt); err != nil || o[0] != driver.Lost {
		t.Errorf("the extension of a trimmed message: %v, %v", o, err)
	}
	if d := receive(t, q, 1)[0]; d.ID != "m-2" {
		t.Errorf("received %s", d.ID)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.InFlight != 1 || s.Visible != 0 {
		t.Errorf("stats: %+v, %v", s, err)
	}
}

// TestOtherProducers: entries that other programs add arrive with their fields as headers, and keep their ID when they are
// delivered again.
func TestOtherProducers(t *testing.T) {
	q := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	entry := q.s.client.XAdd(t.Context(), &goredis.XAddArgs{Stream: q.Stream(), Values: []any{"order", "7", "body", "{}"}}).Val()
	for count := range 3 {
		d := receive(t, q, 1)[0]
		if d.ID != "redis|"+q.Stream()+"|"+entry || string(d.Body) != "{}" || d.Header("order") != "7" || len(d.Headers) != 1 || d.Count != count+1 {
			t.Fatalf("delivery %d is %+v", count+1, d)
		}
		if age := time.Since(d.SentAt); age < -time.Minute || age > time.Hour {
			t.Errorf("it was sent at %v", d.SentAt)
		}
		after := time.Duration(count) * time.Millisecond
		if o := settleOne(t, q, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry, After: after}); o != driver.Applied {
			t.Fatal(o)
		}
	}
	reserved := driver.Message{ID: "a", Headers: map[string]string{"body": "1", "semel-id": "2", "semel-count": "3", "": "4"}}
	q2 := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	if err := q2.Send(t.Context(), reserved); err != nil {
		t.Fatal(err)
	}
	if d := receive(t, q2, 1)[0]; d.ID != "a" || len(d.Body) != 0 || d.Count != 1 || fmt.Sprint(d.Headers) != fmt.Sprint(reserved.Headers) {
		t.Errorf("a message whose headers have the names of fields arrives as %+v", d)
	}
}

// TestFM60_ManyFields: an entry with more fields than Lua passes as arguments is delivered again, at once or when its visibility
// has passed. It fails neither its own retry nor the others of its batch.
func TestFM60_ManyFields(t *testing.T) {
	q := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	values := make([]any, 0, 10_000)
	for i := range cap(values) / 2 {
		values = append(values, fmt.Sprint("field-", i), i)
	}
	large := q.s.client.XAdd(t.Context(), &goredis.XAddArgs{Stream: q.Stream(), Values: values}).Val()
	next := func(n int) []driver.Delivery {
		q.search.next = time.Time{}
		return receive(t, q, n)
	}
	for count, after := range []time.Duration{0, time.Millisecond} {
		send(t, q, 1)
		ds := next(2)
		ss := []driver.Settlement{{Receipt: ds[0].Receipt}, {Receipt: ds[1].Receipt}}
		for i, d := range ds {
			if d.Receipt.(*receipt).entry == large {
				ss[i].Action, ss[i].After = driver.Retry, after
				if d.Count != count+1 || len(d.Headers) != len(values)/2 {
					t.Errorf("delivery %d has count %d and %d headers", count+1, d.Count, len(d.Headers))
				}
			}
		}
		for _, want := range []driver.Outcome{driver.Applied, driver.Lost} {
			if o, err := q.Settle(t.Context(), ss...); err != nil || o[0] != want || o[1] != want {
				t.Fatalf("settlements with a large entry: %v, %v, want %v", o, err, want)
			}
		}
	}
	all := goredis.XPendingExtArgs{Stream: q.Stream(), Group: Group, Start: "-", End: "+", Count: 9}
	if p, err := q.s.client.XPendingExt(t.Context(), &all).Result(); err != nil || len(p) != 1 || p[0].Idle > q.visible/2 {
		t.Fatalf("a large entry with a delay is to wait for the visibility: %+v, %v", p, err)
	}
	args := []any{"XCLAIM", q.Stream(), Group, "semel-again", 0, large, "IDLE", q.visible.Milliseconds(), "JUSTID"}
	if err := q.s.client.Do(t.Context(), args...).Err(); err != nil { // the visibility has passed
		t.Fatal(err)
	}
	if d := next(1)[0]; d.Count != 3 || settleOne(t, q, driver.Settlement{Receipt: d.Receipt}) != driver.Applied {
		t.Errorf("the third delivery of a large entry has count %d", d.Count)
	}
	if s, err := q.Stats(t.Context()); err != nil || !s.Empty() {
		t.Errorf("the queue is not empty: %+v, %v", s, err)
	}
}

// TestFM37_ServerForgets: a queue goes on when its server has lost everything.
func TestFM37_ServerForgets(t *testing.T) {
	srv := server.Own(t, "redis", map[string]string{"appendonly": "no"})
	q := queueOf(t, openFor(t, connect(t, srv.URL()), Options{}), time.Minute)
	if f := q.Features(); f.Durable || len(f.Caveats) != 1 || !strings.Contains(f.Caveats[0], "all messages are lost") {
		t.Errorf("the queue says %+v", f)
	}
	send(t, q, 2)
	old := receive(t, q, 1)[0]
	if err := q.s.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if o := settleOne(t, q, driver.Settlement{Receipt: old.Receipt}); o != driver.Lost {
		t.Errorf("the ack of a message that the server has lost: %v", o)
	}
	send(t, q, 1)
	if s, err := q.Stats(t.Context()); err != nil || s.Empty() {
		t.Errorf("stats: %+v, %v", s, err)
	}
	receive(t, q, 1)
}

// TestConsumersAreRemoved: silent consumers are removed, but not those with messages in flight and those of other programs.
func TestConsumersAreRemoved(t *testing.T) {
	url := server.Shared(t, "redis")
	q := queueOf(t, openFor(t, connect(t, url), Options{}), time.Minute)
	holder := another(t, connect(t, url), q)
	send(t, q, 1)
	receive(t, holder, 1)
	for _, name := range []string{"theirs", consumerPrefix + "gone"} {
		if err := q.s.client.XGroupCreateConsumer(t.Context(), q.keys[0], Group, name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	names := func(silence time.Duration) (out []string) {
		q.search.next, q.search.tidy, q.search.silence = time.Time{}, time.Time{}, silence
		if _, _, _, err := q.take(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for _, c := range q.s.client.XInfoConsumers(t.Context(), q.keys[0], Group).Val() {
			out = append(out, c.Name)
		}
		return slices.DeleteFunc(out, func(name string) bool { return name == q.consumer })
	}
	if got, want := names(silence), []string{consumerPrefix + "gone", holder.consumer, "theirs"}; !slices.Equal(got, want) {
		t.Errorf("consumers: %q, want %q", got, want)
	}
	want := []string{holder.consumer, "theirs"}
	for got := names(time.Millisecond); !slices.Equal(got, want); got = names(time.Millisecond) {
		if t.Context().Err() != nil || !slices.Contains(got, holder.consumer) || !slices.Contains(got, "theirs") {
			t.Fatalf("consumers: %q, want %q", got, want)
		}
	}
}
