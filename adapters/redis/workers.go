package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// workers are the names of a hash with the latest report of each worker, and of a sorted set of their IDs by the time of the report.
func (s *Store) workers() (reports, seen string) {
	return "{" + s.prefix + "}:workers", "{" + s.prefix + "}:workers-seen"
}

// ReportWorker stores a report in place of the worker's earlier one. See [driver.WorkerLog].
func (s *Store) ReportWorker(ctx context.Context, r driver.WorkerReport) error {
	b, err := json.Marshal(&r)
	if err != nil {
		return fmt.Errorf("report worker: %w", err)
	}
	reports, seen := s.workers()
	var old *goredis.StringSliceCmd
	_, err = s.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		p.HSet(ctx, reports, r.ID, b)
		p.ZAdd(ctx, seen, goredis.Z{Score: float64(r.Seen.UnixMicro()), Member: r.ID})
		before := "(" + strconv.FormatInt(r.Seen.Add(-driver.WorkerKept).UnixMicro(), 10)
		old = p.ZRangeByScore(ctx, seen, &goredis.ZRangeBy{Min: "-inf", Max: before})
		return nil
	})
	for i := 0; err == nil && i < len(old.Val()); i++ {
		err = s.ForgetWorker(ctx, old.Val()[i])
	}
	if err != nil {
		return fmt.Errorf("report worker: %w", explain(err))
	}
	return nil
}

// ForgetWorker removes the report of a worker that has ended. See [driver.WorkerLog].
func (s *Store) ForgetWorker(ctx context.Context, id string) error {
	reports, seen := s.workers()
	_, err := s.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		p.HDel(ctx, reports, id)
		p.ZRem(ctx, seen, id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget worker: %w", explain(err))
	}
	return nil
}

// Workers returns all reports. See [driver.WorkerLog].
func (s *Store) Workers(ctx context.Context) (all []driver.WorkerReport, err error) {
	reports, _ := s.workers()
	rows, err := s.client.HGetAll(ctx, reports).Result()
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", explain(err))
	}
	for id, row := range rows {
		var r driver.WorkerReport
		if err := json.Unmarshal([]byte(row), &r); err != nil {
			return nil, fmt.Errorf("list workers: %w: report of worker %q: %w", driver.ErrUnreadable, id, err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, driver.CompareWorkers)
	return all, nil
}
