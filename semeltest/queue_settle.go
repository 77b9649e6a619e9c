package semeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

func testAck(q *queueBench) {
	q.sendN(2)
	ds := q.receive(2)
	q.ackAll(ds)
	// A repeated ack is harmless whatever it returns. A queue that has forgotten the message may return Lost.
	if out, err := q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: ds[0].Receipt}); err != nil || out[0] == driver.Unknown {
		q.t.Errorf("a repeated ack returned %v, %v", out, err)
	}
	q.pass(q.visible(ds[0]) + 50*time.Millisecond)
	q.nothing("all messages were acked")
}

func testRetry(q *queueBench) {
	for i, a := range []driver.Action{driver.Retry, driver.Defer} {
		q.send(driver.Message{ID: fmt.Sprint("m-", i)})
		d := q.receive(1)[0]
		q.settle(driver.Settlement{Receipt: d.Receipt, Action: a})
		d = q.receive(1)[0]
		if q.f.Counts && d.Count != 2 {
			q.t.Errorf("%v: count is %d on the second delivery, wanted 2", a, d.Count)
		}
		if q.f.Delays {
			after := q.later(d)
			q.settle(driver.Settlement{Receipt: d.Receipt, Action: a, After: after})
			q.nothing(fmt.Sprintf("it was settled with %v after %v", a, after))
			q.pass(after)
			d = q.receive(1)[0]
		}
		q.settle(driver.Settlement{Receipt: d.Receipt})
	}
}

// testFM18Stale settles with receipts of messages that were delivered again: the outcome agrees with what happened.
func testFM18Stale(q *queueBench) {
	for _, a := range []driver.Action{driver.Ack, driver.Retry, driver.Defer} {
		q.send(driver.Message{ID: "stale-" + a.String()})
		old := q.receive(1)[0]
		q.settle(driver.Settlement{Receipt: old.Receipt, Action: driver.Retry})
		d := q.receive(1)[0]
		out, err := q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: old.Receipt, Action: a})
		if err != nil {
			q.t.Fatalf("%v with a stale receipt: %v", a, err)
		}
		if out[0] == driver.Lost {
			q.nothing("a lost settlement changes nothing: the message is in flight")
			out, err := q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: d.Receipt, Action: driver.Retry})
			if err != nil || out[0] != driver.Applied {
				q.t.Fatalf("%v with a stale receipt took the message from its holder: retry returned %v, %v", a, out, err)
			}
			q.ackAll(q.receive(1))
		} else { // the broker cannot detect it: the message is where the settlement put it
			_, _ = q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: d.Receipt})
			for _, d := range q.poll(1, 100*time.Millisecond) {
				q.settle(driver.Settlement{Receipt: d.Receipt})
			}
		}
	}
}

func testPositional(q *queueBench) {
	q.sendN(4)
	ds := q.receive(4)
	q.settle(driver.Settlement{Receipt: ds[1].Receipt, Action: driver.Retry})
	again := q.receive(1)[0]
	var ss []driver.Settlement
	for _, d := range ds {
		ss = append(ss, driver.Settlement{Receipt: d.Receipt})
	}
	out, err := q.Queue.Settle(q.ctx(), ss...)
	if err != nil || len(out) != len(ss) {
		q.t.Fatalf("settle returned %v, %v", out, err)
	}
	for i, o := range out {
		if stale := i == 1; !stale && o != driver.Applied {
			q.t.Errorf("item %d returned %v, wanted applied", i, o)
		}
	}
	if out[1] == driver.Lost {
		q.settle(driver.Settlement{Receipt: again.Receipt})
	}
	q.nothing("all messages were acked")
	if out, err := q.Queue.Settle(q.ctx()); err != nil || len(out) != 0 {
		q.t.Errorf("settle of nothing returned %v, %v", out, err)
	}
}

// testDoneSettle settles with a done context: either it happened or it did not, and a repetition shows which.
func testDoneSettle(q *queueBench) {
	q.sendN(1)
	d := q.receive(1)[0]
	done, cancel := context.WithCancel(q.ctx())
	cancel()
	out, err := q.Queue.Settle(done, driver.Settlement{Receipt: d.Receipt})
	applied := err == nil && len(out) == 1 && out[0] == driver.Applied
	if again, err := q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: d.Receipt}); err != nil || !applied && again[0] == driver.Unknown {
		q.t.Errorf("the ack repeated returned %v, %v", again, err)
	}
	q.pass(q.visible(d) + 20*time.Millisecond)
	q.nothing("it was acked")
	if err := q.Send(done, driver.Message{ID: "unsent"}); err != nil {
		q.nothing("send returned an error")
	}
}

func testInspection(q *queueBench) {
	ins, ok := driver.As[driver.QueueInspector](q.Queue)
	if !ok {
		q.t.Log("left out: the queue is no driver.QueueInspector")
		return
	}
	stats := func(visible, inFlight, delayed int64) {
		q.t.Helper()
		s, err := ins.Stats(q.ctx())
		if err != nil || s.Visible != visible || s.InFlight != inFlight || s.Delayed != delayed {
			q.t.Errorf("stats are %+v, %v, wanted visible %d, in flight %d, delayed %d", s, err, visible, inFlight, delayed)
		}
		checkCount(q, s)
		if s.Empty() != (visible+inFlight+delayed == 0) {
			q.t.Errorf("Empty is %v for %+v", s.Empty(), s)
		}
	}
	stats(0, 0, 0)
	q.sendN(4)
	delayed := int64(0)
	if q.f.DelaysSend && !q.OwnDelays {
		q.send(driver.Message{ID: "m-4", Delay: time.Hour})
		delayed = 1
	}
	stats(4, 0, delayed)
	peeked, err := ins.Peek(q.ctx(), 2)
	blind := errors.Is(err, driver.ErrUnsupported) // the queue shows messages only to their receivers
	if !blind && (err != nil || len(peeked) != 2 || peeked[0].ID != "m-0" || string(peeked[1].Body) != "m-1") {
		q.t.Errorf("peek returned %v, %v, wanted m-0 and m-1", peeked, err)
	}
	stats(4, 0, delayed)
	ds := q.receive(2)
	stats(2, 2, delayed)
	q.settle(driver.Settlement{Receipt: ds[0].Receipt})
	stats(2, 1, delayed)
	q.pass(20 * time.Millisecond)
	stats(2, 1, delayed)
	if s, err := ins.Stats(q.ctx()); err != nil || s.Oldest <= 0 && !blind || s.Oldest > time.Hour {
		q.t.Errorf("the oldest message is %v old, %v", s.Oldest, err)
	}
	if n, err := as[driver.Purger](q.Queue).Purge(q.ctx()); err != nil || n != 3+delayed {
		q.t.Errorf("purge removed %d, %v, wanted %d", n, err, 3+delayed)
	}
	stats(0, 0, 0)
	q.nothing("it was purged")
	if out, err := q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: ds[1].Receipt}); err == nil && out[0] == driver.Unknown {
		q.t.Errorf("the ack of a purged message returned %v", out)
	}
}

func (q *queueBench) deadLetter(id string, m driver.Message) *driver.DeadLetter {
	return &driver.DeadLetter{
		ID: id, Kind: driver.DeadLetterFailed, Reason: "it failed", Key: driver.Key{Consumer: "c", Tenant: "t", Raw: "k\x00|"},
		Generation: 2, Token: 1<<63 - 5, Version: "v\x00\xff", Attempts: 5, Message: m, FirstReceived: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// dlq is the queue's dead-letter queue; without dead letters, Dead has to be refused and the message stays.
func (q *queueBench) dlq() (driver.DeadLetterQueue, bool) {
	q.t.Helper()
	dlq, ok := driver.DeadLettersOf(q.Queue)
	if q.f.DeadLetters {
		if !ok {
			q.t.Fatal("the queue declares dead letters, and is neither a driver.DeadLetterQueue nor a driver.DeadLetterKeeper")
		}
		return dlq, true
	}
	q.sendN(1)
	d := q.receive(1)[0]
	_, err := q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: q.deadLetter("l", d.Message)})
	if !errors.Is(err, driver.ErrUnsupported) {
		q.t.Errorf("settle with dead returned %v, wanted ErrUnsupported: it is not declared", err)
	}
	q.settle(driver.Settlement{Receipt: d.Receipt}) // it is still there
	return nil, false
}

func (q *queueBench) deadLetters(dlq driver.DeadLetterQueue, want ...string) []driver.DeadLetter {
	q.t.Helper()
	ls, err := dlq.DeadLetters(q.ctx(), 0)
	if err != nil {
		q.t.Fatalf("dead letters: %v", err)
	}
	var ids []string
	for _, l := range ls {
		ids = append(ids, l.ID)
	}
	if !slices.Equal(ids, want) {
		q.t.Fatalf("the dead letters are %v, wanted %v", ids, want)
	}
	return ls
}

func testFM61DeadLetters(q *queueBench) {
	dlq, ok := q.dlq()
	if !ok {
		return
	}
	body := bytes.Repeat([]byte("body\x00\xff"), 100)
	q.send(driver.Message{ID: "poison", Body: body, Headers: map[string]string{"h": "v"}, Group: "g"}, driver.Message{ID: "other"})
	for _, d := range q.receive(2) {
		if d.ID == "other" {
			q.settle(driver.Settlement{Receipt: d.Receipt})
			continue
		}
		q.settle(driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: q.deadLetter("l-1", d.Message)})
	}
	got := q.deadLetters(dlq, "l-1")[0]
	want := q.deadLetter("l-1", driver.Message{ID: "poison"})
	if got.Kind != want.Kind || got.Reason != want.Reason || got.Key != want.Key || got.Generation != want.Generation ||
		got.Token != want.Token || got.Version != want.Version || got.Attempts != want.Attempts || !got.FirstReceived.Equal(want.FirstReceived) || got.DeadAt.IsZero() {
		q.t.Errorf("the queue returned the dead letter as %+v", got)
	}
	if m := got.Message; m.ID != "poison" || !bytes.Equal(m.Body, body) || m.Header("H") != "v" || m.Group != "g" || m.Queue != q.f.Name {
		q.t.Errorf("the queue returned the dead letter's message as %+v", m)
	}
	// The same message again, with the same dead letter: it stays one.
	q.send(driver.Message{ID: "poison", Body: body})
	d := q.receive(1)[0]
	q.settle(driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: q.deadLetter("l-1", d.Message)})
	q.deadLetters(dlq, "l-1")
	// The second failure after a redrive has another token, so another dead letter.
	q.send(driver.Message{ID: "poison", Body: body})
	d = q.receive(1)[0]
	q.settle(driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: q.deadLetter("l-2", d.Message)})
	q.deadLetters(dlq, "l-1", "l-2")
	q.nothing("dead messages are gone")
}

func testDeadLetterQueue(q *queueBench) {
	dlq, ok := q.dlq()
	if !ok {
		return
	}
	for _, id := range []string{"a", "b", "a", "c"} {
		l := q.deadLetter(id, driver.Message{ID: "m-" + id, Body: []byte(id)})
		if id == "b" {
			l.Version = ""
		}
		if err := dlq.PutDeadLetter(q.ctx(), *l); err != nil {
			q.t.Fatalf("put dead letter %q: %v", id, err)
		}
		q.pass(3 * time.Millisecond) // oldest first, in milliseconds at worst
	}
	for i, l := range q.deadLetters(dlq, "a", "b", "c") {
		if want := [...]driver.Version{"v\x00\xff", "", "v\x00\xff"}[i]; l.Version != want {
			q.t.Errorf("dead letter %s has version %q, wanted %q", l.ID, l.Version, want)
		}
	}
	if ls, err := dlq.DeadLetters(q.ctx(), 2); err != nil || len(ls) != 2 || ls[0].ID != "a" {
		q.t.Errorf("two dead letters: %d, %v", len(ls), err)
	}
	if l, found, err := dlq.DeadLetter(q.ctx(), "b"); err != nil || !found || string(l.Message.Body) != "b" {
		q.t.Errorf("dead letter b: found %v, %v, body %q", found, err, l.Message.Body)
	}
	if _, found, err := dlq.DeadLetter(q.ctx(), "nobody"); err != nil || found {
		q.t.Errorf("a dead letter that is not there: found %v, %v", found, err)
	}
	for range 2 {
		if err := dlq.DeleteDeadLetter(q.ctx(), "b"); err != nil {
			q.t.Errorf("delete dead letter: %v", err)
		}
	}
	q.deadLetters(dlq, "a", "c")
	q.nothing("dead letters are not delivered")
}

func testCloseDeadLetter(q *queueBench) {
	dlq, ok := q.dlq()
	if !ok {
		return
	}
	if err := dlq.PutDeadLetter(q.ctx(), *q.deadLetter("open", driver.Message{ID: "m"})); err != nil {
		q.t.Fatalf("put dead letter: %v", err)
	}
	q.sendN(2)
	ds := q.receive(2)
	q.settle(driver.Settlement{Receipt: ds[0].Receipt, Close: "open"})
	q.deadLetters(dlq)
	q.settle(driver.Settlement{Receipt: ds[1].Receipt, Close: "was never there"})
}
