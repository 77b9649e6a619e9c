package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// sqlLockRecords locks records. 1 hashes 2 leave out locked ones 3 wait. See semel_lock.
const sqlLockRecords = "SELECT * FROM semel_lock($1, $2, $3)"

// addLock adds the statement that locks the records of part, each to its place in out.
func (db *DB) addLock(p *pipeline, part keyed, skip bool, out []rowstore.Locked) {
	p.query("lock records", func(rows pgx.Rows) error {
		var (
			hash  [16]byte
			found []byte
			drawn int64
			near  = 0
		)
		for rows.Next() {
			var l rowstore.Locked
			err := rows.Scan(&hash, &found, &l.Now, &drawn)
			if err != nil {
				return err
			}
			if l.Record, l.Err = readRecord(found); l.Err != nil {
				l.Record = driver.Record{}
			}
			l.Drawn = uint64(drawn)
			at := part.find(hash, near)
			if at == len(part.index) {
				return fmt.Errorf("%w: key %q was not asked for", errClient, l.Record.Key.Raw)
			}
			near = at + 1
			out[at] = l
		}
		return rows.Err()
	}, sqlLockRecords, part.hashes, skip, millis(db.o.LockWait))
}

// millis is a time to wait as the server takes it: 0 would be for ever, and 24 days are the most.
func millis(d time.Duration) int32 { return int32(min(max(d.Milliseconds(), 1), math.MaxInt32)) }

// ask runs one statement that is a transaction of its own, in one round trip.
func (db *DB) ask(ctx context.Context, what string, rows func(pgx.Rows) error, sql string, args ...any) error {
	if !db.info.plain {
		return db.once(ctx, func(p *pipeline) error { p.query(what, rows, sql, args...); return nil })
	}
	return db.with(ctx, func(c *pgxpool.Conn) error {
		r, err := c.Query(ctx, sql, args...)
		if err == nil {
			err = rows(r)
			r.Close()
			err = errors.Join(err, r.Err())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}
