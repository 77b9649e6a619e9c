// Package languages does the standard work with handlers in Python and Node.js, in the ways in which `semel work` calls them,
// beside handlers in Go and beside consumers of BullMQ and Celery with a hand-written inbox.
//
// Queue, records and effects are in one PostgreSQL; the queues of the others are in Redis. The clock runs from the first effect
// to the last, by the database's time: starts of programs do not count.
package languages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

const (
	// messages are 20,000 deliveries; few is for handlers that start a process for each of them.
	messages = 16_000
	few      = 400
	batch    = 100
)

// All are the measures, in the order of the table.
func All() []harness.Measure {
	list := []harness.Measure{
		measure("go", "Go handler", "InTx with *Statements.Insert; Concurrency 400, Batch 100, Committers 2", messages, inGo(semel.InTx(one))),
		measure("go-batch", "Go batch handler, 100", "the same with InTxBatch", messages, inGo(semel.InTxBatch(many))),
	}
	for _, l := range []language{python, node} {
		for _, way := range []struct {
			name, title string
			n           int
			http        bool
			args        []string
		}{
			{name: "exec", n: few, args: []string{"--exec", l.command("exec"), "--concurrency", "4"}},
			{name: "pipe", n: messages, args: []string{"--pipe", l.command("pipe"), "--processes", "2", "--in-flight", "100"}},
			{name: "pipe-batch", n: messages, args: []string{"--pipe", l.command("pipe"), "--processes", "2", "--in-flight", "2", "--pipe-batch", "100"}},
			{name: "http", n: messages, http: true, args: []string{"--concurrency", "32"}},
			{name: "http-batch", n: messages, http: true, args: []string{"--concurrency", "4", "--http-batch", "100"}},
		} {
			list = append(list, measure(l.name+"-"+way.name, l.title+", --"+way.name, "semel work "+settings(way.args), way.n, l.work(way.http, way.args)))
		}
	}
	return append(list,
		measure("bullmq", "BullMQ "+bullVersion+" (Redis) with an inbox row", "concurrency 100, pool of 32; inbox row and effect as one statement", messages, bullMQ),
		measure("celery", "Celery (Redis) with an inbox row",
			"4 processes, acks_late, prefetch multiplier 100, no results; inbox row and effect as one statement", messages, celery))
}

// measure has do work off the deliveries in a new database with ledger and inbox, and reads the ledger.
func measure(name, title, settings string, n int, do func(context.Context, *harness.Env, *harness.Database, load.Work) error) harness.Measure {
	return harness.Measure{
		Name: name, Title: title, Settings: settings, Kind: harness.Language, Unit: "effects", N: n,
		Run: func(ctx context.Context, e *harness.Env) (s harness.Sample, err error) {
			d, err := e.Database(ctx, load.LedgerTable, load.InboxTable, "ALTER TABLE ledger ADD at timestamptz NOT NULL DEFAULT clock_timestamp()")
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, d.Close()) }()
			w := e.Work()
			if err := do(ctx, e, d, w); err != nil {
				return s, err
			}
			pool, err := d.Pool(ctx, 1)
			if err != nil {
				return s, err
			}
			l, err := load.ReadLedger(ctx, pool)
			if err != nil {
				return s, err
			}
			var seconds float64
			err = pool.QueryRow(ctx, "SELECT extract(epoch FROM max(at) - min(at))::float8 FROM ledger").Scan(&seconds)
			s.Wall = time.Duration(seconds * float64(time.Second))
			s.Done, s.Deliveries, s.Ledger = l.IDs, len(w.Deliveries), &l
			return s, err
		},
	}
}

// queued sends the deliveries to a queue in the database, and returns it with the records.
func queued(ctx context.Context, d *harness.Database, w load.Work) (*postgres.DB, error) {
	db, err := postgres.Open(ctx, d.URL, postgres.Options{Create: true})
	if err != nil {
		return nil, err
	}
	const chunk = 1000
	for from := 0; from < len(w.Deliveries); from += chunk {
		var list []driver.Message
		for _, m := range w.Deliveries[from:min(from+chunk, len(w.Deliveries))] {
			list = append(list, driver.Message{Body: m.Body})
		}
		if err := db.Queue(queue).Send(ctx, list...); err != nil {
			return nil, errors.Join(fmt.Errorf("send: %w", err), db.Close())
		}
	}
	return db, nil
}

const queue = "orders"

func one(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
	tx.Insert("ledger", []string{"id", "size"}, a.Key.Raw, len(a.Body))
	return nil
}

func many(ctx context.Context, tx *semel.Statements, list []*semel.Attempt) error {
	for _, a := range list {
		if err := one(ctx, tx, a); err != nil {
			return err
		}
	}
	return nil
}

// inGo runs a handler in this process, until all deliveries are settled.
func inGo(h semel.Handler) func(context.Context, *harness.Env, *harness.Database, load.Work) error {
	return func(ctx context.Context, _ *harness.Env, d *harness.Database, w load.Work) (err error) {
		db, err := queued(ctx, d, w)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		c, err := semel.New(semel.Config{
			Queue: db.Queue(queue), Store: db.Store(), Key: key.FromJSON("/id"), Handler: h,
			Concurrency: 4 * batch, Batch: batch, Committers: 2,
		})
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			defer stop()
			_ = harness.Until(running, func(context.Context) (bool, error) {
				n := c.Summary()
				return n.Effects+n.Replayed >= int64(len(w.Deliveries)) || n.Dead+n.Mismatched+n.Uncertain > 0, nil
			})
		}()
		return errors.Join(c.Run(running), ctx.Err())
	}
}
