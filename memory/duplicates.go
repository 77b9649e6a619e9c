package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// duplicates are those of one key.
type duplicates struct {
	total  int64
	newest []driver.Duplicate
}

// AddDuplicates appends duplicates of keys that have a record. See [driver.DuplicateLog].
func (s *Store) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("add duplicates: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, d := range ds {
		if s.records[d.Key] == nil {
			continue
		}
		of := s.duplicates[d.Key]
		of.total++
		if of.newest = append(of.newest, d); len(of.newest) > driver.MaxDuplicates {
			of.newest = slices.Delete(of.newest, 0, 1)
		}
		s.duplicates[d.Key] = of
	}
	return nil
}

// Duplicates returns the duplicates of a key. See [driver.DuplicateLog].
func (s *Store) Duplicates(ctx context.Context, k driver.Key) (total int64, newest []driver.Duplicate, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, fmt.Errorf("list duplicates: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	of := s.duplicates[k]
	return of.total, slices.Clone(of.newest), nil
}
