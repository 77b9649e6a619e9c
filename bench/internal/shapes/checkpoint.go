package shapes

import (
	"context"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/bench/internal/harness"
)

// postgresCheckpoint is what PostgreSQL writes ahead for the first new keys after a checkpoint: every page that one of them
// changes first is logged whole. Keys in an order share their pages.
func postgresCheckpoint() harness.Measure {
	const keys, repeats = 1000, 5
	return harness.Measure{
		Name: "semel-pg-checkpoint", Title: "semel on PostgreSQL, WAL bytes of a new key right after a checkpoint", Kind: harness.Semel,
		Unit: "keys", N: 500_000, Settings: "n records before; the first 1,000 keys after a checkpoint, claimed and completed in batches of 100",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withPostgres(ctx, e, func(d *harness.Database, db *postgres.DB) (s harness.Sample, err error) {
				p := prefilledPostgres(d, db)
				if _, err := p.prefill(ctx, e, e.N); err != nil {
					return s, err
				}
				s.Values = map[string]float64{}
				for _, o := range orders() {
					var list []float64
					for range repeats {
						if err := e.Checkpoint(ctx); err != nil {
							return s, err
						}
						stop := e.Watch()
						for range keys / 100 {
							if err := fillBatch(ctx, p.store, 100, o.next, retention); err != nil {
								return s, err
							}
						}
						u := stop()
						s.Wall, s.Client, s.Server = s.Wall+u.Wall, s.Client+u.Client, s.Server+u.Server
						s.Done += keys
						list = append(list, float64(u.WAL)/keys)
					}
					o.value(s.Values, "wal_bytes", list)
				}
				s.Values["ordered_to_random"] = s.Values["ordered_wal_bytes"] / s.Values["random_wal_bytes"]
				return s, nil
			})
		},
	}
}
