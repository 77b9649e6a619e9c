package semeltest_test

import (
	"context"
	"slices"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// plantedCases is memory's store with a bug in its list of cases.
type plantedCases struct {
	*memory.Store
	list  func(s *memory.Store, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error)
	count func(n, most int) int
}

func (s *plantedCases) Cases(ctx context.Context, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error) {
	if s.list != nil {
		return s.list(s.Store, f)
	}
	return s.Store.Cases(ctx, f)
}

func (s *plantedCases) CountCases(ctx context.Context, consumer string, state driver.State, most int) (int, error) {
	if s.count != nil {
		n, err := s.Store.CountCases(ctx, consumer, state, 1000)
		return s.count(n, most), err
	}
	return s.Store.CountCases(ctx, consumer, state, most)
}

func TestPlantedCaseBugs(t *testing.T) {
	type listing = func(s *memory.Store, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error)
	with := func(change func(f *driver.CaseFilter)) listing {
		return func(s *memory.Store, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error) {
			change(&f)
			return s.Cases(context.Background(), f)
		}
	}
	result := func(change func(rs []driver.Record, next driver.Cursor) ([]driver.Record, driver.Cursor)) listing {
		return func(s *memory.Store, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error) {
			rs, next, err := s.Cases(context.Background(), f)
			rs, next = change(rs, next)
			return rs, next, err
		}
	}
	// everFailed also lists what is no case any more.
	everFailed := func(s *memory.Store, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error) {
		rs, next, err := s.Cases(context.Background(), f)
		old, _ := s.Records(context.Background(), driver.RecordFilter{State: driver.FailedState})
		for _, r := range old {
			if r.Disposed {
				rs = append(rs, r)
			}
		}
		return rs, next, err
	}
	damaged := func(r driver.Record) bool { return r.Key.Raw == "k2" } // the first that its case damages
	failsPage := func(s *memory.Store, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error) {
		rs, next, err := s.Cases(context.Background(), f)
		if slices.ContainsFunc(rs, damaged) {
			return nil, "", driver.ErrUnreadable
		}
		return rs, next, err
	}
	endsList := func(rs []driver.Record, next driver.Cursor) ([]driver.Record, driver.Cursor) {
		if i := slices.IndexFunc(rs, damaged); i >= 0 {
			return rs[:i], ""
		}
		return rs, next
	}
	const unreadable = "FM82 a case that cannot be read"
	const closed, paged, purged = "cases open and close", "cases by page", "cases go with their record"
	for name, bug := range map[string]struct {
		in    string
		list  listing
		count func(n, most int) int
	}{
		"discarded ones stay":      {in: closed, list: everFailed},
		"uncertain ones only":      {in: purged, list: with(func(f *driver.CaseFilter) { f.State = driver.Uncertain })},
		"failed ones only":         {in: purged, list: with(func(f *driver.CaseFilter) { f.State = driver.FailedState })},
		"consumers mix":            {in: paged, list: with(func(f *driver.CaseFilter) { f.Consumer = "" })},
		"always the oldest first":  {in: paged, list: with(func(f *driver.CaseFilter) { f.Newest = false })},
		"the first page again":     {in: paged, list: with(func(f *driver.CaseFilter) { f.After = "" })},
		"one too many":             {in: paged, list: with(func(f *driver.CaseFilter) { f.Limit++ })},
		"a limit of 0 is accepted": {in: paged, list: with(func(f *driver.CaseFilter) { f.Limit = max(f.Limit, 1) })},
		"one page only": {in: paged, list: result(func(rs []driver.Record, _ driver.Cursor) ([]driver.Record, driver.Cursor) {
			return rs, ""
		})},
		"no end": {in: paged, list: result(func(rs []driver.Record, next driver.Cursor) ([]driver.Record, driver.Cursor) {
			if next == "" && len(rs) > 0 {
				next = driver.NewCursor(1<<62, nil)
			}
			return rs, next
		})},
		"the first of a page is lost": {in: paged, list: result(func(rs []driver.Record, next driver.Cursor) ([]driver.Record, driver.Cursor) {
			return rs[min(len(rs), 1):], next
		})},
		"one unreadable record fails the page (FM82)": {in: unreadable, list: failsPage},
		"one unreadable record ends the list (FM82)":  {in: unreadable, list: result(endsList)},
		"counts past the bound":                       {in: paged, count: func(n, _ int) int { return n }},
		"counts one too few":                          {in: closed, count: func(n, most int) int { return min(n, most) - 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caught(t, semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := &plantedCases{Store: db.Store(), list: bug.list, count: bug.count}
				return semeltest.StoreSetup{
					Store: s, Advance: clock.advance, Ledger: memledger.Of(db.Store()),
					Damage: func(testing.TB, driver.Key) {}, // its case plants what that does
				}
			}, bug.in))
		})
	}
}
