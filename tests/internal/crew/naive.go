package crew

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/driver"
)

// naive is an inbox as it is written without thinking of a crash between two steps. It exists to be caught.
func naive(ctx context.Context, db *postgres.DB, t Task) {
	var wg sync.WaitGroup
	for range max(t.Concurrency, 1) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if naiveRound(ctx, db, t) != nil {
					Sleep(ctx, 50*time.Millisecond) // the server restarts: what was received comes again
				}
			}
		})
	}
	wg.Wait()
}

func naiveRound(ctx context.Context, db *postgres.DB, t Task) error {
	q := db.Queue(t.Queue)
	ds, err := q.Receive(ctx, 10)
	if err != nil {
		return err
	}
	for i := range ds {
		key, err := strconv.ParseInt(string(ds[i].Body), 10, 64)
		if err != nil {
			return err
		}
		step := naiveMarkLast
		if t.Mode == MarkFirst {
			step = naiveMarkFirst
		}
		if err := step(ctx, db, key, t.Work); err != nil {
			return err
		}
		if _, err := q.Settle(ctx, driver.Settlement{Receipt: ds[i].Receipt}); err != nil {
			return err
		}
	}
	return nil
}

// naiveMarkLast doubles: a crash between effect and mark, or two who look before either marks.
func naiveMarkLast(ctx context.Context, db *postgres.DB, key int64, work time.Duration) error {
	var seen bool
	if err := db.Pool().QueryRow(ctx, `SELECT EXISTS (SELECT FROM seen WHERE key = $1)`, key).Scan(&seen); err != nil || seen {
		return err
	}
	Sleep(ctx, work)
	_, err := db.Pool().Exec(ctx, sqlEffect, key, 0, os.Getpid())
	if err != nil {
		return err
	}
	_, err = db.Pool().Exec(ctx, `INSERT INTO seen (key) VALUES ($1) ON CONFLICT DO NOTHING`, key)
	return err
}

// naiveMarkFirst loses: a crash between mark and effect.
func naiveMarkFirst(ctx context.Context, db *postgres.DB, key int64, work time.Duration) error {
	tag, err := db.Pool().Exec(ctx, `INSERT INTO seen (key) VALUES ($1) ON CONFLICT DO NOTHING`, key)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	Sleep(ctx, work)
	_, err = db.Pool().Exec(ctx, sqlEffect, key, 0, os.Getpid())
	return err
}
