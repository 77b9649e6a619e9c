package semeltest

import (
	"context"
	"fmt"
	"sort"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/flake"
)

// RunQueue tests a queue: the features that it declares work, and the others return driver.ErrUnsupported. A queue
// without driver.Sender needs QueueSetup.Send.
//
// With a real clock a case that fails while the machine stalls is repeated, because the failure proves nothing.
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
		{"dead-letter queue", with(testDeadLetterQueue)},
		{"dead letters by page", with(testDeadLetterPages)},
		{"dead letters by group", with(testDeadLetterGroups)},
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

// queueBench is a queue with the helpers of the cases.
type queueBench struct {
	QueueSetup
	t testing.TB
	f driver.QueueFeatures
}

func newQueueBench(t testing.TB, s QueueSetup) *queueBench {
	t.Helper()
	q := &queueBench{QueueSetup: s, t: t, f: s.Queue.Features()}
	if q.Send == nil {
		sender, ok := driver.As[driver.Sender](s.Queue)
		if !ok {
			t.Fatal("the queue is no driver.Sender: give the suite a QueueSetup.Send")
		}
		q.Send = sender.Send
	}
	if q.f.Name == "" || q.f.Kind == "" {
		t.Errorf("features name no queue or kind: %+v", q.f)
	}
	return q
}

func (q *queueBench) ctx() context.Context { return q.t.Context() }

func (q *queueBench) send(ms ...driver.Message) {
	q.t.Helper()
	defer q.timed(0)()
	if err := q.Send(q.ctx(), ms...); err != nil {
		q.t.Fatalf("send of %d messages: %v", len(ms), err)
	}
}

// sendN sends n messages with the ids and bodies m-0, m-1, ...
func (q *queueBench) sendN(n int) []string {
	q.t.Helper()
	var ids []string
	var ms []driver.Message
	for i := range n {
		ids = append(ids, fmt.Sprintf("m-%d", i))
		ms = append(ms, driver.Message{ID: ids[i], Body: []byte(ids[i])})
	}
	q.send(ms...)
	return ids
}

// receive receives n messages. It moves the clock by a second after each look that finds nothing, and gives up after a hundred
// seconds of that clock; without Advance after two minutes.
func (q *queueBench) receive(n int) []driver.Delivery {
	q.t.Helper()
	var all []driver.Delivery
	wait, looks := 5*time.Second, 24
	if q.Advance != nil {
		wait, looks = 100*time.Millisecond, 100
	}
	for empty := 0; len(all) < n; {
		d := q.poll(n-len(all), wait)
		all = append(all, d...)
		if len(d) > 0 {
			continue
		}
		if empty++; empty == looks {
			q.t.Fatalf("received %d messages of %d", len(all), n)
		}
		if q.Advance != nil {
			q.Advance(time.Second)
		}
	}
	return all
}

// poll receives once and waits no longer than d.
func (q *queueBench) poll(limit int, d time.Duration) []driver.Delivery {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(q.ctx(), d)
	defer cancel()
	defer q.timed(d)()
	if m := q.f.MaxBatch; m > 0 {
		limit = min(limit, m)
	}
	ds, err := q.Queue.Receive(ctx, limit)
	if err != nil && ctx.Err() == nil {
		q.t.Fatalf("receive: %v", err)
	}
	if len(ds) > limit {
		q.t.Errorf("receive of at most %d returned %d deliveries", limit, len(ds))
	}
	return ds
}

// nothing wants that no message can be received now.
func (q *queueBench) nothing(why string) {
	q.t.Helper()
	if d := q.poll(1, 60*time.Millisecond); len(d) > 0 {
		q.t.Fatalf("received message %q, but %s", d[0].ID, why)
	}
}

// visible is how long a delivery is kept.
func (q *queueBench) visible(d driver.Delivery) time.Duration {
	if q.Visibility > 0 {
		return q.Visibility
	}
	return d.Visible
}

// later is a delay that is shorter than the visibility, where there is one.
func (q *queueBench) later(d driver.Delivery) time.Duration {
	if v := q.visible(d); v > 0 {
		return v / 2
	}
	return 500 * time.Millisecond
}

// pass lets time pass on the queue's clock.
func (q *queueBench) pass(d time.Duration) {
	if q.Advance != nil {
		q.Advance(d)
		return
	}
	time.Sleep(d)
}

// timed measures how far a call exceeds the time that it may take, from now to the call of the returned function.
func (q *queueBench) timed(may time.Duration) func() {
	began := time.Now()
	return func() { flake.Note(q.t, time.Since(began)-may) }
}

func (q *queueBench) settle(ss ...driver.Settlement) {
	q.t.Helper()
	defer q.timed(0)()
	settle(q.t, q.Queue, ss...)
}

func (q *queueBench) ackAll(ds []driver.Delivery) {
	q.t.Helper()
	for _, d := range ds {
		q.settle(driver.Settlement{Receipt: d.Receipt})
	}
}

func idsOf(ds []driver.Delivery) []string {
	var ids []string
	for _, d := range ds {
		ids = append(ids, d.ID)
	}
	sort.Strings(ids)
	return ids
}
