package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
)

// The kinds of events.
const (
	opened    = "opened"    // Text is the owner
	deposited = "deposited" // Amount
	withdrawn = "withdrawn" // Amount; refused when the balance does not suffice
	renamed   = "renamed"   // Text is the new owner
)

// Event is one line of the stream: a fact that nobody changes any more.
type Event struct {
	// Seq is its place in the stream, from 1: its identity for every consumer.
	Seq     int64  `json:"seq"`
	Account string `json:"account"`
	Kind    string `json:"kind"`
	Amount  int64  `json:"amount,omitempty"`
	Text    string `json:"text,omitempty"`
}

const streamTable = `CREATE TABLE IF NOT EXISTS stream (
  seq INTEGER PRIMARY KEY, account TEXT NOT NULL, kind TEXT NOT NULL, amount INTEGER NOT NULL, text TEXT NOT NULL) STRICT`

// makeEvents makes n events of n/50 accounts, or a few more; the same seed makes the same ones. They do not commute: a
// withdrawal that comes too early is refused.
func makeEvents(n int, seed uint64) []Event {
	rnd := rand.New(rand.NewPCG(seed, 45))
	events := make([]Event, n)
	accounts := 0
	for i := range events {
		e := Event{Seq: int64(i) + 1, Kind: deposited, Amount: 1 + rnd.Int64N(500)}
		switch dice := rnd.IntN(100); {
		case accounts < 2 || dice < 2:
			accounts++
			e.Kind, e.Amount, e.Text = opened, 0, fmt.Sprintf("owner %d", accounts)
			e.Account = fmt.Sprintf("account-%04d", accounts)
		case dice < 45:
			e.Kind = withdrawn
		case dice < 50:
			e.Kind, e.Amount, e.Text = renamed, 0, fmt.Sprintf("owner %d of %d", rnd.IntN(n), n)
		}
		if e.Account == "" {
			e.Account = fmt.Sprintf("account-%04d", 1+rnd.IntN(accounts))
		}
		events[i] = e
	}
	return events
}

// appendEvents appends events to the stream. Those that are there already stay as they are.
func appendEvents(ctx context.Context, db *sql.DB, events []Event) (err error) {
	if _, err := db.ExecContext(ctx, streamTable); err != nil {
		return fmt.Errorf("make the stream: %w", err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("append to the stream: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("append to the stream: %w", errors.Join(err, tx.Rollback()))
		}
	}()
	for _, e := range events {
		_, err := tx.ExecContext(ctx, "INSERT INTO stream (seq, account, kind, amount, text) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
			e.Seq, e.Account, e.Kind, e.Amount, e.Text)
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// readEvents reads up to limit events behind a place.
func readEvents(ctx context.Context, db *sql.DB, behind int64, limit int) (events []Event, err error) {
	rows, err := db.QueryContext(ctx, "SELECT seq, account, kind, amount, text FROM stream WHERE seq > ? ORDER BY seq LIMIT ?", behind, limit)
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e Event
		if err := rows.Scan(&e.Seq, &e.Account, &e.Kind, &e.Amount, &e.Text); err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		events = append(events, e)
	}
	return events, rows.Err()
}
