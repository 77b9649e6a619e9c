package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// deafQueue loses the first acknowledgements: it says that they were applied, and keeps the messages.
type deafQueue struct {
	driver.Queue
	loses atomic.Int32
	lost  atomic.Int32
}

func (q *deafQueue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if q.loses.Add(-int32(len(s))) < 0 {
		return q.Queue.Settle(ctx, s...)
	}
	q.lost.Add(int32(len(s)))
	out := make([]driver.Outcome, len(s))
	for i := range out {
		out[i] = driver.Applied
	}
	return out, nil
}

// TestS3_55_FM04_FaultBetweenTransactionAndAck: the transaction commits status and record together, and the ack is lost.
// The redelivery finds the record, and the status keeps its version; so it does when the transaction of a local duplicate comes
// late, whose attempt is not the record's.
func TestS3_55_FM04_FaultBetweenTransactionAndAck(t *testing.T) {
	db, broker := openFor(t, Options{}), openFor(t, Options{}) // two files: the ack is no part of the transaction
	exec_(t, db, "CREATE TABLE message_status (id TEXT PRIMARY KEY, state TEXT, version INTEGER)")
	exec_(t, db, "INSERT INTO message_status VALUES ('m1', 'STARTED', 1)")
	const completes = "UPDATE message_status SET state = 'COMPLETED', version = version + 1 WHERE id = $1"
	q := &deafQueue{Queue: broker.QueueWith("q", 300*time.Millisecond)}
	q.loses.Store(1)
	if err := broker.Queue("q").Send(t.Context(), semel.Message{ID: "m1"}); err != nil {
		t.Fatal(err)
	}
	c, err := semel.New(semel.Config{
		Queue: q, Store: db.Store(), Limit: 2, Visibility: 300 * time.Millisecond, Consumer: "c",
		Handler: semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			_, err := tx.ExecContext(ctx, completes, a.Key.Raw)
			return err
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if s := c.Summary(); q.lost.Load() != 1 || s.Received != 2 || s.Effects != 1 || s.Replayed != 1 {
		t.Errorf("%d acks lost, %+v", q.lost.Load(), s)
	}
	version := func() int {
		return count(t, db, "SELECT version FROM message_status WHERE id = 'm1' AND state = 'COMPLETED'")
	}
	if v := version(); v != 2 {
		t.Errorf("status of version %d, wanted 2: one completion", v)
	}

	r, ok, err := db.Store().Record(t.Context(), semel.Key{Consumer: "c", Raw: "m1"})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	other := r.Hold()
	other.Nonce[0]++ // of another attempt
	late := driver.Statements{}
	late.Exec(completes, "m1")
	out, err := db.Store().Commit(t.Context(), complete(other, &late))
	if err != nil || len(out) != 1 || out[0] != driver.Lost {
		t.Errorf("the other attempt's transaction: %v, %v", out, err)
	}
	if _, g := begin(t, db.Store(), claim("m1")); g[0].Verdict != driver.Replay {
		t.Errorf("the claim of a second transaction: %v", g[0].Verdict)
	}
	if v := version(); v != 2 {
		t.Errorf("status of version %d after the other attempt's transaction", v)
	}
}
