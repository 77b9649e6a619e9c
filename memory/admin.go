package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Record returns the record of a key. ok is false if there is none.
func (s *Store) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, false, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	rec := s.records[k]
	return rec.value(), rec != nil, nil
}

// Records lists records, oldest first unless f says otherwise.
func (s *Store) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var out []driver.Record
	for rec := s.oldest; rec != nil; rec = rec.newer {
		if f.Limit > 0 && len(out) == f.Limit && !f.Newest {
			break
		}
		if (f.Consumer == "" || f.Consumer == rec.Key.Consumer) && (f.State == driver.Absent || f.State == rec.State) {
			out = append(out, rec.Record)
		}
	}
	if f.Newest {
		slices.SortFunc(out, f.Compare)
		if f.Limit > 0 && len(out) > f.Limit {
			out = out[:f.Limit]
		}
	}
	return out, nil
}

// Operate applies an operation and adds it to the audit log. It returns the record as stored afterwards.
func (s *Store) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	rec := s.records[op.Key]
	before, now := rec.value(), s.db.clock()
	after, o, changed := driver.DecideOperate(before, op, now, s.token+1)
	if !changed {
		return before, o, nil
	}
	if after.State == driver.Absent {
		s.remove(rec)
	} else {
		s.write(rec, &after)
	}
	s.addAudit(op.Entry(before, after, now))
	return after, o, nil
}

// sweepChunk is how many records a sweep reads before it releases the mutex for others.
const sweepChunk = 512

// Sweep reads every record once, or until limit of them are purged, expired or parked (0 = no limit). more reports that it
// stopped at the limit. It parks claims of the given consumers, or of all. Only one sweep runs at a time: a second one blocks
// until the first has ended or ctx is done.
func (s *Store) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	var swept driver.Swept
	select {
	case s.sweeping <- struct{}{}:
		defer func() { <-s.sweeping }()
	case <-ctx.Done():
		return swept, false, fmt.Errorf("sweep: %w", ctx.Err())
	}
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return swept, false, fmt.Errorf("sweep: %w", err)
		}
		if done, more := s.sweepSome(first, horizon, limit, &swept, consumers); done {
			return swept, more, nil
		}
	}
}

// overdue reads the next records after the limit of a sweep, for its lag.
func (s *Store) overdue(now time.Time, swept *driver.Swept) {
	rec := s.cursor
	for range sweepChunk {
		if rec == nil {
			return
		}
		if _, v := driver.DecideSweep(rec.Record, now, 0, s.longTerm[rec.Key.Consumer]); v != driver.SweepKeep {
			swept.Overdue(now, rec.RetainUntil)
		}
		rec = rec.newer
	}
}

func (s *Store) sweepSome(first bool, horizon time.Duration, limit int, swept *driver.Swept, consumers []string) (done, more bool) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	now := s.db.clock()
	if first {
		s.cursor = s.oldest
	}
	for range sweepChunk {
		rec := s.cursor
		if rec == nil {
			return true, false
		}
		if limit > 0 && swept.Count() >= limit {
			s.overdue(now, swept)
			return true, true
		}
		s.cursor = rec.newer
		switch after, v := driver.DecideSweep(rec.Record, now, horizon, s.longTerm[rec.Key.Consumer], consumers...); v {
		case driver.SweepPurge:
			s.remove(rec)
			swept.Purged++
		case driver.SweepAbandon:
			s.write(rec, &after)
			swept.Abandoned++
		case driver.SweepExpire:
			s.strip(rec.Key)
			s.write(rec, &after)
			swept.Expired++
		case driver.SweepKeep:
		}
	}
	return false, false
}
