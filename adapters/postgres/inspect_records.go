package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

const (
	// sqlRecord reads one record. 1 its hash, as an array
	sqlRecord = "SELECT semel_row(r) FROM semel_record r WHERE hash = ANY ($1)"

	// sqlRecords lists records, oldest first, sqlNewest those first that were changed last. 1 consumer (NULL = all) 2 state (0 = all)
	// 3 limit (NULL = none)
	sqlRecords = `SELECT semel_row(r) FROM semel_record r
  WHERE ($1::bytea IS NULL OR consumer = $1) AND ($2::smallint = 0 OR state = $2)
  ORDER BY created_at, token LIMIT $3::bigint`
	sqlNewest = `SELECT semel_row(r) FROM semel_record r
  WHERE ($1::bytea IS NULL OR consumer = $1) AND ($2::smallint = 0 OR state = $2)
  ORDER BY updated_at DESC, token DESC LIMIT $3::bigint`

	// sqlUncertain lists the records that are UNCERTAIN, oldest first, and reads no others. 1 consumer (NULL = all)
	// 2 limit (NULL = none)
	sqlUncertain = "SELECT * FROM semel_list_uncertain($1, $2)"

	// sqlErase removes a locked record. 1 its hash, as an array
	sqlErase = "SELECT semel_erase(h) FROM unnest($1::uuid[]) AS u (h)"
)

// Record reads one record; ok is false when there is none.
func (s *Store) Record(ctx context.Context, k driver.Key) (r driver.Record, ok bool, err error) {
	rs, err := s.db.records(ctx, sqlRecord, uuids{hashOf(&k)})
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("read record of key %q: %w", k.Raw, err)
	}
	if len(rs) == 0 || rs[0].Key != k {
		return driver.Record{}, false, nil
	}
	return rs[0], true, nil
}

// Records lists records, oldest first unless f says otherwise.
func (s *Store) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	var limit *int64
	if f.Limit > 0 {
		n := int64(f.Limit)
		limit = &n
	}
	sql, args := sqlRecords, []any{bytesOrNull(f.Consumer), int16(f.State), limit}
	switch {
	case f.State == driver.Uncertain && f.Newest: // few: a person decides on each
		sql, args = sqlUncertain, []any{bytesOrNull(f.Consumer), nil}
	case f.State == driver.Uncertain:
		sql, args = sqlUncertain, []any{bytesOrNull(f.Consumer), limit}
	case f.Newest:
		sql = sqlNewest
	}
	rs, err := s.db.records(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	if f.State == driver.Uncertain && f.Newest {
		slices.SortFunc(rs, f.Compare)
		if f.Limit > 0 && len(rs) > f.Limit {
			rs = rs[:f.Limit]
		}
	}
	return rs, nil
}

func (db *DB) records(ctx context.Context, sql string, args ...any) (rs []driver.Record, err error) {
	c, err := db.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return nil, explain(err)
	}
	rs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r driver.Record, err error) {
		var b []byte
		if err := row.Scan(&b); err != nil {
			return r, err
		}
		return readRecord(b)
	})
	return rs, explain(err)
}

// Operate does an operator's act and adds it to the trail; the record returned is the one that is stored afterwards.
func (s *Store) Operate(ctx context.Context, op driver.Operation) (r driver.Record, o driver.Outcome, err error) {
	part := sortKeys(1, func(int) *driver.Key { return &op.Key })
	err = s.db.with(ctx, func(conn *pgxpool.Conn) error {
		locked := make([]lockedRecord, 1)
		p := &pipeline{}
		p.beginLong(s.db)
		s.db.addLock(p, part, false, locked)
		if err := p.run(ctx, conn); err != nil {
			return err
		}
		p = &pipeline{}
		l, changed := &locked[0], false
		if l.err != nil {
			return l.err
		}
		if o = driver.Lost; l.r.Key == op.Key {
			r, o, changed = driver.DecideOperate(l.r, op, l.now, l.drawn)
		}
		if changed {
			e := op.Entry(l.r, r, l.now)
			if r.State == driver.Absent {
				p.exec("erase a record", sqlErase, part.hashes)
			} else {
				p.store([]driver.Record{r})
			}
			p.addAudit(hashOf(&e.Key), &e)
		}
		p.commit()
		return p.run(ctx, conn)
	})
	if err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, err)
	}
	return r, o, nil
}
