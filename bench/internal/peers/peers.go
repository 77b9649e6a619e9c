// Package peers does the standard work as others do it: by hand, and with the libraries that people use. Every peer gets
// the settings that its own documentation recommends for throughput, and the cheapest guard that makes it exact where it
// has none of its own (load.GuardedEffect: inbox row and effect in one statement).
package peers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// All are the peers, in the order of the report.
func All() []harness.Measure {
	return []harness.Measure{
		naive(), inbox(), statement(), riverTx(), riverDefault(), watermillSQL(), asynqUnique(), gueJobs(),
		harness.Long(inbox(), 300_000),
	}
}

// run prepares a database with ledger and inbox, has do work off the deliveries, and reads the ledger. do starts the
// watch when everything is in place.
func run(
	ctx context.Context, e *harness.Env, conns int, schema []string,
	do func(ctx context.Context, pool *pgxpool.Pool, w load.Work) (harness.Usage, error),
) (s harness.Sample, err error) {
	db, err := e.Database(ctx, append([]string{load.LedgerTable, load.InboxTable}, schema...)...)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	pool, err := db.Pool(ctx, conns)
	if err != nil {
		return s, err
	}
	w := e.Work()
	if s.Usage, err = do(ctx, pool, w); err != nil {
		return s, err
	}
	l, err := load.ReadLedger(ctx, pool)
	// What counts is the messages that took effect, not the rows.
	s.Done, s.Deliveries, s.Ledger = l.IDs, len(w.Deliveries), &l
	return s, err
}

// countdown ends a run when a number of deliveries have been handled, or one failed.
type countdown struct {
	left atomic.Int64
	stop context.CancelCauseFunc
}

var errDone = errors.New("all deliveries are handled")

// newCountdown returns a context that ends with the last delivery.
func newCountdown(ctx context.Context, deliveries int) (context.Context, *countdown) {
	ctx, stop := context.WithCancelCause(ctx)
	c := &countdown{stop: stop}
	c.left.Store(int64(deliveries))
	return ctx, c
}

// handled counts one delivery. An error ends the run.
func (c *countdown) handled(err error) {
	switch {
	case err != nil:
		c.stop(err)
	case c.left.Add(-1) == 0:
		c.stop(errDone)
	}
}

// wait blocks until the run ended; nil = with the last delivery.
func (c *countdown) wait(ctx context.Context) error {
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, errDone) {
		return fmt.Errorf("with %d deliveries left: %w", c.left.Load(), err)
	}
	return nil
}
