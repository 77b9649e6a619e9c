package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// BenchmarkBatches compares claim and completion of a batch of 100 with the least that could stand for them: two pipelines
// of 100 SETs. They take turns on one server of their own; only their ratio counts.
func BenchmarkBatches(b *testing.B) {
	for _, fsync := range []string{"no", "everysec", "always"} {
		b.Run("appendfsync="+fsync, func(b *testing.B) {
			srv := server.Own(b, "redis", map[string]string{"appendfsync": fsync})
			s := openFor(b, connect(b, srv.URL()), Options{})
			const batch = 100
			var raw, ours time.Duration
			for n := 0; b.Loop(); n++ {
				began := time.Now()
				rawBatch(b, s.client, n, batch, true)
				rawBatch(b, s.client, n, batch, false)
				raw += time.Since(began)
				began = time.Now()
				completeBatch(b, s, n, batch)
				ours += time.Since(began)
			}
			rate := func(d time.Duration) float64 { return float64(b.N*batch) / d.Seconds() }
			b.ReportMetric(rate(raw), "raw/s")
			b.ReportMetric(rate(ours), "semel/s")
			b.ReportMetric(raw.Seconds()/ours.Seconds(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func rawBatch(b *testing.B, c goredis.UniversalClient, n, size int, fresh bool) {
	_, err := c.Pipelined(b.Context(), func(p goredis.Pipeliner) error {
		for i := range size {
			name := fmt.Sprintf("{raw}:%d:%d", n, i)
			if fresh {
				p.SetNX(b.Context(), name, make([]byte, 32), 0)
			} else {
				p.Set(b.Context(), name, make([]byte, 64), 0)
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

func completeBatch(b *testing.B, s *Store, n, size int) { completeWith(b, s, n, size, nil) }

// completeWith claims and completes keys, and commits acks with them if there are some.
func completeWith(b *testing.B, s *Store, n, size int, acks []driver.Settlement) {
	claims, ends := make([]driver.Claim, size), make([]driver.Work, size)
	for i := range claims {
		claims[i] = driver.Claim{Key: keyOf(n*size + i), Nonce: nonce(), Lease: time.Minute}
	}
	g, err := s.Claim(b.Context(), claims...)
	if err != nil {
		b.Fatal(err)
	}
	for i := range g {
		ends[i].Finish = driver.Finish{Hold: g[i].Hold, Final: driver.Complete, Keep: time.Hour}
		if acks != nil {
			ends[i].Ack = &acks[i]
		}
	}
	if o, err := s.Commit(b.Context(), ends...); err != nil || o[0] != driver.Applied {
		b.Fatal(o, err)
	}
}

// BenchmarkCallers has 256 callers, each with one key at a time, on a connection of its own.
func BenchmarkCallers(b *testing.B) {
	srv := server.Own(b, "redis", map[string]string{"appendfsync": "everysec"})
	const callers = 256
	c := connectWith(b, srv.URL(), callers)
	s := openFor(b, c, Options{})
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			for i := w; i < b.N; i += callers {
				completeBatch(b, s, i, 1)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkMemory measures what a completed record takes.
func BenchmarkMemory(b *testing.B) {
	srv := server.Own(b, "redis", map[string]string{"appendonly": "no"})
	s := openFor(b, connect(b, srv.URL()), Options{})
	before, err := Inspect(b.Context(), s.client)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		completeBatch(b, s, n, 100)
		n++
	}
	after, err := Inspect(b.Context(), s.client)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(after.UsedMemory-before.UsedMemory)/float64(100*n), "B/record")
}

func rawSend(b *testing.B, c goredis.UniversalClient, n int, body []byte) error {
	_, err := c.Pipelined(b.Context(), func(p goredis.Pipeliner) error {
		for range n {
			p.XAdd(b.Context(), &goredis.XAddArgs{Stream: "raw", Values: []any{"body", body}})
		}
		return nil
	})
	return err
}

func rawReceive(b *testing.B, c goredis.UniversalClient, n int) error {
	found, err := c.XReadGroup(b.Context(), &goredis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"raw", ">"}, Count: int64(n), Block: -1}).Result()
	if err != nil {
		return err
	}
	var ids []string
	for _, m := range found[0].Messages {
		ids = append(ids, m.ID)
	}
	_, err = c.Pipelined(b.Context(), func(p goredis.Pipeliner) error {
		p.XAck(b.Context(), "raw", "g", ids...)
		p.XDel(b.Context(), "raw", ids...)
		return nil
	})
	return err
}

func received(b *testing.B, q *Queue, n int) (ss []driver.Settlement) {
	for len(ss) < n {
		ds, err := q.Receive(b.Context(), n-len(ss))
		if err != nil {
			b.Fatal(err)
		}
		for _, d := range ds {
			ss = append(ss, driver.Settlement{Receipt: d.Receipt})
		}
	}
	return ss
}

// BenchmarkStreams compares batches of 100 messages with the plain commands: XADD in a pipeline; XREADGROUP, then XACK and XDEL of
// all at once.
func BenchmarkStreams(b *testing.B) {
	srv := server.Own(b, "redis", map[string]string{"appendfsync": "everysec"})
	q := queueOf(b, openFor(b, connect(b, srv.URL()), Options{}), time.Minute)
	c := q.s.client
	if err := c.XGroupCreateMkStream(b.Context(), "raw", "g", "0").Err(); err != nil {
		b.Fatal(err)
	}
	semeltest.RaceQueue(b, semeltest.QueueRace{
		Messages: 100, Batch: 100, Open: func() driver.Queue { return q },
		Send: func(n int, body []byte) error { return rawSend(b, c, n, body) }, Receive: func(n int) error { return rawReceive(b, c, n) },
	})
}

// BenchmarkJoined measures batches of 100 messages whose acks commit with their records.
func BenchmarkJoined(b *testing.B) {
	srv := server.Own(b, "redis", map[string]string{"appendfsync": "everysec"})
	q := queueOf(b, openFor(b, connect(b, srv.URL()), Options{}), time.Minute)
	const batch = 100
	ms := make([]driver.Message, batch)
	for i := range ms {
		ms[i].Body = make([]byte, 300)
	}
	var spent time.Duration
	for n := 0; b.Loop(); n++ {
		if err := q.Send(b.Context(), ms...); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		completeWith(b, q.s, n, batch, received(b, q, batch))
		spent += time.Since(began)
	}
	if s, err := q.Stats(b.Context()); err != nil || !s.Empty() {
		b.Fatal(s, err)
	}
	b.ReportMetric(float64(b.N*batch)/spent.Seconds(), "receive+claim+commit/s")
	b.ReportMetric(0, "ns/op")
}
