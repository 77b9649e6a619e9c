package semeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

func (q *queueBench) deadLetter(id string, m driver.Message) *driver.DeadLetter {
	return &driver.DeadLetter{
		ID: id, Kind: driver.DeadLetterFailed, Reason: "it failed", Key: driver.Key{Consumer: "c", Tenant: "t", Raw: "k\x00|"},
		Generation: 2, Token: 1<<63 - 5, Version: "v\x00\xff", Attempts: 5, Message: m, FirstReceived: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// box is the queue's dead-letter queue; without dead letters, Dead has to be refused and the message stays.
func (q *queueBench) box() (driver.DeadLetterQueue, bool) {
	q.t.Helper()
	box, ok := driver.DeadLettersOf(q.Queue)
	if q.f.DeadLetters {
		if !ok {
			q.t.Fatal("the queue declares dead letters, and is neither a driver.DeadLetterQueue nor a driver.DeadLetterKeeper")
		}
		return box, true
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

func (q *queueBench) deadLetters(box driver.DeadLetterQueue, want ...string) []driver.DeadLetter {
	q.t.Helper()
	ls, err := box.DeadLetters(q.ctx(), 0)
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
	box, ok := q.box()
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
	got := q.deadLetters(box, "l-1")[0]
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
	q.deadLetters(box, "l-1")
	// The second failure after a redrive has another token, so another dead letter.
	q.send(driver.Message{ID: "poison", Body: body})
	d = q.receive(1)[0]
	q.settle(driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: q.deadLetter("l-2", d.Message)})
	q.deadLetters(box, "l-1", "l-2")
	q.nothing("dead messages are gone")
}

func testDeadLetterBox(q *queueBench) {
	box, ok := q.box()
	if !ok {
		return
	}
	for _, id := range []string{"a", "b", "a", "c"} {
		l := q.deadLetter(id, driver.Message{ID: "m-" + id, Body: []byte(id)})
		if id == "b" {
			l.Version = ""
		}
		if err := box.PutDeadLetter(q.ctx(), *l); err != nil {
			q.t.Fatalf("put dead letter %q: %v", id, err)
		}
		q.pass(3 * time.Millisecond) // oldest first, in milliseconds at worst
	}
	for i, l := range q.deadLetters(box, "a", "b", "c") {
		if want := [...]driver.Version{"v\x00\xff", "", "v\x00\xff"}[i]; l.Version != want {
			q.t.Errorf("dead letter %s has version %q, wanted %q", l.ID, l.Version, want)
		}
	}
	if ls, err := box.DeadLetters(q.ctx(), 2); err != nil || len(ls) != 2 || ls[0].ID != "a" {
		q.t.Errorf("two dead letters: %d, %v", len(ls), err)
	}
	if l, found, err := box.DeadLetter(q.ctx(), "b"); err != nil || !found || string(l.Message.Body) != "b" {
		q.t.Errorf("dead letter b: found %v, %v, body %q", found, err, l.Message.Body)
	}
	if _, found, err := box.DeadLetter(q.ctx(), "nobody"); err != nil || found {
		q.t.Errorf("a dead letter that is not there: found %v, %v", found, err)
	}
	for range 2 {
		if err := box.DeleteDeadLetter(q.ctx(), "b"); err != nil {
			q.t.Errorf("delete dead letter: %v", err)
		}
	}
	q.deadLetters(box, "a", "c")
	q.nothing("dead letters are not delivered")
}

func testCloseDeadLetter(q *queueBench) {
	box, ok := q.box()
	if !ok {
		return
	}
	if err := box.PutDeadLetter(q.ctx(), *q.deadLetter("open", driver.Message{ID: "m"})); err != nil {
		q.t.Fatalf("put dead letter: %v", err)
	}
	q.sendN(2)
	ds := q.receive(2)
	q.settle(driver.Settlement{Receipt: ds[0].Receipt, Close: "open"})
	q.deadLetters(box)
	q.settle(driver.Settlement{Receipt: ds[1].Receipt, Close: "was never there"})
}

// testGroups sends interleaved groups: each comes in its order, one at a time, or a run of it in one Receive.
func testGroups(q *queueBench) {
	if !q.f.Orders {
		return
	}
	const groups, each = 3, 8
	for i := range each {
		for g := range groups {
			q.send(driver.Message{ID: fmt.Sprintf("%d-%d", g, i), Group: fmt.Sprintf("group-%d", g), Body: []byte{byte(g), byte(i)}})
		}
	}
	var next [groups]byte
	inFlight := map[byte]byte{} // how many
	var held []driver.Delivery
	for done := 0; done < groups*each; {
		before := maps.Clone(inFlight)
		wait := 100 * time.Millisecond
		if len(held) == 0 { // then there is something to come, however busy the machine is
			wait = 10 * time.Second
		}
		for _, d := range q.poll(10, wait) {
			g, i := d.Body[0], d.Body[1]
			if i != next[g]+inFlight[g] || inFlight[g] > 0 && (!q.f.Runs || before[g] > 0) {
				q.t.Fatalf("group %d: number %d came, wanted %d (in flight: %v)", g, i, next[g], inFlight[g])
			}
			inFlight[g]++
			held = append(held, d)
		}
		if len(held) == 0 {
			q.t.Fatalf("nothing came after %d of %d messages", done, groups*each)
		}
		d := held[0]
		held = held[1:]
		if d.Count == 1 && d.Body[1]%3 == 1 { // now and then the head has to come once more, and what follows it too
			q.settle(driver.Settlement{Receipt: d.Receipt, Action: driver.Retry})
			held = slices.DeleteFunc(held, func(f driver.Delivery) bool {
				if f.Body[0] == d.Body[0] {
					q.settle(driver.Settlement{Receipt: f.Receipt, Action: driver.Defer})
				}
				return f.Body[0] == d.Body[0]
			})
			delete(inFlight, d.Body[0])
			continue
		}
		inFlight[d.Body[0]]--
		next[d.Body[0]]++
		done++
		q.settle(driver.Settlement{Receipt: d.Receipt})
	}
}

// testGroupHead delays the head of a group: the rest of it waits, others do not.
func testGroupHead(q *queueBench) {
	if !q.f.Orders {
		return
	}
	q.send(driver.Message{ID: "1", Group: "g"}, driver.Message{ID: "2", Group: "g"}, driver.Message{ID: "free"})
	want := []string{"1", "free"}
	if q.f.Runs {
		want = []string{"1", "2", "free"}
	}
	ds := q.receive(len(want))
	if got := idsOf(ds); !slices.Equal(got, want) {
		q.t.Fatalf("received %v, wanted %v: the head of the group and the free message", got, want)
	}
	var head driver.Delivery
	for _, d := range ds {
		switch d.ID {
		case "1":
			head = d
		case "2": // its place is behind the head, which is not settled
			q.settle(driver.Settlement{Receipt: d.Receipt, Action: driver.Defer})
		default:
			q.settle(driver.Settlement{Receipt: d.Receipt})
		}
	}
	q.nothing("the head of the group is in flight")
	if q.f.Delays {
		after := q.later(head)
		q.settle(driver.Settlement{Receipt: head.Receipt, Action: driver.Retry, After: after})
		q.nothing("the head of the group is delayed")
		q.pass(after)
	} else {
		q.settle(driver.Settlement{Receipt: head.Receipt, Action: driver.Retry})
	}
	for _, want := range []string{"1", "2"} {
		d := q.receive(1)[0]
		if d.ID != want {
			q.t.Fatalf("received %q, wanted %q", d.ID, want)
		}
		q.settle(driver.Settlement{Receipt: d.Receipt})
	}
}

// testReceiveWaits receives before the message is sent.
func testReceiveWaits(q *queueBench) {
	ctx, cancel := context.WithTimeout(q.ctx(), time.Minute)
	defer cancel()
	got := make(chan []driver.Delivery, 1)
	go func() {
		for ctx.Err() == nil {
			if d, _ := q.Queue.Receive(ctx, 1); len(d) > 0 {
				got <- d
				return
			}
		}
		close(got)
	}()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	q.send(driver.Message{ID: "late"})
	ds := <-got
	if len(ds) != 1 || ds[0].ID != "late" {
		q.t.Fatalf("a waiting receive returned %v", ds)
	}
	if took := time.Since(start); took > 30*time.Second {
		q.t.Errorf("a waiting receive noticed the message after %v", took)
	}
	q.settle(driver.Settlement{Receipt: ds[0].Receipt})
}

// testReceiveCancelled cancels a waiting receive: it returns soon, and nothing is lost.
func testReceiveCancelled(q *queueBench) {
	ctx, cancel := context.WithCancel(q.ctx())
	back := make(chan []driver.Delivery)
	for range 3 {
		go func() {
			d, _ := q.Queue.Receive(ctx, 1)
			back <- d
		}()
	}
	time.Sleep(30 * time.Millisecond)
	cancel()
	for range 3 {
		select {
		case d := <-back:
			q.ackAll(d)
		case <-time.After(time.Minute):
			q.t.Fatal("a cancelled receive does not return")
		}
	}
	q.sendN(1)
	ds, err := q.Queue.Receive(ctx, 1) // with ctx done it may still return some, and those are ours
	if len(ds) == 0 {
		if err == nil {
			q.t.Log("a receive with a done context returned nothing and no error")
		}
		ds = q.receive(1)
	}
	q.settle(driver.Settlement{Receipt: ds[0].Receipt})
}

func testBodies(q *queueBench) {
	largest := q.MaxBody
	if largest == 0 {
		largest = 256 << 10
	}
	for _, n := range []int{0, 1, 4096, 64 << 10, min(largest, 30<<20)} {
		if n > largest {
			continue
		}
		body := make([]byte, n)
		for i := range body {
			body[i] = byte(i * 31)
		}
		q.send(driver.Message{ID: fmt.Sprint("size-", n), Body: body})
		d := q.receive(1)[0]
		if !bytes.Equal(d.Body, body) {
			q.t.Errorf("a body of %d bytes was received as %d bytes, or changed", n, len(d.Body))
		}
		q.settle(driver.Settlement{Receipt: d.Receipt})
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
	blind := errors.Is(err, driver.ErrUnsupported) // it shows messages only to who receives them
	if !blind && (err != nil || len(peeked) != 2 || peeked[0].ID != "m-0" || string(peeked[1].Body) != "m-1") {
		q.t.Errorf("peek returned %v, %v, wanted m-0 and m-1", peeked, err)
	}
	stats(4, 0, delayed)
	ds := q.receive(2)
	stats(2, 2, delayed)
	q.settle(driver.Settlement{Receipt: ds[0].Receipt})
	stats(2, 1, delayed)
	q.pass(20 * time.Millisecond)
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

// testDoneSettle settles with a done context: either it happened or it did not, and the repetition tells.
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
