package semeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// RunQueue tests a queue: the features that it declares work, and the others return driver.ErrUnsupported. A queue
// without driver.Sender needs QueueSetup.Send.
//
// With a real clock a case that fails while the machine stands still is repeated: it shows nothing.
func RunQueue(t *testing.T, open QueueFactory) {
	runTimed(t, queueCases(), open, func(s QueueSetup) time.Duration {
		if s.Advance != nil {
			return 0
		}
		return standstill(s.Visibility)
	})
}

// CheckQueue runs the same suite and returns the failures instead of failing t. See [CheckStore].
func CheckQueue(t testing.TB, open QueueFactory, only ...string) []string {
	t.Helper()
	return checkCases(t, queueCases(), open, only)
}

func queueCases() []suiteCase[QueueSetup] {
	with := func(f func(q *queueBench)) func(testing.TB, QueueSetup) {
		return func(t testing.TB, s QueueSetup) { f(newQueueBench(t, s)) }
	}
	return []suiteCase[QueueSetup]{
		{"messages arrive as they were sent", with(testArrives)},
		{"a delivery is nobody else's", with(testExclusive)},
		{"ack", with(testAck)},
		{"retry and defer", with(testRetry)},
		{"FM27 visibility ends", with(testFM27Expiry)},
		{"FM18 stale receipts", with(testFM18Stale)},
		{"extend", with(testExtend)},
		{"delays", with(testDelays)},
		{"outcomes are positional", with(testPositional)},
		{"batch limits", with(testBatchLimits)},
		{"FM61 dead letters", with(testFM61DeadLetters)},
		{"dead-letter queue", with(testDeadLetterBox)},
		{"closing dead letters", with(testCloseDeadLetter)},
		{"ordered groups", with(testGroups)},
		{"a group waits for its head", with(testGroupHead)},
		{"receive waits", with(testReceiveWaits)},
		{"receive is cancelled", with(testReceiveCancelled)},
		{"many receivers", with(testManyReceivers)},
		{"bodies", with(testBodies)},
		{"inspection", with(testInspection)},
		{"a done context settles nothing by halves", with(testDoneSettle)},
		{"FM05 what a dead process held comes again", with(testFM05Restart)},
		{"FM18 receipts of a dead process", with(testFM18RestartStale)},
		{"a delay outlives the process", with(testRestartDelay)},
		{"what was sent is not empty", with(testNotEmptyEarly)},
	}
}

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
		} else { // the broker cannot tell: the message is wherever the settlement put it
			_, _ = q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: d.Receipt})
			for _, d := range q.poll(1, 100*time.Millisecond) {
				q.settle(driver.Settlement{Receipt: d.Receipt})
			}
		}
	}
}

func testExtend(q *queueBench) {
	q.sendN(2)
	ds := q.receive(2)
	rest := q.visible(ds[0])
	by := 4 * rest
	if q.f.Visible > 0 { // it extends from now on by no other time
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
