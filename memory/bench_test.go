package memory_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

const batch = 100

// perMessage runs one, which handles a batch, and reports ns and allocations per message. prepare runs outside of the
// measurement, before each.
func perMessage(b *testing.B, prepare, one func(round int)) {
	b.Helper()
	var before, after runtime.MemStats
	var mallocs uint64
	var spent time.Duration
	for i := range b.N {
		prepare(i)
		runtime.ReadMemStats(&before)
		start := time.Now()
		for j := range 100 {
			one(i*100 + j)
		}
		spent += time.Since(start)
		runtime.ReadMemStats(&after)
		mallocs += after.Mallocs - before.Mallocs
	}
	n := float64(b.N * batch * 100)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(spent.Nanoseconds())/n, "ns/msg")
	b.ReportMetric(float64(mallocs)/n, "allocs/msg")
}

type bench struct {
	ctx    context.Context
	queue  *memory.Queue
	store  *memory.Store
	sends  []driver.Message
	claims []driver.Claim
	finish []driver.Finish
	works  []driver.Work
	settle []driver.Settlement
	n      int
	ahead  time.Duration
}

func newBench() *bench {
	x := &bench{
		ctx: context.Background(), claims: make([]driver.Claim, batch), finish: make([]driver.Finish, batch),
		works: make([]driver.Work, batch), settle: make([]driver.Settlement, batch),
	}
	db := memory.Open(memory.WithClock(func() time.Time { return time.Now().Add(x.ahead) }))
	x.queue, x.store = db.Queue("orders"), db.Store()
	return x
}

// fill purges the records of earlier rounds, so that the store keeps its size, and sends what 100 rounds receive.
func (x *bench) fill(b *testing.B) {
	x.ahead += 2 * time.Hour
	if _, _, err := x.store.Sweep(x.ctx, 0, 0); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 300)
	x.sends = x.sends[:0]
	for range batch * 100 {
		x.n++
		x.sends = append(x.sends, driver.Message{ID: "order-" + strconv.Itoa(x.n), Body: body})
	}
	if err := x.queue.Send(x.ctx, x.sends...); err != nil {
		b.Fatal(err)
	}
}

func (x *bench) receive(b *testing.B) []driver.Delivery {
	d, err := x.queue.Receive(x.ctx, batch)
	if err != nil || len(d) != batch {
		b.Fatal(len(d), err)
	}
	return d
}

func (x *bench) claim(b *testing.B, id func(i int) string) []driver.Grant {
	for i := range x.claims {
		c := &x.claims[i]
		x.n++
		*c = driver.Claim{Key: driver.Key{Consumer: "orders", Raw: id(i)}, DeliveryID: id(i), Lease: 27 * time.Second}
		binary.BigEndian.PutUint64(c.Nonce[:], uint64(x.n)+1)
	}
	g, err := x.store.Claim(x.ctx, x.claims...)
	if err != nil || g[0].Verdict != driver.Acquired {
		b.Fatal(g[0], err)
	}
	return g
}

func BenchmarkReceiveSettle(b *testing.B) {
	x := newBench()
	perMessage(b, func(int) { x.fill(b) }, func(int) {
		for i, d := range x.receive(b) {
			x.settle[i] = driver.Settlement{Receipt: d.Receipt}
		}
		if _, err := x.queue.Settle(x.ctx, x.settle...); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkClaimFinish(b *testing.B) {
	x := newBench()
	perMessage(b, func(int) { x.fill(b); x.drain(b) }, func(round int) {
		ids := x.sends[round%100*batch:]
		for i, g := range x.claim(b, func(i int) string { return ids[i].ID }) {
			x.finish[i] = driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: time.Hour}
		}
		if _, err := x.store.Finish(x.ctx, x.finish...); err != nil {
			b.Fatal(err)
		}
	})
}

func (x *bench) drain(b *testing.B) {
	if _, err := x.queue.Purge(x.ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWhole is what one message costs in all on joined queue and store: Receive, Claim, Commit with the ack.
func BenchmarkWhole(b *testing.B) {
	x := newBench()
	perMessage(b, func(int) { x.fill(b) }, func(int) {
		d := x.receive(b)
		g := x.claim(b, func(i int) string { return d[i].ID })
		for i := range g {
			x.settle[i] = driver.Settlement{Receipt: d[i].Receipt}
			x.works[i] = driver.Work{
				Finish: driver.Finish{Hold: g[i].Hold, Final: driver.Complete, Keep: time.Hour}, Ack: &x.settle[i],
			}
		}
		if _, err := x.store.Commit(x.ctx, x.works...); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkWholeSeparate is the same with Finish and Settle instead of one joined Commit.
func BenchmarkWholeSeparate(b *testing.B) {
	x := newBench()
	perMessage(b, func(int) { x.fill(b) }, func(int) {
		d := x.receive(b)
		g := x.claim(b, func(i int) string { return d[i].ID })
		for i := range g {
			x.settle[i] = driver.Settlement{Receipt: d[i].Receipt}
			x.finish[i] = driver.Finish{Hold: g[i].Hold, Final: driver.Complete, Keep: time.Hour}
		}
		if _, err := x.store.Finish(x.ctx, x.finish...); err != nil {
			b.Fatal(err)
		}
		if _, err := x.queue.Settle(x.ctx, x.settle...); err != nil {
			b.Fatal(err)
		}
	})
}
