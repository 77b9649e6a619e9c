package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
)

// projection is a table that follows from the stream. Its name is the name of its consumer: another table has records of
// its own, and knows nothing of what this one has seen.
type projection struct {
	db    *sqlite.DB
	table string
	queue *sqlite.Queue
}

// visibility is how soon what a killed process had in flight is taken up again.
const visibility = time.Second

// keep is how long records are kept. A replay into the same table is a late duplicate of every event, and comes at any age.
const keep = 100 * 365 * 24 * time.Hour

var errName = errors.New("the name of a table is small letters, digits and _, and begins with a dead letter")

var tableName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

func openProjection(ctx context.Context, db *sqlite.DB, table string) (*projection, error) {
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("table %q: %w", table, errName)
	}
	_, err := db.SQL().ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+` (
  account TEXT PRIMARY KEY, owner TEXT NOT NULL, balance INTEGER NOT NULL, refused INTEGER NOT NULL,
  events INTEGER NOT NULL, last INTEGER NOT NULL) STRICT`)
	if err != nil {
		return nil, fmt.Errorf("make table %s: %w", table, err)
	}
	return &projection{db: db, table: table, queue: db.QueueWith("replay."+table, visibility)}, nil
}

// apply is the handler. It queues one statement, which commits together with the record of its event. None of them could
// be repeated without harm, and their order matters: the record and the order of an account's messages are what makes the
// projection right.
func (p *projection) apply(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
	var e Event
	if err := json.Unmarshal(a.Body, &e); err != nil {
		return fmt.Errorf("read event %s: %w", a.ID, err)
	}
	update := "UPDATE " + p.table + " SET events = events + 1, last = $1, "
	switch e.Kind {
	case opened:
		tx.Exec("INSERT INTO "+p.table+" (account, owner, balance, refused, events, last) VALUES ($1, $2, 0, 0, 1, $3)",
			e.Account, e.Text, e.Seq)
	case deposited:
		tx.ExecRows(1, update+"balance = balance + $2 WHERE account = $3", e.Seq, e.Amount, e.Account)
	case withdrawn:
		tx.ExecRows(1, update+"refused = refused + (balance < $2), balance = balance - iif(balance < $2, 0, $2) WHERE account = $3",
			e.Seq, e.Amount, e.Account)
	case renamed:
		tx.ExecRows(1, update+"owner = $2 WHERE account = $3", e.Seq, e.Text, e.Account)
	default:
		return fmt.Errorf("event %s has kind %q, which this program does not know", a.ID, e.Kind)
	}
	return nil
}

// replay sends the whole stream, from its beginning, and applies what the table does not have yet. It may be killed and
// begun again at any time; every beginning sends everything once more.
func (p *projection) replay(ctx context.Context, middleware ...semel.Middleware) (semel.Summary, error) {
	c, err := semel.New(semel.Config{
		Queue: p.queue, Store: p.db.Store(), Consumer: p.table, Handler: semel.InTx(p.apply),
		Visibility: visibility, Retention: keep, Middleware: middleware,
	})
	if err != nil {
		return semel.Summary{}, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- c.Run(running)
	}()
	err = p.feed(running)
	if err == nil {
		err = p.settled(running)
	}
	stop()
	err = errors.Join(err, <-ended)
	if deadLetters, lerr := p.queue.DeadLetters(ctx, 1); lerr == nil && len(deadLetters) > 0 {
		err = errors.Join(err, fmt.Errorf("event %s became a dead letter: %s", deadLetters[0].Message.ID, deadLetters[0].Reason))
	}
	return c.Summary(), err
}

// feed sends the stream to the queue. The id of a message names the event, not the sending; the events of one account
// are a group, so that they are applied in order.
func (p *projection) feed(ctx context.Context) error {
	const page = 500
	for behind := int64(0); ; {
		events, err := readEvents(ctx, p.db.SQL(), behind, page)
		if err != nil || len(events) == 0 {
			return err
		}
		messages := make([]semel.Message, len(events))
		for i, e := range events {
			body, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("write event %d: %w", e.Seq, err)
			}
			messages[i] = semel.Message{ID: fmt.Sprintf("event-%d", e.Seq), Group: e.Account, Body: body}
		}
		if err := p.queue.Send(ctx, messages...); err != nil {
			return fmt.Errorf("send events: %w", err)
		}
		behind = events[len(events)-1].Seq
	}
}

// settled waits until the queue is empty.
func (p *projection) settled(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := p.queue.Stats(ctx)
		if err != nil {
			return err
		}
		if n.Empty() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// state writes the table down, row by row in order: two projections are the same when this is.
func state(ctx context.Context, db *sqlite.DB, table string) (text string, err error) {
	if !tableName.MatchString(table) {
		return "", fmt.Errorf("table %q: %w", table, errName)
	}
	rows, err := db.SQL().QueryContext(ctx, "SELECT account, owner, balance, refused, events, last FROM "+table+" ORDER BY account")
	if err != nil {
		return "", fmt.Errorf("read %s: %w", table, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var b strings.Builder
	for rows.Next() {
		var account, owner string
		var balance, refused, events, last int64
		if err := rows.Scan(&account, &owner, &balance, &refused, &events, &last); err != nil {
			return "", fmt.Errorf("read %s: %w", table, err)
		}
		fmt.Fprintf(&b, "%s\t%s\t%d\t%d\t%d\t%d\n", account, owner, balance, refused, events, last)
	}
	return b.String(), rows.Err()
}

var errBehind = errors.New("the table does not have all events of the stream yet; replay first")

// switchTo lets readers of the view accounts see a table, from one transaction on, and only when it has all of the stream.
func switchTo(ctx context.Context, db *sqlite.DB, table string) (err error) {
	if !tableName.MatchString(table) {
		return fmt.Errorf("table %q: %w", table, errName)
	}
	tx, err := db.SQL().BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("switch to %s: %w", table, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("switch to %s: %w", table, errors.Join(err, tx.Rollback()))
		}
	}()
	// The first statement writes, so that nothing comes in between the comparison and the commit.
	if _, err := tx.ExecContext(ctx, "DROP VIEW IF EXISTS accounts"); err != nil {
		return err
	}
	var all, applied int64
	err = tx.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM stream), (SELECT coalesce(sum(events), 0) FROM "+table+")").Scan(&all, &applied)
	if err != nil {
		return err
	}
	if applied != all {
		return fmt.Errorf("%d of %d events: %w", applied, all, errBehind)
	}
	if _, err := tx.ExecContext(ctx, "CREATE VIEW accounts AS SELECT * FROM "+table); err != nil {
		return err
	}
	return tx.Commit()
}
