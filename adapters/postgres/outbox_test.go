package postgres

import (
	"context"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/outbox/relaytest"
)

func TestOutboxRelay(t *testing.T) {
	relaytest.Run(t, func(t testing.TB) relaytest.Setup {
		db := queueDB(t, Options{Visibility: relaytest.Visible, MaxConns: 6})
		q := db.Queue("outbox")
		return relaytest.Setup{
			In: db.Queue("in"), Store: db.Store(), Outbox: q,
			Late: func(m driver.Message) (func() error, error) {
				tx, err := db.pool.Begin(context.Background())
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				return func() error { return tx.Commit(context.Background()) }, q.SendTx(context.Background(), tx, m)
			},
		}
	})
}
