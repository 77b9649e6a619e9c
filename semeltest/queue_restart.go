package semeltest

import (
	"slices"

	"github.com/semel-dev/semel/driver"
)

// restart replaces the queue by that of another process.
func (q *queueBench) restart() bool {
	q.t.Helper()
	if q.Restart == nil {
		q.t.Log("left out: there is no QueueSetup.Restart")
		return false
	}
	q.Queue = q.Restart(q.t)
	if s, ok := driver.As[driver.Sender](q.Queue); ok {
		q.Send = s.Send
	}
	return true
}

// testFM05Restart: the messages that a dead process held are redelivered, and those that it acked are not.
func testFM05Restart(q *queueBench) {
	q.sendN(6)
	ds := q.receive(6)
	q.ackAll(ds[:3])
	if !q.restart() {
		return
	}
	lost := idsOf(ds[3:])
	got := map[string]driver.Delivery{}
	for begin := q.receive(len(lost)); ; begin = q.receive(1) {
		for _, d := range begin {
			got[d.ID] = d
		}
		if !slices.ContainsFunc(lost, func(id string) bool { _, ok := got[id]; return !ok }) {
			break
		}
	}
	if back := len(got) - len(lost); back > q.f.Unconfirmed {
		q.t.Errorf("%d acked messages came again, %d can (QueueFeatures.Unconfirmed)", back, q.f.Unconfirmed)
	}
	for _, d := range got {
		q.settle(driver.Settlement{Receipt: d.Receipt})
	}
}

// testFM18RestartStale: a receipt of a dead process is Lost and changes nothing, or the broker cannot tell.
func testFM18RestartStale(q *queueBench) {
	q.sendN(1)
	old := q.receive(1)[0]
	before := q.Queue
	if !q.restart() {
		return
	}
	d := q.receive(1)[0]
	if out, err := before.Settle(q.ctx(), driver.Settlement{Receipt: old.Receipt, Action: driver.Retry}); err == nil && out[0] == driver.Lost {
		q.nothing("a lost settlement changes nothing: the message is in flight")
	}
	out, err := q.Queue.Settle(q.ctx(), driver.Settlement{Receipt: d.Receipt})
	if err != nil || out[0] == driver.Unknown {
		q.t.Errorf("the ack of the new delivery returned %v, %v", out, err)
	}
}

// testRestartDelay: a message that was delayed when its process died is delivered, at the latest when its delay has ended.
func testRestartDelay(q *queueBench) {
	if !q.f.Delays {
		return
	}
	q.sendN(1)
	d := q.receive(1)[0]
	after := q.later(d)
	q.settle(driver.Settlement{Receipt: d.Receipt, Action: driver.Defer, After: after})
	if !q.restart() {
		return
	}
	q.pass(after)
	q.settle(driver.Settlement{Receipt: q.receive(1)[0].Receipt})
}

// testNotEmptyEarly: a queue is not empty after a send.
func testNotEmptyEarly(q *queueBench) {
	ins, ok := driver.As[driver.QueueInspector](q.Queue)
	if !ok {
		q.t.Log("left out: the queue is no driver.QueueInspector")
		return
	}
	for i := range 100 {
		q.send(driver.Message{ID: "m", Body: []byte{byte(i)}})
		if s, err := ins.Stats(q.ctx()); err != nil || s.Empty() && !s.Approximate {
			q.t.Fatalf("after message %d was sent the stats are %+v (%v), and say that the queue is empty", i, s, err)
		}
		q.ackAll(q.receive(1))
	}
}
