package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// record is a row with its version: every write sets a new one that was not used before, so that an open transaction notices a
// write to its row.
type record struct {
	driver.Record
	version      uint64
	older, newer *record // all records in the order in which they were made
}

// Store keeps idempotency records in memory. It uses the decision table of package driver, with one mutex around each call.
// Make it with [NewStore] or [DB.Store].
type Store struct {
	db      *DB
	records map[driver.Key]*record
	oldest  *record
	newest  *record
	free    *record // recycled, linked by newer
	spare   []record

	token   uint64 // the greatest token so far, which a purge does not lower
	version uint64
	// journals are the durable steps of runs. They are removed with their record.
	journals map[driver.Key]map[runID][]driver.Step
	// audit is the audit log by key. Entries are removed with their record.
	audit    map[driver.Key][]auditLine
	auditSeq uint64
	// duplicates are those of each key. They are removed with their record.
	duplicates map[driver.Key]duplicates
	workers    []driver.WorkerReport
	// held are the keys that open transactions hold (see Tx).
	held map[driver.Key]*transaction

	// longTerm is how long records of a consumer stay EXPIRED.
	longTerm map[string]time.Duration

	sweeping chan struct{} // one sweep at a time. It is a channel, because a waiting sweep must obey its ctx
	cursor   *record       // where the running sweep continues
	// Scratch buffers of Commit: the undo log, and the written items.
	undo  []undo
	fresh []bool
}

func newStore(db *DB) *Store {
	return &Store{
		db: db, records: map[driver.Key]*record{}, journals: map[driver.Key]map[runID][]driver.Step{},
		audit: map[driver.Key][]auditLine{}, duplicates: map[driver.Key]duplicates{}, longTerm: map[string]time.Duration{},
		held: map[driver.Key]*transaction{}, sweeping: make(chan struct{}, 1),
	}
}

// Tables returns the rows that effects wrote through this store.
func (s *Store) Tables() *Tables { return &s.db.tables }

// Features describes the store.
func (s *Store) Features() driver.StoreFeatures {
	return driver.StoreFeatures{Name: "memory", Kind: "memory", ServerClock: true, Emits: !s.db.standalone, ClaimsAtCommit: true}
}

// Claim decides all claims in one step. A key that an open transaction holds is Busy. An error means that nothing was decided.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	out := make([]driver.Grant, len(c))
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	now := s.db.clock()
	for i := range c {
		if len(s.held) > 0 && s.held[c[i].Key] != nil {
			out[i] = s.busy(&c[i])
			continue
		}
		rec := s.records[c[i].Key]
		var changed bool
		var after driver.Record
		after, out[i], changed = driver.DecideClaim(rec.value(), c[i], now, s.token+1)
		if changed {
			s.write(rec, &after)
		}
	}
	return out, nil
}

// Extend renews all leases in one step. An error means that nothing was renewed.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	out := make([]driver.Outcome, len(h))
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	now := s.db.clock()
	for i := range h {
		rec := s.records[h[i].Key]
		var after driver.Record
		if after, out[i] = driver.DecideExtend(rec.value(), h[i], lease, now); out[i] == driver.Applied {
			s.write(rec, &after)
		}
	}
	return out, nil
}

// Finish ends all attempts in one step. An error means that nothing was written.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	out := make([]driver.Outcome, len(f))
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	now := s.db.clock()
	for i := range f {
		out[i], _ = s.finish(&f[i], now)
	}
	return out, nil
}

func (s *Store) finish(f *driver.Finish, now time.Time) (o driver.Outcome, changed bool) {
	rec := s.records[f.Hold.Key]
	var after driver.Record
	after, o, changed = driver.DecideFinish(rec.value(), *f, now)
	if changed {
		s.write(rec, &after)
	}
	return o, changed
}

// value returns the record, or the absent one for nil.
func (r *record) value() driver.Record {
	if r == nil {
		return driver.Record{}
	}
	return r.Record
}

// write stores after as the new value of rec, which is nil for a key that had none.
func (s *Store) write(rec *record, after *driver.Record) {
	if rec == nil {
		rec = s.insert(after.Key)
	}
	rec.Record = *after
	s.version++
	rec.version = s.version
	s.token = max(s.token, after.Token)
}

func (s *Store) insert(k driver.Key) *record {
	rec := s.free
	switch {
	case rec != nil:
		s.free, rec.newer = rec.newer, nil
	default:
		if len(s.spare) == 0 {
			s.spare = make([]record, 64)
		}
		rec = &s.spare[0]
		s.spare = s.spare[1:]
	}
	s.records[k] = rec
	if s.newest == nil {
		s.oldest = rec
	} else {
		rec.older, s.newest.newer = s.newest, rec
	}
	s.newest = rec
	return rec
}

// strip removes a record's journal, audit entries and duplicates.
func (s *Store) strip(k driver.Key) {
	if len(s.journals) > 0 {
		delete(s.journals, k)
	}
	if len(s.audit) > 0 {
		delete(s.audit, k)
	}
	if len(s.duplicates) > 0 {
		delete(s.duplicates, k)
	}
}

// remove purges a record. Its memory is reused, its token is not.
func (s *Store) remove(rec *record) {
	delete(s.records, rec.Key)
	s.strip(rec.Key)
	if rec.older == nil {
		s.oldest = rec.newer
	} else {
		rec.older.newer = rec.newer
	}
	if rec.newer == nil {
		s.newest = rec.older
	} else {
		rec.newer.older = rec.older
	}
	if s.cursor == rec {
		s.cursor = rec.newer
	}
	*rec = record{newer: s.free}
	s.free = rec
}
