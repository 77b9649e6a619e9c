package shapes

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// withPostgres runs do on a new database with semel's tables and a ledger.
func withPostgres(
	ctx context.Context, e *harness.Env, do func(*harness.Database, *postgres.DB) (harness.Sample, error),
) (s harness.Sample, err error) {
	d, err := e.Database(ctx, load.LedgerTable)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	db, err := postgres.Open(ctx, d.URL, postgres.Options{Create: true})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(d, db)
}

// postgresShape has a consumer with its source in this process do the standard work on a PostgreSQL store.
func postgresShape(m harness.Measure, cfg semel.Config) harness.Measure {
	m.Kind, m.Unit = harness.Semel, "effects"
	m.Settings += fmt.Sprintf("; source in this process; Concurrency %d, Batch %d, Committers %d",
		cfg.Concurrency, cfg.Batch, cfg.Committers)
	m.Run = func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
		return withPostgres(ctx, e, func(d *harness.Database, db *postgres.DB) (s harness.Sample, err error) {
			w, cfg := e.Work(), cfg
			done, src := newSource(ctx, w)
			cfg.Queue, cfg.Store = src, db.Store()
			stop := e.Watch()
			err = consume(ctx, done, cfg)
			s.Usage = stop()
			if err != nil {
				return s, err
			}
			return postgresSample(ctx, d, s, w)
		})
	}
	return m
}

func postgresSample(ctx context.Context, d *harness.Database, s harness.Sample, w load.Work) (harness.Sample, error) {
	pool, err := d.Pool(ctx, 1)
	if err != nil {
		return s, err
	}
	l, err := load.ReadLedger(ctx, pool)
	s.Done, s.Deliveries, s.Ledger = l.IDs, len(w.Deliveries), &l
	return s, err
}

func postgresQueued(committers int, title string) harness.Measure {
	const batch = 100
	return postgresShape(
		harness.Measure{Name: fmt.Sprintf("semel-pg-queued-%d", committers), Title: title, N: 60000, Settings: "InTx with *Statements"},
		semel.Config{Handler: queued(load.Effect), Concurrency: 10 * batch, Batch: batch, Committers: committers},
	)
}

// postgresAtCommit is postgresQueued with one committer and first deliveries that are claimed at their commit.
func postgresAtCommit() harness.Measure {
	const batch = 100
	return postgresShape(
		harness.Measure{
			Name: "semel-pg-at-commit", Title: "semel on PostgreSQL, queued statements, claimed at the commit", N: 60000,
			Settings: "InTx with *Statements, ClaimAtCommit",
		},
		semel.Config{Handler: queued(load.Effect), Concurrency: 10 * batch, Batch: batch, Committers: 1, ClaimAtCommit: true},
	)
}

// postgresBatch hands a whole batch to the handler, which queues one statement for all of it.
func postgresBatch() harness.Measure {
	const batch = 1000
	handler := semel.InTxBatch(func(_ context.Context, tx *semel.Statements, list []*semel.Attempt) error {
		ids, sizes := make([]string, len(list)), make([]int32, len(list))
		for i, a := range list {
			ids[i], sizes[i] = a.Message.ID, int32(len(a.Message.Body))
		}
		tx.Exec("INSERT INTO ledger (id, size) SELECT * FROM unnest($1::uuid[], $2::integer[])", ids, sizes)
		return nil
	})
	return postgresShape(
		harness.Measure{
			Name: "semel-pg-batch", Title: "semel on PostgreSQL, batch handler, 1,000, 2 committers", N: 120000,
			Settings: "InTxBatch with *Statements, one statement a batch",
		},
		semel.Config{Handler: handler, Concurrency: 4 * batch, Batch: batch, Committers: 2},
	)
}

// postgresGroup hands a batch of 100 to a handler that queues one statement for each message: the claims are in the
// transaction of the effects, so that a record is written once.
func postgresGroup(committers int) harness.Measure {
	const batch = 100
	handler := semel.InTxBatch(func(_ context.Context, tx *semel.Statements, list []*semel.Attempt) error {
		for _, a := range list {
			tx.Exec(load.Effect, a.Message.ID, len(a.Message.Body))
		}
		return nil
	})
	return postgresShape(
		harness.Measure{
			Name: fmt.Sprintf("semel-pg-group-%d", committers), N: 60000,
			Title:    "semel on PostgreSQL, batch handler, 100, " + harness.Count(committers, "committer"),
			Settings: "InTxBatch with *Statements, one statement a message",
		},
		semel.Config{Handler: handler, Concurrency: 10 * batch, Batch: batch, Committers: committers},
	)
}

// postgresTx runs its own SQL, message by message, in the transaction that holds the records of its batch.
func postgresTx() harness.Measure {
	handler := semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
		_, err := tx.Exec(ctx, load.Effect, a.Message.ID, len(a.Message.Body))
		return err
	})
	return postgresShape(
		harness.Measure{
			Name: "semel-pg-tx", Title: "semel on PostgreSQL, synchronous SQL in a shared transaction", N: 20000,
			Settings: "InTx with pgx.Tx",
		},
		semel.Config{Handler: handler, Concurrency: 200, Batch: 100, Committers: 2},
	)
}

// postgresQueue keeps the messages in the same database too: the ack is in the transaction of the effect.
func postgresQueue() harness.Measure {
	const batch = 100
	return harness.Measure{
		Name: "semel-pg-queue", Title: "semel on PostgreSQL, queue there too, 2 committers",
		Kind: harness.Semel, Unit: "effects", N: 40000, Settings: "InTx with *Statements; Concurrency 1000, Batch 100, Committers 2",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withPostgres(ctx, e, func(d *harness.Database, db *postgres.DB) (s harness.Sample, err error) {
				q, w := db.Queue("orders"), e.Work()
				if err := send(ctx, q, w); err != nil {
					return s, err
				}
				stop := e.Watch()
				err = drain(ctx, len(w.Deliveries), semel.Config{
					Queue: q, Store: db.Store(), Handler: queued(load.Effect), Concurrency: 10 * batch, Batch: batch, Committers: 2,
				})
				s.Usage = stop()
				if err != nil {
					return s, err
				}
				return postgresSample(ctx, d, s, w)
			})
		},
	}
}

func postgresClaims(callers, n int) harness.Measure {
	return harness.Measure{
		Name: fmt.Sprintf("semel-pg-claims-%d", callers), Kind: harness.Semel, Unit: "pairs", N: n,
		Title:    "semel on PostgreSQL, claim and completion, one key a call, " + harness.Count(callers, "caller"),
		Settings: "Store.Claim and Store.Finish, gathered by the adapter",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return withPostgres(ctx, e, func(_ *harness.Database, db *postgres.DB) (harness.Sample, error) {
				return claimers(ctx, e, db.Store(), callers)
			})
		},
	}
}
