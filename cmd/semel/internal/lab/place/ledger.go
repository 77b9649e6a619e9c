package place

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/semel-dev/semel"
)

// table is a table of the lab in a database: the ledger, or the marks. Its methods may be called concurrently.
type table interface {
	// put writes a row where there is none, or one that was written at until or before. It reports whether it did: the
	// database decides in the write itself.
	put(ctx context.Context, r row, until int64) (bool, error)
	// get returns the text of a row, "" if there is none. It may be old where the store has reads that lag behind.
	get(ctx context.Context, id string) (string, error)
	remove(ctx context.Context, id string) error
	all(ctx context.Context) (texts []string, err error)
	count(ctx context.Context) (int, error)
}

// txTable is a table whose rows commit with records.
type txTable interface {
	// handler makes a handler whose row commits with the record of the attempt.
	handler(work func(context.Context, *semel.Attempt) (row, error)) semel.Handler
}

// row is a text under an id, with when it was written in microseconds since 1970.
type row struct {
	id, text string
	at       int64
}

// The values of until for writes that never and always replace a row.
const (
	never  = -1
	always = math.MaxInt64
)

// Effect is one row of the ledger: one charge.
type Effect struct {
	ID           int64 `json:"-"`
	Key, Message string
	Amount       int64
	// Version is that of the message, 0 where there are none.
	Version      int
	Attempt      int
	Worker, Life int
	PID          int
	At           time.Time
}

// Reversed is the effect that takes e back: the same, with its amount negated.
func (e Effect) Reversed() Effect {
	e.Amount = -e.Amount
	return e
}

// row is the row of the effect. Its id is drawn, unless there is an effect key.
func (e Effect) row(effectKey string) (row, error) {
	id := "drawn#" + rand.Text()
	if effectKey != "" {
		id = "key#" + effectKey
	}
	b, err := json.Marshal(e)
	if err != nil {
		return row{}, fmt.Errorf("encode the effect of %s: %w", e.Key, err)
	}
	return row{id, string(b), e.At.UnixMicro()}, nil
}

// Ledger is where the effects go: one row per charge, written next to semel's records and never by semel. Only an effect
// key stops a second charge, as the Idempotency-Key header of a payment service does.
type Ledger struct{ rows table }

// Effects reads the ledger in the order of the clock that all workers of a run share: effects of one key are never made at
// the same time with the guard on, and without it their order is that in which their handlers called the service.
func (l Ledger) Effects(ctx context.Context) ([]Effect, error) {
	texts, err := l.rows.all(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	out := make([]Effect, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &out[i]); err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
	}
	slices.SortStableFunc(out, func(a, b Effect) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Key, b.Key))
	})
	for i := range out {
		out[i].ID = int64(i + 1)
	}
	return out, nil
}

// CountEffects counts them.
func (l Ledger) CountEffects(ctx context.Context) (int, error) {
	n, err := l.rows.count(ctx)
	if err != nil {
		return 0, fmt.Errorf("count the ledger: %w", err)
	}
	return n, nil
}

// AddEffect adds a row outside of any transaction, as a call of a service does. With an effect key it is added once, and
// one whose key exists is accepted and not added.
func (l Ledger) AddEffect(ctx context.Context, e Effect, effectKey string) error {
	r, err := e.row(effectKey)
	if err == nil {
		_, err = l.rows.put(ctx, r, never)
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", e.Key, err)
	}
	return nil
}

// InTx makes a handler whose effect commits with the record of the attempt. An error of work is the handler's. It is nil
// where effects do not commit with records: only the effect key prevents a second effect there.
func (l Ledger) InTx(work func(ctx context.Context, a *semel.Attempt) (Effect, error)) semel.Handler {
	rows, ok := l.rows.(txTable)
	if !ok {
		return nil
	}
	return rows.handler(func(ctx context.Context, a *semel.Attempt) (row, error) {
		e, err := work(ctx, a)
		if err != nil {
			return row{}, err
		}
		return e.row("")
	})
}

// Marks is the table of ids that hand-written guards keep: an id, a status, and when it was written.
type Marks struct{ rows table }

// Get returns "" for an id without a mark. The status may be old where the store has reads that lag behind.
func (m Marks) Get(ctx context.Context, id string) (status string, err error) {
	if status, err = m.rows.get(ctx, id); err != nil {
		return "", fmt.Errorf("read the mark of %s: %w", id, err)
	}
	return status, nil
}

// Add writes a mark where there is none, and reports whether it did: the attribute_not_exists of DynamoDB.
func (m Marks) Add(ctx context.Context, id, status string) (bool, error) {
	return m.put(ctx, id, status, never)
}

// Put writes a mark over whatever is there.
func (m Marks) Put(ctx context.Context, id, status string) error {
	_, err := m.put(ctx, id, status, always)
	return err
}

// Take writes a mark where there is none, or one older than ttl: a lock that expires.
func (m Marks) Take(ctx context.Context, id, status string, ttl time.Duration) (bool, error) {
	return m.put(ctx, id, status, time.Now().Add(-ttl).UnixMicro())
}

// Delete removes a mark, whoever wrote it.
func (m Marks) Delete(ctx context.Context, id string) error {
	if err := m.rows.remove(ctx, id); err != nil {
		return fmt.Errorf("remove the mark of %s: %w", id, err)
	}
	return nil
}

func (m Marks) put(ctx context.Context, id, status string, until int64) (bool, error) {
	wrote, err := m.rows.put(ctx, row{id, status, time.Now().UnixMicro()}, until)
	if err != nil {
		return false, fmt.Errorf("mark %s: %w", id, err)
	}
	return wrote, nil
}
