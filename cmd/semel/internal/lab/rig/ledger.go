package rig

import (
	"context"
	"fmt"
	"time"
)

// The ledger is where the effects go: one row per charge, in the same database as queue and records, written by the
// handlers' own SQL. Nothing stops a second charge but an effect key, which a payment service with an Idempotency-Key
// header would honour; who sends none has none.
const (
	createLedger = `CREATE TABLE IF NOT EXISTS lab_ledger (
	id %s,
	order_id TEXT NOT NULL, amount INTEGER NOT NULL, version INTEGER NOT NULL, effect_key TEXT,
	message_id TEXT NOT NULL, attempt INTEGER NOT NULL,
	worker INTEGER NOT NULL, life INTEGER NOT NULL, pid INTEGER NOT NULL, at BIGINT NOT NULL)`
	createEffectKeys = `CREATE UNIQUE INDEX IF NOT EXISTS lab_ledger_effect_key ON lab_ledger (effect_key)`
	// InsertEffect takes the arguments of [Effect.Args].
	InsertEffect = `INSERT INTO lab_ledger (order_id, amount, version, message_id, attempt, worker, life, pid, at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	// InsertKeyedEffect takes the effect key after them: what has its key already is answered as if it were new.
	InsertKeyedEffect = `INSERT INTO lab_ledger (order_id, amount, version, message_id, attempt, worker, life, pid, at, effect_key)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (effect_key) DO NOTHING`
	selectEffects = `SELECT id, order_id, amount, version, message_id, attempt, worker, life, pid, at FROM lab_ledger ORDER BY id`
	countEffects  = `SELECT count(*) FROM lab_ledger`
)

// Effect is one row of the ledger: one charge.
type Effect struct {
	ID           int64
	Key, Message string
	Amount       int64
	// Version is that of the message, 0 where there are none.
	Version      int
	Attempt      int
	Worker, Life int
	PID          int
	At           time.Time
}

// Args are the arguments of [InsertEffect].
func (e Effect) Args() []any {
	return []any{e.Key, e.Amount, e.Version, e.Message, e.Attempt, e.Worker, e.Life, e.PID, e.At.UnixMicro()}
}

// Effects reads the ledger in the order in which the effects were made.
func (r *Rig) Effects(ctx context.Context) ([]Effect, error) {
	rows, err := r.SQL.QueryContext(ctx, selectEffects)
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

// CountEffects counts the rows of the ledger.
func (r *Rig) CountEffects(ctx context.Context) (n int, err error) {
	if err := r.SQL.QueryRowContext(ctx, countEffects).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the ledger: %w", err)
	}
	return n, nil
}

// AddEffect adds a row outside of any transaction, as a call of a service does. With an effect key it is added once.
func (r *Rig) AddEffect(ctx context.Context, e Effect, effectKey string) error {
	statement, args := InsertEffect, e.Args()
	if effectKey != "" {
		statement, args = InsertKeyedEffect, append(args, effectKey)
	}
	if _, err := r.SQL.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("apply %s: %w", e.Key, err)
	}
	return nil
}
