package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// BenchmarkBatches compares claim and completion of a batch of 100 with the least that could stand for them: two pipelines
// of 100 SETs. They take turns on one server of their own; only their ratio counts.
func BenchmarkBatches(b *testing.B) {
	for _, fsync := range []string{"no", "everysec", "always"} {
		b.Run("appendfsync="+fsync, func(b *testing.B) {
			srv := own(b, map[string]string{"appendfsync": fsync})
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

func completeBatch(b *testing.B, s *Store, n, size int) {
	claims, ends := make([]driver.Claim, size), make([]driver.Finish, size)
	for i := range claims {
		claims[i] = driver.Claim{Key: keyOf(n*size + i), Nonce: nonce(), Lease: time.Minute}
	}
	g, err := s.Claim(b.Context(), claims...)
	if err != nil {
		b.Fatal(err)
	}
	for i := range g {
		ends[i] = driver.Finish{Hold: g[i].Hold, Final: driver.Complete, Keep: time.Hour}
	}
	if o, err := s.Finish(b.Context(), ends...); err != nil || o[0] != driver.Applied {
		b.Fatal(o, err)
	}
}

// BenchmarkCallers has 256 callers, each with one key at a time, on a connection of its own.
func BenchmarkCallers(b *testing.B) {
	srv := own(b, map[string]string{"appendfsync": "everysec"})
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
	srv := own(b, map[string]string{"appendonly": "no"})
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
