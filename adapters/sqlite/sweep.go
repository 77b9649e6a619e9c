package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// A sweep needs no index on the records' retention, which every completion would have to move. For each block of 4096
// tokens it knows when something in it can be due at the earliest (semel_block). A completion in the fast path does not
// change that: the record was IN_PROGRESS when its block was looked at, so the block is due at once. Every other write to a
// known block marks it (txn.touch). Blocks from semel_state.swept on are not known yet.

// sweepStep bounds what one transaction of a sweep removes, so that claims wait some milliseconds at most.
const sweepStep = 200

// sweepSteps bounds the steps and audit entries that one transaction removes with their records (trigger
// semel_record_gone). Those of one record go at once.
const sweepSteps = 5000

const (
	sqlSweepKnown = "SELECT block FROM semel_block WHERE block >= ? AND due <= ? ORDER BY block LIMIT 1"
	sqlSweepNext  = "SELECT token FROM semel_record WHERE token >= ? ORDER BY token LIMIT 1"
	sqlSweepBlock = `SELECT token, state, retain_until, lease_until, consumer, bits & 4, watermark IS NOT NULL, place
  FROM semel_record WHERE token >= ? AND token < ?`
	sqlSweepPurge = "DELETE FROM semel_record WHERE token = ? AND state IN (2, 3, 4, 6) AND retain_until < ?"
	// sqlSweepExpire makes a record EXPIRED. 1 period 2 token 3 now
	sqlSweepExpire = `UPDATE semel_record SET bits = (bits & ~8) | (state << 5), state = 6, until = until + ?, nonce = x'',
  result = NULL, reason = NULL, fingerprint = NULL, body_digest = 0, deliveries = NULL,
  more = json_remove(more, '$.attempt', '$.failures', '$.takeovers', '$.lease', '$.retry_at', '$.completed_at')
  WHERE token = ? AND (state IN (3, 4) OR state = 2 AND bits & 4) AND watermark IS NULL AND retain_until < ?`
	sqlSweepKeep = "INSERT INTO semel_block (block, due) VALUES (?, ?) ON CONFLICT (block) DO UPDATE SET due = excluded.due"
	sqlSweepDrop = "DELETE FROM semel_block WHERE block = ?"

	// sqlSweepBelongings reports whether any record has belongings, and the count of changes so far.
	sqlSweepBelongings = `SELECT EXISTS (SELECT 1 FROM semel_step) OR EXISTS (SELECT 1 FROM semel_audit)
  OR EXISTS (SELECT 1 FROM semel_duplicate), total_changes()`
)

// sqlBelongings removes the belongings of a record that expires. The trigger semel_record_gone removes those of a deleted
// one.
var sqlBelongings = [...]string{
	"DELETE FROM semel_step WHERE place = ?", "DELETE FROM semel_audit WHERE place = ?", "DELETE FROM semel_duplicate WHERE place = ?",
}

// sqlCaseDelete removes the case of a record that expires.
const sqlCaseDelete = "DELETE FROM semel_case WHERE place = ?"

// Sweep purges or expires up to limit records whose retention has ended, and parks claims of the consumers (none = all)
// that were abandoned for longer than horizon. limit 0 = no limit; more reports that it stopped at the limit. It works in
// short transactions, and looks only at blocks where something can be due.
func (s *Store) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (sum driver.Swept, more bool, err error) {
	select {
	case s.db.sweeping <- struct{}{}:
		defer func() { <-s.db.sweeping }()
	case <-ctx.Done():
		return sum, false, fmt.Errorf("sweep: %w", ctx.Err())
	}
	if limit <= 0 {
		limit = math.MaxInt
	}
	from := int64(0)
	for looked := false; ; {
		left := max(limit-sum.Count(), 0)
		if left == 0 && (looked || sum.Lag > 0) {
			return sum, true, nil
		}
		looked = left == 0 // the next block shows whether anything is left
		var step sweep
		err := s.db.write(ctx, sweepStep, func(t *txn) error {
			step = sweep{t: t, horizon: horizon, consumers: consumers, left: min(left, sweepStep), from: from}
			return step.run()
		})
		if err != nil {
			return sum, false, fmt.Errorf("sweep: %w", err)
		}
		sum.Add(step.sum)
		if step.end {
			return sum, false, nil
		}
		from = step.from
	}
}

// sweep is one transaction of a sweep: one block, or a part of it.
type sweep struct {
	t         *txn
	horizon   time.Duration
	consumers []string // whose claims are parked; none: all
	left      int
	from      int64 // the block to go on with
	end       bool  // there is no further block
	sum       driver.Swept
}

// departure is a record whose retention has ended. It is purged, or with a period becomes EXPIRED.
type departure struct {
	token  int64
	place  []byte
	period time.Duration
	failed bool // there may be a case
}

func (w *sweep) run() error {
	t := w.t
	if err := t.load(); err != nil {
		return err
	}
	var block int64
	known, err := t.s.one([]*int64{&block}, sqlSweepKnown, w.from, t.micros())
	if err != nil {
		return err
	}
	if !known {
		var token int64
		ok, err := t.s.one([]*int64{&token}, sqlSweepNext, max(w.from, t.swept)<<blockShift)
		if err != nil {
			return err
		}
		if !ok {
			w.end = true
			return nil
		}
		block = token >> blockShift
	}
	// The block of the current token stays unknown, because new records do not mark it.
	current := block >= t.token>>blockShift
	due, whole, err := w.sweepBlock(block)
	if err != nil {
		return err
	}
	if whole {
		w.from = block + 1
	} else {
		w.from, due = block, 0
	}
	if current {
		w.end = whole
		return nil
	}
	if block >= t.swept {
		t.swept, t.dirty = block+1, true
	}
	if due == math.MinInt64 {
		_, err = t.s.exec(sqlSweepDrop, block)
	} else {
		_, err = t.s.exec(sqlSweepKeep, block, due)
	}
	return err
}

// sweepBlock decides at most w.left records of one block. due is when to look at it again (MinInt64: it is empty); whole is
// false when it stopped at the limit.
func (w *sweep) sweepBlock(block int64) (due int64, whole bool, err error) {
	t := w.t
	var depart []departure
	var abandon []int64
	keep := 0
	due, whole = math.MaxInt64, true
	periods, err := rowstore.Periods(rowTx{t})
	if err != nil {
		return 0, false, err
	}
	err = t.s.query(func(v rowstore.Row) error {
		r := driver.Record{
			State: driver.State(v.Int(1)), RetainUntil: v.Time(2), LeaseUntil: v.Time(3),
			Key: driver.Key{Consumer: v.Text(4)}, Unknown: v.Int(5) != 0,
		}
		if v.Int(6) != 0 {
			r.Watermark.Running = "?" // which one it is does not matter
		}
		period := periods[r.Key.Consumer]
		after, verdict := driver.DecideSweep(r, t.now, w.horizon, period, w.consumers...)
		if verdict != driver.SweepKeep && len(depart)+len(abandon) == w.left {
			if whole = false; verdict != driver.SweepAbandon {
				w.sum.Overdue(t.now, r.RetainUntil)
			}
			return nil
		}
		switch verdict {
		case driver.SweepPurge:
			depart = append(depart, departure{token: v.Int(0)})
			return nil
		case driver.SweepExpire:
			depart = append(depart, departure{v.Int(0), bytes.Clone(v.Bytes(7)), period, r.State == driver.FailedState})
			r = after
		case driver.SweepAbandon:
			abandon = append(abandon, v.Int(0))
		case driver.SweepKeep:
		}
		keep++
		switch r.State {
		case driver.InProgress:
			due = min(due, t.micros())
		case driver.Completed, driver.FailedState, driver.Released, driver.Expired:
			due = min(due, rowstore.Micro(r.RetainUntil)+1)
		case driver.Absent, driver.Uncertain: // only a write of txn.store makes it due
		}
		return nil
	}, sqlSweepBlock, block<<blockShift, (block+1)<<blockShift)
	if err != nil {
		return 0, false, err
	}
	if keep == 0 && whole {
		due = math.MinInt64
	}
	some, err := w.depart(depart)
	if err != nil || some {
		return due, false, err
	}
	return due, whole, w.abandon(abandon)
}

// depart purges or expires records. some: it stopped because too much belonged to them.
func (w *sweep) depart(list []departure) (some bool, err error) {
	t := w.t
	var belongings, before, after int64
	if len(list) == 0 {
		return false, nil
	}
	if _, err := t.s.one([]*int64{&belongings, &before}, sqlSweepBelongings); err != nil {
		return false, err
	}
	for i, d := range list {
		if d.period > 0 {
			err = w.expire(d, belongings != 0)
		} else {
			err = w.purge(d.token)
		}
		if err != nil {
			return false, err
		}
		if belongings == 0 || i == len(list)-1 {
			continue
		}
		if _, err := t.s.one([]*int64{&after}, "SELECT total_changes()"); err != nil {
			return false, err
		}
		if after-before > sweepSteps {
			return true, nil
		}
	}
	return false, nil
}

func (w *sweep) purge(token int64) error {
	n, err := w.t.s.exec(sqlSweepPurge, token, w.t.micros())
	if err != nil || n == 0 {
		return err
	}
	w.sum.Purged++
	return w.t.purgedAt(token)
}

// millis is a period in milliseconds, rounded up.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func (w *sweep) expire(d departure, belongings bool) error {
	n, err := w.t.s.exec(sqlSweepExpire, millis(d.period), d.token, w.t.micros())
	if err != nil || n == 0 {
		return err
	}
	w.sum.Expired++
	if d.failed {
		if _, err := w.t.s.exec(sqlCaseDelete, d.place); err != nil {
			return err
		}
	}
	for i := 0; belongings && i < len(sqlBelongings); i++ {
		if _, err := w.t.s.exec(sqlBelongings[i], d.place); err != nil {
			return err
		}
	}
	return nil
}

// purgedAt remembers the token of a removed record. It is not drawn again.
func (t *txn) purgedAt(token int64) error {
	if err := t.load(); err != nil {
		return err
	}
	if token > t.purged {
		t.purged, t.dirty = token, true
	}
	return nil
}

// erase removes a record with its belongings.
func (t *txn) erase(token uint64) error {
	n, err := t.s.exec(sqlRecordDelete, int64(token))
	if err == nil && n != 1 {
		err = fmt.Errorf("%d records have token %d", n, token)
	}
	if err != nil {
		return err
	}
	return t.purgedAt(int64(token))
}

func (w *sweep) abandon(tokens []int64) error {
	t := w.t
	for _, token := range tokens {
		var r driver.Record
		err := t.s.query(func(v rowstore.Row) (err error) { r, err = scanRecord(v); return err }, sqlRecordByToken, token)
		if err != nil {
			return err
		}
		after, verdict := driver.DecideSweep(r, t.now, w.horizon, 0, w.consumers...)
		if verdict != driver.SweepAbandon {
			continue
		}
		if err := t.store(r.Token, &after); err != nil {
			return err
		}
		if err := rowstore.WriteCase(rowTx{t}, &r, &after); err != nil {
			return err
		}
		w.sum.Abandoned++
	}
	return nil
}
