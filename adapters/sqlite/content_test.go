package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest"
)

// TestS1_32_FM53_ManySmallBodies: 90,000 distinct small JSON bodies (a part of them outside of nightly runs), keyed by
// their content, all have their record and their effect, through the queue, the engine and the store of one file.
func TestS1_32_FM53_ManySmallBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	distinct := 90_000 / semeltest.Sampled(9)
	db := openFor(t, Options{})
	q := db.Queue("q")
	for i := 0; i < distinct; i += 1000 {
		batch := make([]semel.Message, 1000)
		for j := range batch {
			batch[j].Body = fmt.Appendf(nil, `{"order":%d}`, i+j)
		}
		if err := q.Send(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
	var runs atomic.Int64
	c, err := semel.New(semel.Config{
		Queue: q, Store: db.Store(), Key: key.FromBody(), Batch: 1000, Concurrency: 1000, Limit: distinct,
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { runs.Add(1); return nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := c.Run(ctx); err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	if s := c.Summary(); s.Effects != int64(distinct) || runs.Load() != int64(distinct) {
		t.Errorf("%d runs, %+v", runs.Load(), s)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_record WHERE state = 3"); n != distinct {
		t.Errorf("%d completed records, wanted %d", n, distinct)
	}
}
