package shapes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/driver"
)

// The ledger on SQLite, and its effect: $1 = id of the message, $2 = size of its body.
const (
	sqliteLedger = "CREATE TABLE ledger (id TEXT NOT NULL, size INTEGER NOT NULL)"
	sqliteEffect = "INSERT INTO ledger (id, size) VALUES ($1, $2)"
	sqliteCount  = "SELECT count(*), count(DISTINCT id) FROM ledger"
)

// withSQLite runs do on a new file.
func withSQLite(ctx context.Context, e *harness.Env, do func(*sqlite.DB) (harness.Sample, error)) (s harness.Sample, err error) {
	return withSQLiteFile(ctx, e, "semel.db", do)
}

func withSQLiteFile(
	ctx context.Context, e *harness.Env, name string, do func(*sqlite.DB) (harness.Sample, error),
) (s harness.Sample, err error) {
	db, err := sqlite.Open(ctx, filepath.Join(e.Dir, name), sqlite.Options{Create: true})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

func sqliteClaims(callers, n int) harness.Measure {
	return harness.Measure{
		Name: fmt.Sprintf("semel-sqlite-claims-%d", callers), Kind: harness.Semel, Unit: "pairs", N: n,
		Title:    "semel on SQLite, claim and completion, one key a call, " + harness.Count(callers, "caller"),
		Settings: "Store.Claim and Store.Finish, gathered by the adapter's writer",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withSQLite(ctx, e, func(db *sqlite.DB) (harness.Sample, error) { return claimers(ctx, e, db.Store(), callers) })
		},
	}
}

// sqliteWhole is queue, records and effects in one file, with no server.
func sqliteWhole() harness.Measure {
	const batch, committers = 100, 4
	return harness.Measure{
		Name: "semel-sqlite", Title: "semel on SQLite, queue, records and effects in one file",
		Kind: harness.Semel, Unit: "effects", N: 40000,
		Settings: "InTx with *Statements; Concurrency 1000, Batch 100, Committers 4 (one writer carries several batches in a group commit)",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withSQLite(ctx, e, func(db *sqlite.DB) (s harness.Sample, err error) {
				if _, err := db.SQL().ExecContext(ctx, sqliteLedger); err != nil {
					return s, err
				}
				q, w := db.Queue("orders"), e.Work()
				if err := send(ctx, q, w); err != nil {
					return s, err
				}
				stop := e.Watch()
				err = drain(ctx, len(w.Deliveries), semel.Config{
					Queue: q, Store: db.Store(), Concurrency: 10 * batch, Batch: batch, Committers: committers,
					Handler: queued(sqliteEffect),
				})
				s.Usage = stop()
				if err != nil {
					return s, err
				}
				l := new(load.Ledger)
				err = db.SQL().QueryRowContext(ctx, sqliteCount).Scan(&l.Rows, &l.IDs)
				if err != nil {
					return s, err
				}
				s.Done, s.Deliveries, s.Ledger = l.IDs, len(w.Deliveries), l
				size, err := sqliteBytes(ctx, db)
				s.Values = map[string]float64{"file_bytes": float64(size) / float64(s.Done)}
				return s, err
			})
		},
	}
}

// sqliteBytes is the size of the file once its log is carried over, free pages included.
func sqliteBytes(ctx context.Context, db *sqlite.DB) (size int64, err error) {
	err = db.SQL().QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&size)
	if err != nil {
		return 0, fmt.Errorf("read the size of a file: %w", err)
	}
	return size, nil
}

// queued is the handler of the standard work: it queues one statement.
func queued(effect string) semel.Handler {
	return semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
		tx.Exec(effect, a.Message.ID, len(a.Message.Body))
		return nil
	})
}

// send fills a queue.
func send(ctx context.Context, q driver.Sender, w load.Work) error {
	const chunk = 1000
	for from := 0; from < len(w.Deliveries); from += chunk {
		var list []driver.Message
		for _, m := range w.Deliveries[from:min(from+chunk, len(w.Deliveries))] {
			list = append(list, driver.Message{ID: m.ID, Body: m.Body})
		}
		if err := q.Send(ctx, list...); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// drain runs a consumer until a number of deliveries took effect or were replayed. It polls every millisecond, because
// an observer would be part of the measurement.
func drain(ctx context.Context, deliveries int, cfg semel.Config) error {
	c, err := semel.New(cfg)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for running.Err() == nil {
			if n := c.Summary(); n.Effects+n.Replayed >= int64(deliveries) || n.Dead+n.Mismatched+n.Uncertain > 0 {
				stop()
			}
			<-tick.C
		}
	}()
	if err := c.Run(running); err != nil {
		return err
	}
	if n := c.Summary(); n.Effects+n.Replayed < int64(deliveries) {
		return fmt.Errorf("the consumer ended early: %+v", n)
	}
	return ctx.Err()
}
