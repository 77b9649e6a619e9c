// Package adapter is the example of docs/adapter-guide.md: a record store and a queue, each on one file. They pass every case
// of the conformance suites. They keep all records and messages in memory and never shrink their files: use SQLite for work.
package adapter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Store keeps idempotency records in a file. Every method does the same three things: it takes the lock, lets a Decide
// function of the driver decide, and writes what changed. One process may have the file open.
type Store struct {
	name    string
	now     func() time.Time
	mu      sync.Mutex
	records map[driver.Key]driver.Record
	token   uint64 // the greatest ever: it outlives the records that are purged
	file    *journal[change]
}

// change is an entry of the file: a record, or a key whose record is purged, and the greatest token.
type change struct {
	Record driver.Record
	Purged driver.Key
	Token  uint64
}

// OpenStore opens the file, or makes it. now is the clock; nil = [time.Now].
func OpenStore(path string, now func() time.Time) (*Store, error) {
	if now == nil {
		now = time.Now
	}
	s := &Store{name: path, now: now, records: map[driver.Key]driver.Record{}}
	var err error
	s.file, err = openJournal(path, s.apply)
	return s, err
}

// Close closes the file.
func (s *Store) Close() error { return s.file.close() }

// Features describes the store.
func (s *Store) Features() driver.StoreFeatures {
	return driver.StoreFeatures{Name: s.name, Kind: "file", Durable: true, ServerClock: true, ListsUncertain: true}
}

// Claim decides claims. An error means that the verdicts are unknown: the caller repeats the claims with the same nonces.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	out := make([]driver.Grant, len(c))
	err := s.write(ctx, func(now time.Time, put func(change)) {
		for i := range c {
			after, grant, changed := driver.DecideClaim(s.records[c[i].Key], c[i], now, s.token+1)
			if out[i] = grant; changed {
				put(change{Record: after})
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return out, nil
}

// Extend renews leases.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(h))
	err := s.write(ctx, func(now time.Time, put func(change)) {
		for i := range h {
			var after driver.Record
			if after, out[i] = driver.DecideExtend(s.records[h[i].Key], h[i], lease, now); out[i] == driver.Applied {
				put(change{Record: after})
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	return out, nil
}

// Finish ends attempts.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(f))
	err := s.write(ctx, func(now time.Time, put func(change)) {
		for i := range f {
			after, o, changed := driver.DecideFinish(s.records[f[i].Hold.Key], f[i], now)
			if out[i] = o; changed {
				put(change{Record: after})
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	return out, nil
}

// write runs decide under the lock. What decide puts is in memory at once, for the items behind it, and in the file before
// write returns. After a failed write memory and file may differ: the store takes no further writes.
func (s *Store) write(ctx context.Context, decide func(now time.Time, put func(change))) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file.broken != nil {
		return s.file.broken
	}
	var changes []change
	decide(s.now(), func(c change) {
		c.Token = max(s.token, c.Record.Token)
		s.apply(c)
		changes = append(changes, c)
	})
	return s.file.append(changes...)
}

func (s *Store) apply(c change) {
	s.token = max(s.token, c.Token)
	if c.Record.State == driver.Absent {
		delete(s.records, c.Purged)
		return
	}
	s.records[c.Record.Key] = c.Record
}

// Record returns the record of a key; ok is false when there is none.
func (s *Store) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[k]
	return r, ok, ctx.Err()
}

// Records lists records, oldest first unless f says otherwise.
func (s *Store) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	s.mu.Lock()
	all := slices.SortedFunc(maps.Values(s.records), f.Compare)
	s.mu.Unlock()
	all = slices.DeleteFunc(all, func(r driver.Record) bool {
		return f.Consumer != "" && f.Consumer != r.Key.Consumer || f.State != driver.Absent && f.State != r.State
	})
	if f.Limit > 0 && len(all) > f.Limit {
		all = all[:f.Limit]
	}
	return all, ctx.Err()
}

// Operate carries out an operator's operation.
func (s *Store) Operate(ctx context.Context, op driver.Operation) (r driver.Record, o driver.Outcome, err error) {
	err = s.write(ctx, func(now time.Time, put func(change)) {
		var changed bool
		if r, o, changed = driver.DecideOperate(s.records[op.Key], op, now, s.token+1); changed {
			put(change{Record: r, Purged: op.Key}) // an erased record is Absent
		}
	})
	if err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("%v: %w", op.Kind, err)
	}
	return r, o, nil
}

// Sweep purges records whose retention has ended, and parks claims that were abandoned.
func (s *Store) Sweep(
	ctx context.Context, horizon time.Duration, limit int, consumers ...string,
) (swept driver.Swept, more bool, err error) {
	err = s.write(ctx, func(now time.Time, put func(change)) {
		for key, r := range s.records {
			after, verdict := driver.DecideSweep(r, now, horizon, 0, consumers...) // it is no driver.LongTerm
			if verdict != driver.SweepKeep && limit > 0 && swept.Count() >= limit {
				more = true
				swept.Overdue(now, r.RetainUntil)
				continue
			}
			switch verdict {
			case driver.SweepPurge:
				put(change{Purged: key})
				swept.Purged++
			case driver.SweepAbandon:
				put(change{Record: after})
				swept.Abandoned++
			case driver.SweepKeep, driver.SweepExpire:
			}
		}
	})
	return swept, more, err
}
