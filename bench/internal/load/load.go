// Package load makes the standard work of the comparison: n distinct JSON messages of about 300 bytes, a fifth of the
// deliveries of which are redeliveries at random distance, and a ledger that reports whether each took effect once.
package load

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Redeliveries is the share of all deliveries that repeat an earlier one.
const Redeliveries = 0.2

// Message is what producers send: an id and a JSON body of about 300 bytes.
type Message struct {
	ID   string
	Body []byte
}

// Work is one round's deliveries in their order, of n distinct messages.
type Work struct {
	N          int
	Deliveries []Message
}

// New makes the deliveries of n messages. The same seed makes the same order and ids.
func New(n int, seed uint64) Work {
	rnd := rand.New(rand.NewPCG(seed, 0x5e3e1))
	messages := distinct(n, rnd)
	// A redelivery comes anywhere after the first delivery: n messages and n/4 repetitions make a fifth.
	type place struct {
		at float64
		of int
	}
	places := make([]place, 0, n+n/4)
	for i := range n {
		places = append(places, place{float64(i), i})
	}
	for range int(float64(n)*Redeliveries/(1-Redeliveries) + 0.5) {
		of := rnd.IntN(n)
		places = append(places, place{float64(of) + 0.5 + rnd.Float64()*float64(n-of), of})
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	w := Work{N: n, Deliveries: make([]Message, len(places))}
	for i, p := range places {
		w.Deliveries[i] = messages[p.of]
	}
	return w
}

// Distinct makes n messages, each once. The same seed makes the same ones.
func Distinct(n int, seed uint64) []Message { return distinct(n, rand.New(rand.NewPCG(seed, 0x5e3e1))) }

func distinct(n int, rnd *rand.Rand) []Message {
	messages := make([]Message, n)
	for i := range messages {
		id := newID(rnd)
		messages[i] = Message{ID: id, Body: body(id, i)}
	}
	return messages
}

// newID is a random UUID, as producers make them.
func newID(rnd *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func body(id string, i int) []byte {
	head := fmt.Sprintf(`{"id":%q,"type":"order.paid","order":%d,"amount":%d,"currency":"EUR","note":"`, id, i, i%10000)
	return []byte(head + strings.Repeat("x", max(298-len(head), 0)) + `"}`)
}

// IDOf takes the id out of a body, for systems that carry no id of the sender's.
func IDOf(body []byte) (string, error) {
	var m struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return "", fmt.Errorf("read the id of a message: %w", err)
	}
	return m.ID, nil
}

// Each hands the deliveries to workers goroutines, in order, and waits for them. The first error ends it.
func (w Work) Each(ctx context.Context, workers int, do func(ctx context.Context, m *Message) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(w.Deliveries)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := do(ctx, &w.Deliveries[i]); err != nil {
					stop(fmt.Errorf("delivery %d: %w", i, err))
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

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
