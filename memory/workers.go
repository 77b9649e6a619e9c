package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// ReportWorker stores a report in place of the worker's earlier one. See [driver.WorkerLog].
func (s *Store) ReportWorker(ctx context.Context, r driver.WorkerReport) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("report worker: %w", err)
	}
	r.Settings, r.Holds = maps.Clone(r.Settings), slices.Clone(r.Holds)
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	old := r.Seen.Add(-driver.WorkerKept)
	s.workers = slices.DeleteFunc(s.workers, func(w driver.WorkerReport) bool { return w.ID == r.ID || w.Seen.Before(old) })
	s.workers = append(s.workers, r)
	return nil
}

// ForgetWorker removes the report of a worker that has ended. See [driver.WorkerLog].
func (s *Store) ForgetWorker(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("forget worker: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.workers = slices.DeleteFunc(s.workers, func(w driver.WorkerReport) bool { return w.ID == id })
	return nil
}

// Workers returns all reports. See [driver.WorkerLog].
func (s *Store) Workers(ctx context.Context) ([]driver.WorkerReport, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	all := slices.Clone(s.workers)
	slices.SortFunc(all, driver.CompareWorkers)
	return all, nil
}
