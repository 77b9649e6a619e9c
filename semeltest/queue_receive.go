package semeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

func testArrives(q *queueBench) {
	sent := driver.Message{
		ID: "order-1", Body: []byte("{\"n\":1}\x00\xff"), Headers: map[string]string{"Content-Type": "application/json", "x-empty": ""},
		Position: &driver.Position{Log: "of another queue"},
	}
	q.send(sent)
	d := q.receive(1)[0]
	if d.ID != sent.ID || !bytes.Equal(d.Body, sent.Body) || d.Header("content-type") != "application/json" {
		q.t.Errorf("received %+v, sent %+v", d.Message, sent)
	}
	if d.Queue != q.f.Name || d.Delay != 0 || d.SentAt.IsZero() || d.Receipt == nil {
		q.t.Errorf("queue %q (wanted %q), delay %v, sent at %v, receipt %v", d.Queue, q.f.Name, d.Delay, d.SentAt, d.Receipt)
	}
	if p := d.Position; p != nil && (p.Log == sent.Position.Log || p.Log == "") {
		q.t.Errorf("position %+v: it is the log's own, or nil", p)
	}
	if want := map[bool]int{true: 1}[q.f.Counts]; d.Count != want {
		q.t.Errorf("count is %d, wanted %d", d.Count, want)
	}
	if q.f.Extends && d.Visible <= 0 {
		q.t.Errorf("the queue extends visibility, but Visible is %v", d.Visible)
	}
	q.settle(driver.Settlement{Receipt: d.Receipt})
	q.send(driver.Message{Body: []byte("no id")}, driver.Message{Body: []byte("no id")})
	if ds := q.receive(2); ds[0].ID == "" || ds[0].ID == ds[1].ID {
		q.t.Errorf("messages sent without an ID arrived with %q and %q", ds[0].ID, ds[1].ID)
	}
}

func testExclusive(q *queueBench) {
	ids := q.sendN(5)
	ds := q.receive(5)
	if got := idsOf(ds); !slices.Equal(got, ids) {
		q.t.Errorf("received %v, sent %v", got, ids)
	}
	q.nothing("all messages are in flight")
	receipts := map[any]bool{}
	for _, d := range ds {
		receipts[d.Receipt] = true // panics when receipts are not comparable
	}
	if len(receipts) != len(ds) {
		q.t.Errorf("%d deliveries have %d receipts", len(ds), len(receipts))
	}
}

func testFM27Expiry(q *queueBench) {
	q.sendN(3)
	ds := q.receive(3)
	if q.visible(ds[0]) == 0 {
		q.t.Log("left out: the queue has no visibility timeout, see the cases with QueueSetup.Restart")
		return
	}
	q.pass(q.visible(ds[0]) + 20*time.Millisecond)
	again := q.receive(3)
	if got, want := idsOf(again), idsOf(ds); !slices.Equal(got, want) {
		q.t.Errorf("after the visibility ended %v were redelivered, wanted %v", got, want)
	}
	if q.f.Counts && again[0].Count != 2 {
		q.t.Errorf("count is %d, wanted 2", again[0].Count)
	}
	q.ackAll(again)
}

func testExtend(q *queueBench) {
	q.sendN(2)
	ds := q.receive(2)
	rest := q.visible(ds[0])
	by := 4 * rest
	if q.f.Visible > 0 { // the queue extends by this fixed time
		by, rest = q.f.Visible, rest/2
		q.pass(rest)
	}
	out, err := q.Queue.Extend(q.ctx(), by, ds[0].Receipt)
	if !q.f.Extends {
		if !errors.Is(err, driver.ErrUnsupported) {
			q.t.Errorf("extend returned %v, %v, wanted ErrUnsupported: it is not declared", out, err)
		}
		return
	}
	if err != nil || len(out) != 1 || out[0] != driver.Applied {
		q.t.Fatalf("extend returned %v, %v, wanted applied", out, err)
	}
	q.pass(rest + 20*time.Millisecond)
	d := q.receive(1)[0]
	if d.ID != ds[1].ID {
		q.t.Errorf("message %q was redelivered although its visibility was extended", d.ID)
	}
	q.nothing("the other one was extended")
	q.settle(driver.Settlement{Receipt: ds[0].Receipt}, driver.Settlement{Receipt: d.Receipt})
	if out, err := q.Queue.Extend(q.ctx(), time.Minute, ds[0].Receipt); err == nil && out[0] == driver.Applied {
		q.t.Errorf("the extension of an acked delivery returned %v", out)
	}
	if out, err := q.Queue.Extend(q.ctx(), time.Minute); err != nil || len(out) != 0 {
		q.t.Errorf("extend of nothing returned %v, %v", out, err)
	}
}

func testDelays(q *queueBench) {
	delay := 400 * time.Millisecond
	if q.Advance != nil {
		delay = 20 * time.Second // receive moves the clock when a busy machine makes it wait
	}
	soon := q.timed(0)
	err := q.Send(q.ctx(), driver.Message{ID: "delayed", Delay: delay})
	if !q.f.DelaysSend {
		if !errors.Is(err, driver.ErrUnsupported) {
			q.t.Errorf("send with a delay returned %v, wanted ErrUnsupported: it is not declared", err)
		}
		return
	}
	if err != nil {
		q.t.Fatalf("send with a delay: %v", err)
	}
	q.send(driver.Message{ID: "at once"})
	d := q.receive(1)[0]
	soon()
	if d.ID != "at once" {
		q.t.Fatalf("received %q before its delay had ended", d.ID)
	}
	q.settle(driver.Settlement{Receipt: d.Receipt})
	q.nothing("its delay is not over")
	q.pass(delay)
	if d := q.receive(1)[0]; d.ID != "delayed" || d.Delay != 0 {
		q.t.Errorf("received %q with delay %v", d.ID, d.Delay)
	}
}

func testBatchLimits(q *queueBench) {
	n := 250
	q.sendN(n)
	limit := q.f.MaxBatch
	if limit == 0 {
		limit = 100
	}
	got := map[string]int{}
	for len(got) < n {
		ds := q.receive(1)
		ds = append(ds, q.poll(limit-1, time.Second)...)
		var ss []driver.Settlement
		for _, d := range ds {
			got[d.ID]++
			ss = append(ss, driver.Settlement{Receipt: d.Receipt})
		}
		q.settle(ss...)
	}
	for id, c := range got {
		if c != 1 {
			q.t.Errorf("message %q was handed out %d times", id, c)
		}
	}
}

func testManyReceivers(q *queueBench) {
	const n = 300
	q.sendN(n)
	var mu sync.Mutex
	got := map[string]int{}
	ctx, stop := context.WithTimeout(q.ctx(), 60*time.Second)
	defer stop()
	together(q.t, 6, func(int) error {
		for ctx.Err() == nil {
			ds, err := q.Queue.Receive(ctx, 7)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("receive: %w", err)
			}
			var ss []driver.Settlement
			for _, d := range ds {
				ss = append(ss, driver.Settlement{Receipt: d.Receipt})
			}
			if out, err := q.Queue.Settle(q.ctx(), ss...); err != nil || slices.Contains(out, driver.Unknown) {
				return fmt.Errorf("settle returned %v: %w", out, err)
			}
			mu.Lock()
			for _, d := range ds {
				got[d.ID]++
			}
			if len(got) == n {
				stop()
			}
			mu.Unlock()
		}
		return nil
	})
	for id, c := range got {
		if c != 1 {
			q.t.Errorf("message %q was handed out %d times while it was visible to nobody else", id, c)
		}
	}
	if len(got) != n {
		q.t.Errorf("%d messages of %d were received", len(got), n)
	}
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
	inFlight := map[byte]byte{} // messages of each group
	var held []driver.Delivery
	for done := 0; done < groups*each; {
		before := maps.Clone(inFlight)
		wait := 60 * time.Millisecond
		if len(held) == 0 { // a message must come, however busy the machine is
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
		if d.Count == 1 && d.Body[1]%3 == 1 { // now and then the head is redelivered, and the rest of its group
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
