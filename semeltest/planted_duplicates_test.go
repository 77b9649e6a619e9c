package semeltest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// plantedDuplicates is memory's store with a bug in its log of duplicates.
type plantedDuplicates struct {
	*memory.Store
	add  func(s *plantedDuplicates, ctx context.Context, ds []driver.Duplicate) error
	list func(s *plantedDuplicates, k driver.Key, total int64, newest []driver.Duplicate) (int64, []driver.Duplicate)
	all  []driver.Duplicate
}

func (s *plantedDuplicates) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	s.all = append(s.all, ds...)
	if s.add != nil {
		return s.add(s, ctx, ds)
	}
	return s.Store.AddDuplicates(ctx, ds...)
}

func (s *plantedDuplicates) Duplicates(ctx context.Context, k driver.Key) (int64, []driver.Duplicate, error) {
	total, newest, err := s.Store.Duplicates(ctx, k)
	if s.list != nil {
		total, newest = s.list(s, k, total, newest)
	}
	return total, newest, err
}

// every lists what was ever added for a key.
func (s *plantedDuplicates) every(k driver.Key) (out []driver.Duplicate) {
	for _, d := range s.all {
		if d.Key == k {
			out = append(out, d)
		}
	}
	return out
}

func TestPlantedDuplicateBugs(t *testing.T) {
	type listing = func(s *plantedDuplicates, k driver.Key, total int64, newest []driver.Duplicate) (int64, []driver.Duplicate)
	type adding = func(s *plantedDuplicates, ctx context.Context, ds []driver.Duplicate) error
	each := func(change func(d *driver.Duplicate)) listing {
		return func(_ *plantedDuplicates, _ driver.Key, total int64, newest []driver.Duplicate) (int64, []driver.Duplicate) {
			for i := range newest {
				change(&newest[i])
			}
			return total, newest
		}
	}
	const added, bounded, purged = "duplicates, what was added", "duplicates, the newest and the count", "duplicates go with their record"
	for name, bug := range map[string]struct {
		in   string
		add  adding
		list listing
	}{
		"no time":        {in: added, list: each(func(d *driver.Duplicate) { d.At = d.At.Truncate(time.Second) })},
		"no worker":      {in: added, list: each(func(d *driver.Duplicate) { d.Worker = "" })},
		"no queue":       {in: added, list: each(func(d *driver.Duplicate) { d.Queue = "" })},
		"no count":       {in: added, list: each(func(d *driver.Duplicate) { d.Count = 1 })},
		"no cause":       {in: added, list: each(func(d *driver.Duplicate) { d.Cause = "" })},
		"one decision":   {in: added, list: each(func(d *driver.Duplicate) { d.Decision = "replayed" })},
		"id ends at NUL": {in: added, list: each(func(d *driver.Duplicate) { d.MessageID = cutNUL(d.MessageID) })},
		"the newest first": {in: bounded, list: func(_ *plantedDuplicates, _ driver.Key, n int64, d []driver.Duplicate) (int64, []driver.Duplicate) {
			slices.Reverse(d)
			return n, d
		}},
		"keys mix": {in: added, add: func(s *plantedDuplicates, ctx context.Context, ds []driver.Duplicate) error {
			for i := range ds {
				ds[i].Key.Tenant = ""
			}
			return s.Store.AddDuplicates(ctx, ds...)
		}},
		"only the first of a call": {in: added, add: func(s *plantedDuplicates, ctx context.Context, ds []driver.Duplicate) error {
			return s.Store.AddDuplicates(ctx, ds[:min(len(ds), 1)]...)
		}},
		"keys without a record": {in: added, list: func(s *plantedDuplicates, k driver.Key, _ int64, _ []driver.Duplicate) (int64, []driver.Duplicate) {
			all := s.every(k)
			return int64(len(all)), all[max(len(all)-driver.MaxDuplicates, 0):]
		}},
		"no bound": {in: bounded, list: func(s *plantedDuplicates, k driver.Key, n int64, _ []driver.Duplicate) (int64, []driver.Duplicate) {
			return n, s.every(k)
		}},
		"the first, not the newest": {in: bounded, list: func(s *plantedDuplicates, k driver.Key, n int64, d []driver.Duplicate) (int64, []driver.Duplicate) {
			return n, s.every(k)[:len(d)]
		}},
		"counts what it keeps": {in: bounded, list: func(_ *plantedDuplicates, _ driver.Key, _ int64, d []driver.Duplicate) (int64, []driver.Duplicate) {
			return int64(len(d)), d
		}},
		"outlive their record": {in: purged, list: func(s *plantedDuplicates, k driver.Key, _ int64, _ []driver.Duplicate) (int64, []driver.Duplicate) {
			all := s.every(k)
			return int64(len(all)), all
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caught(t, semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := &plantedDuplicates{Store: db.Store(), add: bug.add, list: bug.list}
				return semeltest.StoreSetup{Store: s, Advance: clock.advance, Ledger: memledger.Of(db.Store())}
			}, bug.in))
		})
	}
}
