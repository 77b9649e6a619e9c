package cache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// counting counts the calls and the claims that reach a store.
type counting struct {
	*memory.Store
	calls, claims atomic.Int64
}

func (c *counting) Claim(ctx context.Context, q ...driver.Claim) ([]driver.Grant, error) {
	c.calls.Add(1)
	c.claims.Add(int64(len(q)))
	return c.Store.Claim(ctx, q...)
}

func (c *counting) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	c.calls.Add(1)
	return c.Store.Finish(ctx, f...)
}

func (c *counting) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	c.calls.Add(1)
	return c.Store.Commit(ctx, w...)
}

// work consumes n deliveries, of which share per cent are copies of earlier ones, one after the other.
func work(t testing.TB, o cache.Options, n, share int) (sum semel.Summary, store *counting, effects int64) {
	db := memory.Open()
	store = &counting{Store: memory.NewStore()}
	q := db.Queue("orders")
	r := rand.New(rand.NewPCG(uint64(share), 1))
	sent := 0
	for i := range n {
		k := sent
		if i > 0 && r.IntN(100) < share {
			k = r.IntN(sent)
		} else {
			sent++
		}
		if err := q.Send(t.Context(), driver.Message{ID: fmt.Sprintf("m%d", k), Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	var ran atomic.Int64
	c, err := semel.New(semel.Config{
		Queue: q, Store: cache.New(store, o), Limit: n, Batch: 1, Concurrency: 1,
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { ran.Add(1); return nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ran.Load() != int64(sent) {
		t.Errorf("%d keys had %d effects", sent, ran.Load())
	}
	return c.Summary(), store, ran.Load()
}

// TestDuplicatesCostNoCall shows S3-11, S3-25, S1-10 and S1-34: with a cache duplicates are counted as hits and reach the
// store no more; a small one has at most as many entries as it may, and evicted keys are replayed by the store; one of
// size 0 has no hits. No outcome differs.
func TestDuplicatesCostNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		off, plain, effects := work(t, cache.Options{}, n, 50)
		asked := plain.claims.Load() // nearly all: some wait for a local duplicate in the engine
		if off.CacheHits != 0 || off.CacheEntries != 0 || asked < effects+100 {
			t.Errorf("without a cache: %d hits, %d claims", off.CacheHits, asked)
		}
		for _, size := range []int{1, 20, 1000} {
			sum, store, ran := work(t, cache.Options{Size: size}, n, 50)
			if ran != effects || sum.Replayed != off.Replayed || sum.Effects != off.Effects {
				t.Errorf("size %d: %+v, without a cache %+v", size, sum, off)
			}
			claims := store.claims.Load()
			t.Logf("size %d: %d hits, %d claims of %d", size, sum.CacheHits, claims, asked)
			if size > 1 && (sum.CacheHits == 0 || claims >= asked) || claims < effects ||
				sum.CacheEntries > int64(size) || sum.CacheEntries == 0 {
				t.Errorf("size %d: %d hits, %d claims, %d entries", size, sum.CacheHits, claims, sum.CacheEntries)
			}
			if size == 1000 && claims != effects {
				t.Errorf("size %d: %d claims of %d keys", size, claims, effects)
			}
		}
	})
}

// TestCacheConcurrently is for the race detector: claims, completions, operators and sweeps of few keys at once. Whatever
// is replayed from memory is the result of the key's latest completion at most MaxAge ago, and nothing else hits.
func TestCacheConcurrently(t *testing.T) {
	db := memory.Open()
	s := cache.New(db.Store(), cache.Options{Size: 4, Strangers: true})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 9))
			for range 400 {
				k := driver.Key{Consumer: "c", Raw: fmt.Sprint(r.IntN(8))}
				c := driver.Claim{Key: k, Lease: time.Hour, DeliveryID: fmt.Sprint("m", r.IntN(3))}
				for i := range c.Nonce {
					c.Nonce[i] = byte(r.Uint32())
				}
				switch r.IntN(20) {
				case 0:
					op := driver.Operation{Kind: driver.Redrive, Key: k, NewGeneration: true, Keep: time.Hour}
					if _, _, err := as[driver.Operator](s).Operate(t.Context(), op); err != nil {
						t.Error(err)
					}
				case 1:
					if _, _, err := as[driver.Sweeper](s).Sweep(t.Context(), time.Hour, 0); err != nil {
						t.Error(err)
					}
				default:
					got, err := s.Claim(t.Context(), c)
					if err != nil {
						t.Error(err)
						return
					}
					if got[0].Verdict == driver.Replay && string(got[0].Result) != k.Raw {
						t.Errorf("key %s was replayed with the result %q", k.Raw, got[0].Result)
					}
					if got[0].Verdict == driver.Acquired {
						f := driver.Finish{Hold: got[0].Hold, Final: driver.Complete, Keep: time.Hour, Result: []byte(k.Raw)}
						if out, err := s.Finish(t.Context(), f); err != nil || out[0] != driver.Applied {
							t.Errorf("complete %s: %v, %v", k.Raw, out, err)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	if st := as[driver.Cached](s).CacheStats(); st.Hits == 0 || st.Entries > 4 {
		t.Errorf("%+v", st)
	}
}

// BenchmarkStoreCalls tells the calls of a store for each delivery, without a cache and with one.
func BenchmarkStoreCalls(b *testing.B) {
	for _, share := range []int{5, 50, 95} {
		for _, size := range []int{0, 1000} {
			b.Run(fmt.Sprintf("%d%% duplicates/size %d", share, size), func(b *testing.B) {
				var calls, claims, n int64
				for b.Loop() {
					_, store, _ := work(b, cache.Options{Size: size}, 1000, share)
					calls, claims, n = calls+store.calls.Load(), claims+store.claims.Load(), n+1000
				}
				b.ReportMetric(float64(calls)/float64(n), "calls/delivery")
				b.ReportMetric(float64(claims)/float64(n), "claims/delivery")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/delivery")
			})
		}
	}
}
