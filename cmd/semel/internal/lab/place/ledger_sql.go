package place

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
)

// sqlLedger is the ledger as a table in the database of the records.
type sqlLedger struct{ db *sql.DB }

const (
	createLedger = `CREATE TABLE IF NOT EXISTS lab_ledger (
	id %s,
	order_id TEXT NOT NULL, amount INTEGER NOT NULL, version INTEGER NOT NULL, effect_key TEXT,
	message_id TEXT NOT NULL, attempt INTEGER NOT NULL,
	worker INTEGER NOT NULL, life INTEGER NOT NULL, pid INTEGER NOT NULL, at BIGINT NOT NULL)`
	createEffectKeys = `CREATE UNIQUE INDEX IF NOT EXISTS lab_ledger_effect_key ON lab_ledger (effect_key)`
	// insertEffect takes the arguments of argsOf.
	insertEffect = `INSERT INTO lab_ledger (order_id, amount, version, message_id, attempt, worker, life, pid, at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	// insertKeyedEffect takes the effect key as well: an effect whose key exists is accepted and not added.
	insertKeyedEffect = `INSERT INTO lab_ledger (order_id, amount, version, message_id, attempt, worker, life, pid, at, effect_key)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (effect_key) DO NOTHING`
	selectEffects = `SELECT id, order_id, amount, version, message_id, attempt, worker, life, pid, at FROM lab_ledger ORDER BY id`
	countEffects  = `SELECT count(*) FROM lab_ledger`
)

func argsOf(e Effect) []any {
	return []any{e.Key, e.Amount, e.Version, e.Message, e.Attempt, e.Worker, e.Life, e.PID, e.At.UnixMicro()}
}

func (l sqlLedger) Effects(ctx context.Context) ([]Effect, error) {
	rows, err := l.db.QueryContext(ctx, selectEffects)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Effect
	for rows.Next() {
		var e Effect
		var at int64
		err := rows.Scan(&e.ID, &e.Key, &e.Amount, &e.Version, &e.Message, &e.Attempt, &e.Worker, &e.Life, &e.PID, &at)
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		e.At = time.UnixMicro(at)
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return out, nil
}

func (l sqlLedger) CountEffects(ctx context.Context) (n int, err error) {
	if err := l.db.QueryRowContext(ctx, countEffects).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the ledger: %w", err)
	}
	return n, nil
}

func (l sqlLedger) AddEffect(ctx context.Context, e Effect, effectKey string) error {
	statement, args := insertEffect, argsOf(e)
	if effectKey != "" {
		statement, args = insertKeyedEffect, append(args, effectKey)
	}
	if _, err := l.db.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("apply %s: %w", e.Key, err)
	}
	return nil
}

func (l sqlLedger) InTx(work func(context.Context, *semel.Attempt) (Effect, error)) semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error {
		e, err := work(ctx, a)
		if err != nil {
			return err
		}
		tx.ExecRows(1, insertEffect, argsOf(e)...)
		return nil
	})
}
