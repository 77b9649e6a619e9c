package dynamodb

import (
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// find reads the current row of a key.
func (s *Store) find(ctx context.Context, k driver.Key) (row, error) {
	item, err := s.get(ctx, s.shape.keyOf(k))
	if err != nil {
		return row{}, explain(err, "GetItem", s.table)
	}
	r, err := s.shape.decode(k, item)
	if err != nil {
		return row{}, fmt.Errorf("key %q: %w", k.Raw, err)
	}
	return r, nil
}

// Record returns the record of a key; ok is false when there is none. See [driver.RecordInspector].
func (s *Store) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	r, err := s.find(ctx, k)
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("read record: %w", err)
	}
	return r.Record, r.State != driver.Absent, nil
}

// Records lists records, oldest first unless f says otherwise. The table is not ordered by age: Records reads all of it,
// whatever the limit, and sorts. For many records use [Store.ScanRecords].
func (s *Store) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	var all []driver.Record
	err := s.scan(ctx, scanned{consumer: f.Consumer, state: f.State}, func(r *row) error {
		all = append(all, r.Record)
		if f.Limit > 0 && len(all) > 2*f.Limit+1000 {
			all = first(all, f)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("list records: %w", err)
	}
	return first(all, f), err
}

// first sorts records in the order of f and returns the first f.Limit; 0 = all.
func first(all []driver.Record, f driver.RecordFilter) []driver.Record {
	slices.SortStableFunc(all, f.Compare)
	if f.Limit > 0 && len(all) > f.Limit {
		return all[:f.Limit]
	}
	return all
}
