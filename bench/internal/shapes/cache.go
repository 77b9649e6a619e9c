package shapes

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
)

// committer is a store with mode A2.
type committer interface {
	driver.Store
	driver.Committer
}

// counted counts what reaches a store: every call is at least one statement and one round trip.
type counted struct {
	committer
	calls, claims atomic.Int64
}

func (c *counted) Claim(ctx context.Context, list ...driver.Claim) ([]driver.Grant, error) {
	c.calls.Add(1)
	c.claims.Add(int64(len(list)))
	return c.committer.Claim(ctx, list...)
}

func (c *counted) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	c.calls.Add(1)
	return c.committer.Commit(ctx, w...)
}

func (c *counted) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	c.calls.Add(1)
	return c.committer.Extend(ctx, lease, h...)
}

func (c *counted) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	c.calls.Add(1)
	return c.committer.Finish(ctx, f...)
}

// duplicated makes n deliveries, a share of which repeat an earlier one at random distance: half of these under the id of
// that (the broker delivered again), half under a new one (the producer sent again). The key is in a header.
func duplicated(n int, share float64, seed uint64) (list []driver.Message, keys int) {
	rnd := rand.New(rand.NewPCG(seed, 0xf407))
	keys = max(n-int(float64(n)*share+0.5), 1)
	type place struct {
		at float64
		m  driver.Message
	}
	places := make([]place, 0, n)
	for i, m := range load.Distinct(keys, seed) {
		places = append(places, place{float64(i), driver.Message{ID: m.ID, Body: m.Body, Headers: map[string]string{"idempotency-key": m.ID}}})
	}
	for i := keys; i < n; i++ {
		of := rnd.IntN(max(keys*9/10, 1)) // of the last ones too many copies would be in flight at once
		m := places[of].m
		if i%2 == 0 {
			m.ID = newID()
		}
		places = append(places, place{float64(of) + 0.5 + rnd.Float64()*float64(keys-of), m})
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	for _, p := range places {
		list = append(list, p.m)
	}
	return list, keys
}

// cacheMeasure has a consumer with its source in this process handle deliveries of which a share are duplicates, with a
// cache before the store (size 0 = none).
func cacheMeasure(percent int, name, title string, o cache.Options) harness.Measure {
	const batch = 100
	return harness.Measure{
		Name: fmt.Sprintf("cache-pg-%d-%s", percent, name), Kind: harness.Cache, Unit: "deliveries", N: 40000,
		Title:    fmt.Sprintf("%d %% duplicates, %s", percent, title),
		Settings: fmt.Sprintf("PostgreSQL; InTx with *Statements; source in this process; cache.Options.Size %d; Concurrency 200, Batch 100", o.Size),
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withPostgres(ctx, e, func(d *harness.Database, db *postgres.DB) (s harness.Sample, err error) {
				list, keys := duplicated(e.N, float64(percent)/100, uint64(e.Round))
				store := &counted{committer: db.Store()}
				done, src := newSourceOf(ctx, list)
				stop := e.Watch()
				err = consume(ctx, done, semel.Config{
					Queue: src, Store: cache.New(store, o), Concurrency: 2 * batch, Batch: batch, // more, and the engine returns copies of one key
					Handler: semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
						tx.Exec(load.Effect, a.Header("idempotency-key"), len(a.Body))
						return nil
					}),
				})
				s.Usage = stop()
				if err != nil {
					return s, err
				}
				pool, err := d.Pool(ctx, 1)
				if err != nil {
					return s, err
				}
				l, err := load.ReadLedger(ctx, pool)
				if err == nil && !l.Exact(keys) {
					err = fmt.Errorf("the figure is refused: %d keys left %d rows with %d ids in the ledger", keys, l.Rows, l.IDs)
				}
				s.Done, s.Deliveries = len(list), len(list)
				s.Values = map[string]float64{
					"claims_per_delivery": float64(store.claims.Load()) / float64(len(list)),
					"calls_per_thousand":  1000 * float64(store.calls.Load()) / float64(len(list)),
				}
				return s, err
			})
		},
	}
}

// caches are the measures of the cache, in the order of the report.
func caches() (list []harness.Measure) {
	for _, percent := range []int{5, 50, 95} {
		list = append(list,
			cacheMeasure(percent, "off", "no cache", cache.Options{}),
			cacheMeasure(percent, "on", "cache", cache.Options{Size: 100_000}),
			cacheMeasure(percent, "strangers", "cache with Strangers", cache.Options{Size: 100_000, Strangers: true}))
	}
	return list
}
