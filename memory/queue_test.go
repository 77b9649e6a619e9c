package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

func send(t *testing.T, q *memory.Queue, ms ...driver.Message) {
	t.Helper()
	if err := q.Send(context.Background(), ms...); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, q *memory.Queue, limit int) []driver.Delivery {
	t.Helper()
	d, err := q.Receive(context.Background(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func settleOne(t *testing.T, q *memory.Queue, s driver.Settlement) driver.Outcome {
	t.Helper()
	out, err := q.Settle(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// TestReceiveInVirtualTime: a waiting Receive returns at the exact moment when a message is due.
func TestReceiveInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewQueue("q", memory.WithVisibility(10*time.Second))
		begin := time.Now()
		at := func(want time.Duration, what string) {
			t.Helper()
			if got := time.Since(begin); got != want {
				t.Errorf("%s came after %v, wanted %v", what, got, want)
			}
		}
		send(t, q, driver.Message{ID: "a"}, driver.Message{ID: "b", Delay: 25 * time.Second})
		receive(t, q, 1)
		at(0, "the first message")
		d := receive(t, q, 1)[0]
		at(10*time.Second, "the same after its visibility")
		if out, err := q.Extend(t.Context(), 30*time.Second, d.Receipt); err != nil || out[0] != driver.Applied {
			t.Fatal(out, err)
		}
		if d = receive(t, q, 1)[0]; d.ID != "b" {
			t.Errorf("received %q, wanted b", d.ID)
		}
		at(25*time.Second, "the delayed message")
		d = receive(t, q, 1)[0] // b again, before a, which was extended until 40 s
		at(35*time.Second, "the delayed message after its visibility")
		settleOne(t, q, driver.Settlement{Receipt: d.Receipt})
		d = receive(t, q, 1)[0]
		at(40*time.Second, "the extended message")
		go func() { // a waiter knows of 50 s; the retry is due before
			time.Sleep(time.Second)
			settleOne(t, q, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry, After: 2 * time.Second})
		}()
		d = receive(t, q, 1)[0]
		at(43*time.Second, "the retried message")
		settleOne(t, q, driver.Settlement{Receipt: d.Receipt})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if d, err := q.Receive(ctx, 1); len(d) > 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an empty queue returned %v, %v", d, err)
		}
		at(48*time.Second, "the deadline")
	})
}

// TestSignalsArePassedOn: a waiter whose context ends in the moment in which it is signalled leaves its turn to the
// next.
//
//  1. two wait; 2. Send locks; 3. the first one's context ends, and it blocks on the lock; 4. Send signals the first
//     waiter, and unlocks; 5. the first goes home without the message.
func TestSignalsArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		during := func() {}
		q := memory.NewQueue("q", memory.WithClock(func() time.Time { // called under the lock
			during()
			return time.Now()
		}))
		got := make(chan string, 2)
		for _, c := range []context.Context{ctx, t.Context()} {
			go func() {
				for _, d := range receiveWith(c, q) {
					got <- d.ID
				}
			}()
			synctest.Wait() // they wait in this order
		}
		during = func() { during = func() {}; cancel() }
		send(t, q, driver.Message{ID: "m"})
		synctest.Wait()
		if len(got) != 1 {
			t.Errorf("%d messages were received, although one waiter stayed", len(got))
		}
	})
}

func receiveWith(ctx context.Context, q *memory.Queue) []driver.Delivery {
	d, _ := q.Receive(ctx, 1)
	return d
}

// TestWaitersLearnOfNewTimes: a waiting Receive that sleeps until a far time wakes for a nearer one that came up since.
func TestWaitersLearnOfNewTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewQueue("q", memory.WithVisibility(10*time.Second))
		send(t, q, driver.Message{ID: "far", Delay: time.Hour})
		begin := time.Now()
		got := make(chan string)
		for range 2 { // one gets it, the other waits for the end of its visibility
			go func() { got <- receive(t, q, 1)[0].ID }()
		}
		synctest.Wait()
		send(t, q, driver.Message{ID: "near"})
		if id := <-got; id != "near" {
			t.Fatalf("received %q", id)
		}
		if id := <-got; id != "near" || time.Since(begin) != 10*time.Second {
			t.Errorf("received %q after %v, wanted the one whose visibility ended after 10 s", id, time.Since(begin))
		}
	})
}

// TestJoinedAckWakes: a waiting Receive notices what a commit made deliverable: the next of a group, an emitted message.
func TestJoinedAckWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q, s := db.Queue("q"), db.Store()
		send(t, q, driver.Message{ID: "1", Group: "g"}, driver.Message{ID: "2", Group: "g"})
		d := receive(t, q, 1)[0]
		got := make(chan string)
		go func() {
			for range 2 {
				got <- receive(t, q, 1)[0].ID
			}
		}()
		synctest.Wait()
		begin := time.Now()
		w := driver.Work{Finish: complete(acquire(t, s, "1")), Ack: &driver.Settlement{Receipt: d.Receipt}}
		if _, err := s.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if id := <-got; id != "2" || time.Since(begin) > 0 {
			t.Errorf("received %q after %v", id, time.Since(begin))
		}
		w = driver.Work{Finish: complete(acquire(t, s, "22")), Emit: []driver.Message{{ID: "3", Queue: "q"}}}
		if _, err := s.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if id := <-got; id != "3" || time.Since(begin) > 0 {
			t.Errorf("received %q after %v", id, time.Since(begin))
		}
	})
}

// TestStatsOfGroups: followers count as visible or delayed by their own time.
func TestStatsOfGroups(t *testing.T) {
	db, clock := openFake()
	q := db.Queue("q")
	send(t, q, driver.Message{Group: "g"}, driver.Message{Group: "g"}, driver.Message{Group: "g", Delay: time.Minute})
	for _, want := range []driver.QueueStats{{Visible: 2, Delayed: 1}, {Visible: 3, Oldest: time.Minute}} {
		if s, err := q.Stats(t.Context()); err != nil || s != want {
			t.Errorf("stats are %+v, %v, wanted %+v", s, err, want)
		}
		clock.advance(time.Minute)
	}
}

// TestStatsSeeTime: what became visible by the passing of time is counted so, before anybody receives.
func TestStatsSeeTime(t *testing.T) {
	db, clock := openFake()
	q := db.Queue("q")
	send(t, q, driver.Message{}, driver.Message{Delay: time.Second})
	receive(t, q, 1)
	clock.advance(time.Minute)
	if s, err := q.Stats(t.Context()); err != nil || s.Visible != 2 || s.InFlight+s.Delayed != 0 {
		t.Errorf("stats are %+v, %v, wanted two visible", s, err)
	}
}

func TestReceipts(t *testing.T) {
	db, clock := openFake()
	q := db.Queue("q")
	send(t, q, driver.Message{ID: "m"})
	first := receive(t, q, 1)[0]
	clock.advance(time.Minute)
	// Its visibility has ended, but no other consumer has it: the receipt still counts.
	if out, err := q.Extend(t.Context(), time.Minute, first.Receipt); err != nil || out[0] != driver.Applied {
		t.Fatal(out, err)
	}
	clock.advance(2 * time.Minute)
	second := receive(t, q, 1)[0]
	for _, a := range []driver.Action{driver.Ack, driver.Retry, driver.Defer} {
		if o := settleOne(t, q, driver.Settlement{Receipt: first.Receipt, Action: a}); o != driver.Lost {
			t.Errorf("%v with a stale receipt returned %v", a, o)
		}
	}
	retry := driver.Settlement{Receipt: second.Receipt, Action: driver.Retry, After: time.Second}
	for range 2 {
		if o := settleOne(t, q, retry); o != driver.Applied {
			t.Errorf("retry returned %v", o)
		}
	}
	if o := settleOne(t, q, driver.Settlement{Receipt: second.Receipt}); o != driver.Lost {
		t.Errorf("an ack after the retry returned %v", o)
	}
	clock.advance(time.Second)
	third := receive(t, q, 1)[0]
	if third.Count != 3 {
		t.Errorf("count is %d", third.Count)
	}
	settleOne(t, q, driver.Settlement{Receipt: third.Receipt})
	// The place of the acked message is used again: no old receipt reaches the new message.
	send(t, q, driver.Message{ID: "another"})
	d := receive(t, q, 1)[0]
	for i, old := range []driver.Delivery{first, second, third} {
		_ = settleOne(t, q, driver.Settlement{Receipt: old.Receipt, Action: driver.Retry})
		if out, err := q.Extend(t.Context(), time.Hour, old.Receipt); err != nil || out[0] != driver.Lost {
			t.Errorf("receipt %d extends another message: %v, %v", i, out, err)
		}
	}
	if s, err := q.Stats(t.Context()); err != nil || s.InFlight != 1 || d.Count != 1 {
		t.Errorf("stats %+v, %v; count %d", s, err, d.Count)
	}
}

func TestBadSettlements(t *testing.T) {
	q, foreign := memory.NewQueue("q"), memory.NewQueue("foreign")
	send(t, q, driver.Message{ID: "m"})
	send(t, foreign, driver.Message{ID: "m"})
	d, f := receive(t, q, 1)[0], receive(t, foreign, 1)[0]
	for name, s := range map[string]driver.Settlement{
		"foreign receipt": {Receipt: f.Receipt}, "no receipt": {}, "text": {Receipt: "x"},
		"no dead letter": {Receipt: d.Receipt, Action: driver.Dead}, "dead letter without ID": {Receipt: d.Receipt, Action: driver.Dead, DeadLetter: &driver.DeadLetter{}},
		"unknown action": {Receipt: d.Receipt, Action: 9},
	} {
		if out, err := q.Settle(t.Context(), driver.Settlement{Receipt: d.Receipt}, s); err == nil {
			t.Errorf("%s: returned %v", name, out)
		}
	}
	if _, err := q.Extend(t.Context(), time.Second, f.Receipt); err == nil {
		t.Error("a foreign receipt was extended")
	}
	if _, err := q.Receive(t.Context(), 0); err == nil {
		t.Error("Receive of no message returned no error")
	}
	if s, err := q.Stats(t.Context()); err != nil || s.InFlight != 1 {
		t.Errorf("a refused call settled something: %+v, %v", s, err)
	}
}

// modelMessage is a message in the oracle of TestQueueModel.
type modelMessage struct {
	id, group string
	due       time.Duration
	receipt   any
}

// TestQueueModel drives the queue and a list of messages side by side: at every moment exactly those are handed out
// that are due, and of each group only the first.
func TestQueueModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	db, clock := openFake()
	q := db.Queue("q")
	var model []*modelMessage
	now := time.Duration(0)
	remove := func(m *modelMessage) { model = slices.DeleteFunc(model, func(x *modelMessage) bool { return x == m }) }
	for step := range 5000 {
		var held []*modelMessage
		for _, m := range model {
			if m.receipt != nil {
				held = append(held, m)
			}
		}
		after := time.Duration(r.IntN(20)) * time.Second
		switch k := r.IntN(10); {
		case k < 3:
			m := &modelMessage{id: fmt.Sprint(step), due: now + after}
			if r.IntN(2) == 0 {
				m.group = fmt.Sprint("g", r.IntN(4))
			}
			model = append(model, m)
			send(t, q, driver.Message{ID: m.id, Group: m.group, Delay: after})
		case k < 5:
			now += after
			clock.advance(after)
		case k < 8 && len(held) > 0:
			m := held[r.IntN(len(held))]
			s := driver.Settlement{Receipt: m.receipt, Action: driver.Action(r.IntN(3)), After: after}
			if o := settleOne(t, q, s); o != driver.Applied {
				t.Fatalf("seed %d, step %d: %v returned %v", seed, step, s.Action, o)
			}
			if m.receipt, m.due = nil, now+after; s.Action == driver.Ack {
				remove(m)
			}
		case k == 8 && len(held) > 0:
			m := held[r.IntN(len(held))]
			if out, err := q.Extend(t.Context(), after, m.receipt); err != nil || out[0] != driver.Applied {
				t.Fatalf("seed %d, step %d: extend returned %v, %v", seed, step, out, err)
			}
			m.due = now + after
		default:
			compareDeliverable(t, q, model, now, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
}

// compareDeliverable receives everything that is due and compares it with the model.
func compareDeliverable(t *testing.T, q *memory.Queue, model []*modelMessage, now time.Duration, where string) {
	t.Helper()
	want, byID, seen := []string{}, map[string]*modelMessage{}, map[string]bool{}
	for _, m := range model {
		byID[m.id] = m
		if first := m.group == "" || !seen[m.group]; first && m.due <= now {
			want = append(want, m.id)
		}
		seen[m.group] = true
	}
	s, err := q.Stats(t.Context())
	if err != nil || s.Visible+s.InFlight+s.Delayed != int64(len(model)) {
		t.Fatalf("%s: stats %+v, %v, the model has %d messages", where, s, err, len(model))
	}
	var got []string
	if len(want) > 0 {
		for _, d := range receive(t, q, 10_000) {
			got = append(got, d.ID)
			byID[d.ID].receipt, byID[d.ID].due = d.Receipt, now+30*time.Second
		}
	}
	sort.Strings(want)
	sort.Strings(got)
	if !slices.Equal(got, want) && len(want) > 0 {
		t.Fatalf("%s: received %v, the model has %v", where, got, want)
	}
	moment, end := context.WithTimeout(t.Context(), 100*time.Microsecond)
	defer end()
	if d, err := q.Receive(moment, 1); len(d) > 0 || err == nil {
		t.Fatalf("%s: received %v, %v when nothing was due", where, d, err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := q.Receive(done, 1); len(d) > 0 || err == nil {
		t.Fatalf("%s: a done Receive returned %v, %v", where, d, err)
	}
}

// TestQueueWithIsTheSameQueue with the visibility of its receiver, as on the other stores.
func TestQueueWithIsTheSameQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open(memory.WithVisibility(time.Minute))
		long, short := db.Queue("q"), db.QueueWith("q", time.Second)
		if err := long.Send(t.Context(), driver.Message{ID: "m"}); err != nil {
			t.Fatal(err)
		}
		d, err := short.Receive(t.Context(), 1)
		if err != nil || len(d) != 1 || d[0].Visible != time.Second {
			t.Fatal(d, err)
		}
		time.Sleep(time.Second)
		again, err := long.Receive(t.Context(), 1)
		if err != nil || len(again) != 1 || again[0].Visible != time.Minute {
			t.Fatal(again, err)
		}
		if o, err := short.Settle(t.Context(), driver.Settlement{Receipt: again[0].Receipt}); err != nil || o[0] != driver.Applied {
			t.Errorf("settled by the other handle: %v, %v", o, err)
		}
	})
}
