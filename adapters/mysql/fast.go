package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// This file has the plain cases of claims and completions, in fewer round trips. Package rowstore decides all others.

// Claim decides claims. If no key has a record, they are one INSERT, which a query reads back.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if len(c) > 0 && !s.db.o.ReadOnly && !slices.ContainsFunc(c, func(c driver.Claim) bool { return c.AtCommit }) {
		if out, err := s.claimNew(ctx, c); out != nil || err != nil {
			return out, rowstore.Wrap(err, "claim")
		}
	}
	return s.slowPath.Claim(ctx, c...)
}

// order sorts items by the places of their keys. ok: no two have the same.
func order(n int, key func(i int) *driver.Key) (places []rowstore.Place, index []int, ok bool) {
	places, index = make([]rowstore.Place, n), make([]int, n)
	for i := range index {
		places[i], index[i] = rowstore.PlaceOf(key(i)), i
	}
	slices.SortFunc(index, func(a, b int) int { return strings.Compare(string(places[a]), string(places[b])) })
	for at := 1; at < n; at++ {
		if places[index[at]] == places[index[at-1]] {
			return nil, nil, false
		}
	}
	return places, index, true
}

// sqlClaim begins the statement that inserts new records, and claimed is one of its rows: the server computes token and times.
const sqlClaim = "INSERT INTO semel_record (place, rest, consumer, state, attempt, created_at, updated_at, lease_until, lease, token, bits, " +
	"nonce, body_digest, deliveries, fingerprint, watermark) VALUES "

func (db *DB) claimed() string {
	return "(?, ?, ?, 1, 1, " + db.stamp + ", " + db.stamp + ", " + db.stamp + " + ?, ?, GREATEST(" + db.clock + ", ?) + ?, ?, ?, ?, ?, ?, ?)"
}

// claimNew inserts records. out is nil if there is a record, or if the table must decide a claim for another reason.
func (s *Store) claimNew(ctx context.Context, c []driver.Claim) (out []driver.Grant, err error) {
	places, index, ok := order(len(c), func(i int) *driver.Key { return &c[i].Key })
	if !ok || len(c) > lockStep {
		return nil, nil
	}
	least := max(s.db.last.Load(), s.db.floor.Load()) + 1
	var args, names []any
	for at, i := range index {
		after, _, changed := driver.DecideClaim(driver.Record{}, c[i], time.Time{}, 0)
		if !changed {
			return nil, nil
		}
		args = append(args, []byte(places[i]), rowstore.OrNull(places[i].Rest(&c[i].Key)), []byte(c[i].Key.Consumer), c[i].Lease.Microseconds(),
			ceil(c[i].Lease), least, at, int64(c[i].Takeover), c[i].Nonce[:], unless(int64(c[i].BodyDigest), 0),
			rowstore.OrNull(rowstore.PackDeliveries(c[i].Key.Raw, after.Deliveries...)), rowstore.OrNull([]byte(after.Fingerprint)),
			rowstore.OrNull(driver.AppendWatermark(nil, &after.Watermark)))
		names = append(names, []byte(places[i]))
	}
	row := s.db.claimed()
	if _, err := s.db.pool.ExecContext(ctx, sqlClaim+row+strings.Repeat(", "+row, len(c)-1), args...); err != nil {
		if code(err) != 0 && !outage(err) { // there is a record, or somebody locks it
			return nil, nil
		}
		return nil, wrote(err, true)
	}
	grants, mine, floor := make([]driver.Grant, len(c)), 0, int64(0)
	err = rows{s.db}.Read(ctx, func(r rowstore.Row) error {
		at, found := slices.BinarySearchFunc(index, rowstore.Place(r.Bytes(0)), func(i int, p rowstore.Place) int {
			return strings.Compare(string(places[i]), string(p))
		})
		if !found || r.Text(3) != string(c[index[at]].Nonce[:]) {
			return nil
		}
		i := index[at]
		_, grants[i], _ = driver.DecideClaim(driver.Record{}, c[i], r.Time(2), uint64(r.Int(1)))
		mine, floor = mine+1, max(floor, r.Int(4))
		s.db.drew(r.Int(1))
		return nil
	}, "SELECT place, token, created_at, nonce, (SELECT purged FROM semel_floor) FROM semel_record FORCE INDEX (PRIMARY) WHERE place IN "+
		values(len(names)), names...)
	if err != nil {
		return nil, err
	}
	s.db.floor.Store(max(s.db.floor.Load(), floor))
	if mine < len(c) { // taken over since then
		return nil, nil
	}
	for i := range grants {
		if int64(grants[i].Hold.Token) <= floor { // the clock stepped back, and a record with a greater token was purged meanwhile
			return nil, s.unclaim(ctx, grants)
		}
	}
	return grants, nil
}

// unclaim removes new records whose tokens must not be used.
func (s *Store) unclaim(ctx context.Context, g []driver.Grant) error {
	return s.db.atomic(ctx, func(x *rowTx) error {
		for i := range g {
			place := rowstore.PlaceOf(&g[i].Hold.Key)
			_, err := x.exec("DELETE FROM semel_record WHERE place = ? AND token = ? AND nonce = ?", []byte(place), int64(g[i].Hold.Token), g[i].Hold.Nonce[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// drew remembers a token.
func (db *DB) drew(token int64) {
	for last := db.last.Load(); token > last && !db.last.CompareAndSwap(last, token); last = db.last.Load() {
	}
}

// errNotPlain reports that the table must decide.
var errNotPlain = errors.New("not a plain completion")

// Finish ends attempts.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if out, err := s.completePlain(ctx, rowstore.Works(f)); out != nil || err != nil {
		return out, rowstore.Wrap(err, "finish")
	}
	return s.slowPath.Finish(ctx, f...)
}

// Commit writes works in one transaction. See [driver.Committer].
func (s *Store) Commit(ctx context.Context, w ...driver.Work) (out []driver.Outcome, err error) {
	if err := rowstore.CheckWorks(w, s.db.checkWork); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	if out, err = s.completePlain(ctx, w); out == nil && err == nil {
		out, err = s.slowPath.Commit(ctx, w...)
	}
	rowqueue.Settled(w, out)
	return out, rowstore.Wrap(err, "commit")
}

// sqlComplete is DecideFinish for the plain case: IN_PROGRESS, held, no versions. It is an INSERT because only that has a list of
// rows. Each row that it updates counts twice. state comes last: the guards before it read the old one.
const sqlComplete = "INSERT INTO semel_record (place, consumer, token, state, bits, nonce, created_at, updated_at, generation, retain_until, " +
	"result, reason) VALUES "

func (db *DB) sqlCompleted() string {
	const guard = "semel_record.token = VALUES(token) AND semel_record.nonce = VALUES(nonce) AND state = 1 AND watermark IS NULL AND " +
		"COALESCE(semel_record.generation, 1) = VALUES(generation)"
	sql := " ON DUPLICATE KEY UPDATE "
	for _, c := range [...]string{
		"updated_at = " + db.stamp, "completed_at = " + db.stamp, "retain_until = " + db.stamp + " + VALUES(retain_until)", "result = VALUES(result)",
		"reason = VALUES(reason)", "bits = bits & ~4", "state = 3",
	} {
		column, value, _ := strings.Cut(c, " = ")
		sql += column + " = IF(" + guard + ", " + value + ", semel_record." + column + "), "
	}
	return strings.TrimSuffix(sql, ", ")
}

// completePlain writes works that all complete the record that they hold. out is nil if the table must decide.
func (s *Store) completePlain(ctx context.Context, w []driver.Work) (out []driver.Outcome, err error) {
	size := 0
	plain := func(w driver.Work) bool {
		size += len(w.Finish.Result) + len(w.Finish.Reason)
		return w.Claim == nil && w.Finish.Final == driver.Complete && w.Finish.Hold.Version == "" && w.Finish.Hold.Token > 0
	}
	_, index, ok := order(len(w), func(i int) *driver.Key { return &w[i].Finish.Hold.Key })
	if len(w) == 0 || len(w) > lockStep || !ok || slices.ContainsFunc(w, func(w driver.Work) bool { return !plain(w) }) || size > flushBytes {
		return nil, nil
	}
	var args []any
	for _, i := range index {
		f := &w[i].Finish
		args = append(args, []byte(rowstore.PlaceOf(&f.Hold.Key)), int64(f.Hold.Token), f.Hold.Nonce[:], int64(f.Hold.Generation),
			f.Keep.Microseconds(), rowstore.OrNull(f.Result), rowstore.OrNull([]byte(f.Reason)))
	}
	const row = "(?, '', ?, 0, 0, ?, 0, 0, ?, ?, ?, ?)"
	all := make([]int, len(w))
	out = make([]driver.Outcome, len(w))
	for i := range all {
		all[i], out[i] = i, driver.Applied
	}
	err = s.db.atomic(ctx, func(x *rowTx) error {
		n, err := x.exec(sqlComplete+row+strings.Repeat(", "+row, len(w)-1)+s.db.sqlCompleted(), args...)
		if err != nil {
			return err
		}
		if n != 2*int64(len(w)) {
			return errNotPlain
		}
		return x.Works(w, all)
	})
	item := (*driver.ItemError)(nil)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, errNotPlain), errors.Is(err, driver.ErrBlocked) && !errors.As(err, &item):
		return nil, nil
	}
	return nil, err
}
