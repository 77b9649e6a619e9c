package load

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// SQL of the standard work on PostgreSQL.
const (
	// LedgerTable takes the effects: one row each. It has no unique constraint, so that a second effect shows.
	LedgerTable = "CREATE TABLE ledger (id uuid NOT NULL, size integer NOT NULL)"
	// Effect writes one effect. $1 = id of the message, $2 = size of its body.
	Effect = "INSERT INTO ledger (id, size) VALUES ($1, $2)"
	// InboxTable is the table that people write by hand: a key and a time.
	InboxTable = "CREATE TABLE inbox (id uuid PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
	// GuardedEffect writes inbox row and effect in one statement, the effect only when the inbox row is new.
	// $1 = id of the message, $2 = size of its body.
	GuardedEffect = "WITH first AS (INSERT INTO inbox (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id) " +
		"INSERT INTO ledger (id, size) SELECT id, $2 FROM first"
)

// Ledger is what the ledger holds after the work.
type Ledger struct {
	Rows int `json:"rows"`
	IDs  int `json:"ids"`
}

// Exact reports that n messages took effect once each.
func (l Ledger) Exact(n int) bool { return l.Rows == n && l.IDs == n }

// ReadLedger counts the effects.
func ReadLedger(ctx context.Context, pool *pgxpool.Pool) (l Ledger, err error) {
	err = pool.QueryRow(ctx, "SELECT count(*), count(DISTINCT id) FROM ledger").Scan(&l.Rows, &l.IDs)
	if err != nil {
		return l, fmt.Errorf("read the ledger: %w", err)
	}
	return l, nil
}
