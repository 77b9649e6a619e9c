package kafka

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// TestFM25_ContiguousCommit: the position does not pass a message that is not settled.
func TestFM25_ContiguousCommit(t *testing.T) {
	c, q := fake(t, 1, Options{})
	send(t, q, 0, 5)
	ds := receive(t, q, 5)
	settle(t, q, driver.Ack, driver.Applied, ds[0], ds[2], ds[3], ds[4])
	committed(t, c, q, 0, 1)
	if err := q.member.commitNow(t.Context(), nil); err != nil || position(c, q, 0) != 1 {
		t.Errorf("the position is %d with message 1 in flight, %v", position(c, q, 0), err)
	}
	settle(t, q, driver.Ack, driver.Applied, ds[1])
	committed(t, c, q, 0, 5)
	empty(t, q)
}

// protocols are the ways in which a group assigns partitions.
var protocols = map[string][]kgo.Opt{
	"cooperative": nil,
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"KIP-848":     {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
}

// TestFM26_MembersJoinAndLeave: members join while others hold messages, and leave with messages in flight. Everything arrives,
// what was settled before a partition moved does not come again, and receipts of partitions that moved are Lost.
func TestFM26_MembersJoinAndLeave(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 400
			c, a := fake(t, 6, Options{Client: opts})
			send(t, a, 0, n)
			received := map[int32][]driver.Delivery{}
			for _, d := range receive(t, a, n) {
				received[d.Position.Partition] = append(received[d.Position.Partition], d)
			}
			var held []driver.Delivery // the second half of each partition
			before := map[string]bool{}
			for _, ds := range received {
				held = append(held, ds[len(ds)/2:]...)
				for _, d := range ds[:len(ds)/2] {
					settle(t, a, driver.Ack, driver.Applied, d)
					before[d.ID] = true
				}
			}
			b := open(t, a.topic, a.o)
			var mu sync.Mutex
			got, again := map[string]bool{}, 0
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			reader := func(q *Queue) {
				for ctx.Err() == nil {
					ds, _ := q.Receive(ctx, 50)
					mu.Lock()
					for _, d := range ds {
						if got[d.ID] = true; before[d.ID] {
							again++
						}
					}
					mu.Unlock()
					for _, d := range ds {
						_, _ = q.Settle(ctx, driver.Settlement{Receipt: d.Receipt})
					}
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() { reader(b) })
			wg.Go(func() { reader(a) }) // takes part in the rebalance; it holds the rest of its messages
			stable(t, c, a, 2)
			waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(got) > 0 })
			lost := 0
			for _, d := range held {
				out, err := a.Settle(ctx, driver.Settlement{Receipt: d.Receipt})
				if err != nil || out[0] != driver.Applied && out[0] != driver.Lost {
					t.Errorf("ack of %s: %v, %v", d.ID, out, err)
				}
				mu.Lock()
				if out[0] == driver.Lost {
					lost++
				} else {
					got[d.ID] = true
				}
				mu.Unlock()
			}
			if err := a.Close(); err != nil {
				t.Errorf("leave: %v", err)
			}
			waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == len(held) })
			stop()
			wg.Wait()
			if lost == 0 {
				t.Error("no receipt of a partition that moved is lost")
			}
			if again > 0 {
				t.Errorf("%d messages that were settled before the rebalance came again", again)
			}
		})
	}
}

// TestFM26_PurgeBetweenMemberships: a Receive that waits during a Purge joins the group again, and callbacks of the membership that
// Purge ended leave the messages of the next one alone.
func TestFM26_PurgeBetweenMemberships(t *testing.T) {
	c, q := fake(t, 1, Options{})
	send(t, q, 0, 1)
	settle(t, q, driver.Ack, driver.Applied, receive(t, q, 1)...)
	stable(t, c, q, 1)
	q.mu.Lock()
	before := q.member
	q.mu.Unlock()
	select {
	case <-before.hungry:
	default:
	}
	got := make(chan []driver.Delivery, 1)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	go func() {
		ds, err := q.Receive(ctx, 1)
		if err != nil {
			t.Errorf("a Receive that waited for the end of a purge: %v", err)
		}
		got <- ds
	}()
	waitFor(t, func() bool { return len(before.hungry) > 0 }) // it has looked, and waits
	if _, err := q.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, q, 1, 2)
	ds := <-got
	before.forget([]int32{0})
	settle(t, q, driver.Ack, driver.Applied, ds...)
	committed(t, c, q, 0, 2)
}

// TestFM25_CloseCommits: a member that leaves commits what is settled.
func TestFM25_CloseCommits(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			c, q := fake(t, 1, Options{Client: opts})
			send(t, q, 0, 10)
			for _, d := range receive(t, q, 10) {
				q.mu.Lock()
				q.settle(d.Receipt.(*receipt), driver.Ack, 0) // and the goroutine that commits does not hear of it
				q.mu.Unlock()
			}
			if err := q.Close(); err != nil || position(c, q, 0) != 10 {
				t.Errorf("the position is %d after Close, %v", position(c, q, 0), err)
			}
		})
	}
}

// TestFM26_LeaveDuringRebalance: the group rebalances, and waits for a member that does not respond. Another one leaves meanwhile:
// it waits neither for that member nor for its call timeout, and the group does not wait for it.
func TestFM26_LeaveDuringRebalance(t *testing.T) {
	c, a := fake(t, 4, Options{CallTimeout: timeout})
	silent := open(t, a.topic, a.o)
	if _, err := silent.join(); err != nil {
		t.Fatal(err)
	}
	stable(t, c, a, 1)
	silent.mu.Lock() // it cannot give up its partitions, so it does not join again
	defer silent.mu.Unlock()
	if _, err := a.join(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := c.WaitGroupInfo(ctx, a.o.Group, func(i *kfake.GroupInfo) bool { return i.State == "PreparingRebalance" && len(i.Members) == 2 })
	if err != nil {
		t.Fatal(err)
	}
	id, _ := a.member.client.GroupMetadata()
	began := time.Now()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > timeout/2 {
		t.Errorf("leaving took %v", took)
	}
	for _, m := range c.GroupInfo(a.o.Group).Members {
		if m.MemberID == id {
			t.Error("the group still has the member that left")
		}
	}
}

// waitFor waits for a condition that another goroutine makes true.
func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			t.Fatal("what must happen does not happen")
		}
		_ = redeliver.Wait(ctx, time.Millisecond, nil)
	}
}

// TestFM01_ZombieMember: the group expelled a member that stood still. It does not know: what it acknowledges is not committed,
// and the member that has its partition now decides alone.
func TestFM01_ZombieMember(t *testing.T) {
	c, a := fake(t, 1, Options{Client: []kgo.Opt{kgo.HeartbeatInterval(2 * time.Minute), kgo.SessionTimeout(4 * time.Minute)}})
	send(t, a, 0, 10)
	old := receive(t, a, 10)
	id, _ := a.member.client.GroupMetadata()
	expel(t, a, id)
	b := open(t, a.topic, Options{Client: kafkatest.Client(c)})
	ds := receive(t, b, 10)
	settle(t, a, driver.Ack, driver.Applied, old...) // it cannot know
	if err := a.member.commitNow(t.Context(), nil); !expelled(err) {
		t.Errorf("the commit of an expelled member returned %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("an expelled member that closes: %v", err)
	}
	settle(t, b, driver.Ack, driver.Applied, ds[:4]...)
	committed(t, c, b, 0, 4)
}

// TestFM01_StoppedMember: a member that was expelled notices, its receipts are Lost, and it takes part again.
func TestFM01_StoppedMember(t *testing.T) {
	_, a := fake(t, 1, Options{})
	send(t, a, 0, 10)
	old := receive(t, a, 10)
	id, _ := a.member.client.GroupMetadata()
	expel(t, a, id)
	again := receive(t, a, 10) // it joins anew, and is the only member
	settle(t, a, driver.Ack, driver.Lost, old...)
	settle(t, a, driver.Ack, driver.Applied, again...)
	empty(t, a)
}

// TestFM19_CommitsFail: brokers that refuse commits, or lose them, delay the position. It arrives in the end.
func TestFM19_CommitsFail(t *testing.T) {
	for name, fault := range map[string]kfake.Fault{
		"rebalance": {Err: kerr.RebalanceInProgress}, "coordinator": {Err: kerr.NotCoordinator}, "timeout": {Err: kerr.RequestTimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			c, q := fake(t, 1, Options{})
			send(t, q, 0, 10)
			ds := receive(t, q, 10)
			fault.Group, fault.Count = q.o.Group, 2
			fault.Keys = []kmsg.Key{kmsg.OffsetCommit}
			h := c.Fault(fault)
			settle(t, q, driver.Ack, driver.Applied, ds...)
			committed(t, c, q, 0, 10)
			if h.Hits() == 0 {
				t.Error("no commit failed")
			}
		})
	}
}

// TestFM26_PrefetchedPartitionsMove: partitions move while more messages than a poll takes are ready and nobody receives. The
// member goes on with the partitions that it keeps, or gets again.
func TestFM26_PrefetchedPartitionsMove(t *testing.T) {
	_, q := fake(t, 1, Options{})
	const n = 3 * pollMax
	send(t, q, 0, n)
	receive(t, q, 1)
	waitFor(t, func() bool { q.mu.Lock(); defer q.mu.Unlock(); return len(q.ready) >= pollMax })
	id, _ := q.member.client.GroupMetadata()
	expel(t, q, id)
	waitFor(t, func() bool { q.mu.Lock(); defer q.mu.Unlock(); return len(q.parts) == 0 })
	for range n {
		settle(t, q, driver.Ack, driver.Applied, receive(t, q, 1)...)
	}
	empty(t, q)
}
