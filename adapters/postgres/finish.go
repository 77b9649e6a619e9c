package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

const (
	// sqlComplete completes attempts. 1 places 2 tokens 3 nonces 4 generations 5 keeps 6 results 7 reasons 8 the state
	// that they have 9 all or none 10 wait. See semel_complete.
	sqlComplete = "SELECT semel_complete($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

	// sqlCompleteOne completes one attempt. 1 place 2 token 3 nonce 4 generation 5 keep 6 result 7 reason 8 the state that
	// it has 9 wait. See semel_complete_one.
	sqlCompleteOne = "SELECT semel_complete_one($1, $2, $3, $4, $5, $6, $7, $8, $9)"

	// sqlInsert inserts completed records. 1 places 2 nonces 3 takeovers 4 consumers 5 rests 6 fingerprints 7 deliveries
	// 8 digests 9 keeps 10 results 11 reasons 12 wait. See semel_insert.
	sqlInsert = "SELECT semel_insert($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
)

// ending is one call of Finish.
type ending struct {
	out  []driver.Outcome
	rest []int // what the table has to decide
	mode rowstore.Mode
	err  error
	done bool // some items have an outcome
}

// Finish ends attempts: one round trip when all complete what is theirs. If a part of the call fails, its items are
// Unknown.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	switch len(f) {
	case 0:
		return nil, nil
	case 1:
		o, err := s.db.ends.one(ctx, f[0])
		if err != nil {
			return nil, fmt.Errorf("finish: %w", err)
		}
		return []driver.Outcome{o}, nil
	}
	out, err := s.finish(ctx, f)
	return out, rowstore.Wrap(err, "finish")
}

func (s *Store) finish(ctx context.Context, f []driver.Finish) ([]driver.Outcome, error) {
	e := &ending{out: make([]driver.Outcome, len(f))}
	all := sortKeys(len(f), func(i int) *driver.Key { return &f[i].Hold.Key })
	for _, part := range all.layers() {
		plain, others := part.split(func(i int) bool { return f[i].Final == driver.Complete && f[i].Hold.Version == "" })
		e.rest = append(e.rest, others.index...)
		finish := func(i int) *driver.Finish { return &f[i] }
		for _, c := range plain.chunks(func(i int) int { return len(f[i].Result) }) {
			if len(c.index) == 1 {
				e.plain(ctx, s.db, c, sqlCompleteOne, completeOneArgs(c.places[0], &f[c.index[0]], s.db.o.LockWait))
				continue
			}
			e.plain(ctx, s.db, c, sqlComplete, completeArgs(c, finish, driver.InProgress, false, s.db.o.LockWait))
		}
	}
	return e.end(ctx, s, f)
}

// holdArgs are the parameters that name attempts. A token that no store handed out matches no record.
func holdArgs(part keyed, hold func(i int) *driver.Hold) []any {
	n := len(part.index)
	tokens, nonces, generations := make(int64s, n), make(uuids, n), make(int32s, n)
	for at, i := range part.index {
		h := hold(i)
		tokens[at], nonces[at], generations[at] = int64(h.Token), h.Nonce, int32(h.Generation)
	}
	return []any{part.places, tokens, nonces, generations}
}

// completeArgs are the parameters of sqlComplete.
func completeArgs(part keyed, f func(i int) *driver.Finish, was driver.State, must bool, wait time.Duration) []any {
	n := len(part.index)
	keeps, results, reasons := make(int64s, n), make(bytess, n), make(bytess, n)
	for at, i := range part.index {
		x := f(i)
		keeps[at], results[at], reasons[at] = micros(x.Keep), bytesOrNull(x.Result), bytesOrNull(x.Reason)
	}
	args := holdArgs(part, func(i int) *driver.Hold { return &f(i).Hold })
	return append(args, keeps, results, reasons, int16(was), must, millis(wait))
}

// completeOneArgs are the parameters of sqlCompleteOne, for a record that is IN_PROGRESS.
func completeOneArgs(place []byte, f *driver.Finish, wait time.Duration) []any {
	return []any{
		place, int64(f.Hold.Token), uuid(f.Hold.Nonce), int32(f.Hold.Generation), micros(f.Keep), bytesOrNull(f.Result),
		bytesOrNull(f.Reason), int16(driver.InProgress), millis(wait),
	}
}

// complete adds the statement that completes attempts whose records have the state was, all of them or none.
func (p *pipeline) complete(part keyed, f func(i int) *driver.Finish, was driver.State, wait time.Duration) {
	for _, c := range part.chunks(func(i int) int { return len(f(i).Result) }) {
		p.exec("complete", sqlComplete, completeArgs(c, f, was, true, wait)...)
	}
}

// insert adds the statement that inserts the records of works with their claims.
func (p *pipeline) insert(part keyed, w []driver.Work, wait time.Duration) {
	for _, c := range part.chunks(func(i int) int { return len(w[i].Finish.Result) }) {
		n := len(c.index)
		nonces, takeovers, digests, keeps := make(uuids, n), make(int16s, n), make(int64s, n), make(int64s, n)
		consumers, rests, fingerprints := make(bytess, n), make(bytess, n), make(bytess, n)
		deliveries, results, reasons := make(bytess, n), make(bytess, n), make(bytess, n)
		for at, i := range c.index {
			q, f := w[i].Claim, &w[i].Finish
			nonces[at], takeovers[at], digests[at], keeps[at] = q.Nonce, int16(q.Takeover), int64(q.BodyDigest), micros(f.Keep)
			consumers[at], rests[at] = []byte(q.Key.Consumer), restOf(c.places[at], &q.Key)
			fingerprints[at], deliveries[at] = bytesOrNull(q.Fingerprint), rowstore.PackDeliveries(q.Key.Raw, q.DeliveryID)
			results[at], reasons[at] = bytesOrNull(f.Result), bytesOrNull(f.Reason)
		}
		p.exec("insert records", sqlInsert, c.places, nonces, takeovers, consumers, rests, fingerprints, deliveries, digests,
			keeps, results, reasons, millis(wait))
	}
}

// plain runs a guarded statement. The table decides what it did not match.
func (e *ending) plain(ctx context.Context, db *DB, part keyed, sql string, args []any) {
	if len(part.index) == 0 {
		return
	}
	applied := make([]bool, len(part.index))
	err := db.ask(ctx, "complete", func(rows pgx.Rows) error {
		var place []byte
		near := 0
		for rows.Next() {
			if err := rows.Scan(&place); err != nil {
				return err
			}
			at := part.find(place, near)
			if at == len(part.index) {
				return fmt.Errorf("%w: an item that was not sent", errClient)
			}
			near, applied[at] = at+1, true
		}
		return rows.Err()
	}, sql, args...)
	switch {
	case code(err) == codeLocked:
		e.rest, e.mode = append(e.rest, part.index...), rowstore.Skip
		return
	case err != nil:
		e.err = err
		return
	}
	for at, i := range part.index {
		if applied[at] {
			e.out[i], e.done = driver.Applied, true
		} else {
			e.rest = append(e.rest, i)
		}
	}
}

// end lets the table decide the rest. If a part of the call fails, its items are Unknown.
func (e *ending) end(ctx context.Context, s *Store, f []driver.Finish) ([]driver.Outcome, error) {
	slices.Sort(e.rest)
	out, err := rowstore.Decide(ctx, s.slowPath, len(e.rest), e.mode, func(tx rowstore.Tx, mode rowstore.Mode) ([]driver.Outcome, error) {
		out, _, err := rowstore.FinishTx(tx, mode, rowstore.Some(f, e.rest)...)
		return out, err
	})
	if err != nil {
		e.err = err
	}
	for at := range out {
		e.out[e.rest[at]], e.done = out[at], true
	}
	if e.err != nil && !e.done {
		return nil, e.err
	}
	return e.out, nil
}
