// Package model runs the same random operations on a store and on the one in memory (level L4): both return the same
// results and hold the same records.
package model

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest/server"
)

// store is what both sides offer.
type store interface {
	driver.Store
	driver.Committer
	driver.Transactor
	driver.RecordInspector
	driver.Operator
	driver.Sweeper
	driver.StepStore
	driver.AuditLog
}

// side is one of the two stores with its table of effects.
type side struct {
	store
	buffer func(ids []string, refuse bool) any
	addTx  func(ctx context.Context, tx driver.Tx, id string) error
	count  func(ctx context.Context) (map[string]int, error)
	// advance lets time pass.
	advance func(d time.Duration) error
}

func memorySide() *side {
	var ahead atomic.Int64
	s := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
	return &side{
		store: s,
		buffer: func(ids []string, refuse bool) any {
			var e *memory.Effects
			s.Offers(&e)
			for _, id := range ids {
				e.Append("ledger", id)
			}
			if refuse {
				e.Refuse(errors.New("refused"))
			}
			return e
		},
		addTx: func(_ context.Context, tx driver.Tx, id string) error {
			var x *memory.Tx
			tx.As(&x)
			return x.Append("ledger", id)
		},
		count: func(context.Context) (map[string]int, error) {
			n := map[string]int{}
			for _, r := range s.Tables().Rows("ledger") {
				n[r.Value]++
			}
			return n, nil
		},
		advance: func(d time.Duration) error { ahead.Add(int64(d)); return nil },
	}
}

func postgresSide(db *postgres.DB) *side {
	s := db.Store()
	return &side{
		store:  s,
		buffer: func(ids []string, refuse bool) any { return statements(s, ids, refuse) },
		addTx: func(ctx context.Context, tx driver.Tx, id string) error {
			var x pgx.Tx
			tx.As(&x)
			_, err := x.Exec(ctx, "INSERT INTO ledger VALUES ($1)", id)
			return err
		},
		count: func(ctx context.Context) (map[string]int, error) {
			n := map[string]int{}
			rows, err := db.Pool().Query(ctx, "SELECT id, count(*) FROM ledger GROUP BY id")
			if err != nil {
				return nil, err
			}
			var id string
			var c int
			_, err = pgx.ForEachRow(rows, []any{&id, &c}, func() error { n[id] = c; return nil })
			return n, err
		},
		// The server's clock cannot be moved: everything that was written moves into its past.
		advance: func(d time.Duration) error {
			_, err := db.Pool().Exec(context.Background(), `UPDATE semel_record SET lease_until = lease_until - $1::interval,
				created_at = created_at - $1::interval, updated_at = updated_at - $1::interval,
				completed_at = completed_at - $1::interval, retry_at = retry_at - $1::interval,
				retain_until = retain_until - $1::interval`, d)
			return err
		},
	}
}

// statements are the effects of a transaction on an SQL store: rows of the ledger, and one that is refused.
func statements(c driver.Committer, ids []string, refuse bool) any {
	var e *driver.Statements
	c.Offers(&e)
	for _, id := range ids {
		e.Exec("INSERT INTO ledger VALUES ($1)", id)
	}
	if refuse {
		e.ExecRows(1, "INSERT INTO ledger SELECT 'no' WHERE 1 = 0")
	}
	return e
}

// TestPostgresAgainstMemory runs random histories. A failing one is printed with its seed, and made smaller.
func TestPostgresAgainstMemory(t *testing.T) {
	db, err := postgres.Open(t.Context(), server.Database(t), postgres.Options{Create: true, MaxConns: 4, NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Pool().Exec(t.Context(), "CREATE TABLE ledger (id text)"); err != nil {
		t.Fatal(err)
	}
	compareWith(t, func(rt *rapid.T) *side {
		_, err := db.Pool().Exec(t.Context(), "TRUNCATE ledger, semel_record, semel_sweep, semel_step, semel_audit")
		if err != nil {
			rt.Fatal(err)
		}
		return postgresSide(db)
	})
}
