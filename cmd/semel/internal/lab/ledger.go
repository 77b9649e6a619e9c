package lab

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// The ledger is where the effects go: one row per charge, in the same database as queue and records, written by the
// handlers' own SQL. No column is unique but the row's own number: nothing stops a second charge.
const (
	createLedger = `CREATE TABLE IF NOT EXISTS lab_ledger (
	id %s,
	order_id TEXT NOT NULL, amount INTEGER NOT NULL,
	message_id TEXT NOT NULL, attempt INTEGER NOT NULL,
	worker INTEGER NOT NULL, life INTEGER NOT NULL, pid INTEGER NOT NULL, at BIGINT NOT NULL)`
	// insertEffect: $1 order, $2 amount, $3 message, $4 attempt, $5 worker, $6 life, $7 pid, $8 microseconds since 1970
	insertEffect = `INSERT INTO lab_ledger (order_id, amount, message_id, attempt, worker, life, pid, at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	selectEffects = `SELECT id, order_id, amount, message_id, attempt, worker, life, pid, at FROM lab_ledger ORDER BY id`
	countEffects  = `SELECT count(*) FROM lab_ledger`
)

// Effect is one row of the ledger: one charge.
type Effect struct {
	ID           int64
	Key, Message string
	Amount       int64
	Attempt      int
	Worker, Life int
	PID          int
	At           time.Time
}

func readLedger(ctx context.Context, db *sql.DB) ([]Effect, error) {
	rows, err := db.QueryContext(ctx, selectEffects)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Effect
	for rows.Next() {
		var e Effect
		var at int64
		err := rows.Scan(&e.ID, &e.Key, &e.Amount, &e.Message, &e.Attempt, &e.Worker, &e.Life, &e.PID, &at)
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

// tally is what the ledger says about the keys that were sent.
type tally struct {
	Sent, Effects int
	// Duplicated counts the effects beyond the first of each key, Damage what they cost in minor units.
	Duplicated int
	Damage     int64
	// Lost are keys without effect, letter or parked record; Strays are effects of keys that nobody sent.
	Lost   []string
	Strays int
}

// count compares the ledger with the keys that were sent. excused are the keys that have a letter or a parked record:
// without an effect they are not lost, a person is asked. It must be called when the queue is empty, so that every key
// is settled.
func count(sends []Send, effects []Effect, excused map[string]bool) tally {
	var t tally
	seen := map[string]int{}
	for _, e := range effects {
		seen[e.Key]++
		if seen[e.Key] > 1 {
			t.Duplicated++
			t.Damage += e.Amount
		}
	}
	t.Effects = len(effects)
	sent := map[string]bool{}
	for _, s := range sends {
		if sent[s.Key] {
			continue
		}
		sent[s.Key] = true
		if seen[s.Key] == 0 && !excused[s.Key] {
			t.Lost = append(t.Lost, s.Key)
		}
	}
	t.Sent = len(sent)
	for k, n := range seen {
		if !sent[k] {
			t.Strays += n
		}
	}
	return t
}
