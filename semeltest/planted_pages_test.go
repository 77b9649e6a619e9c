package semeltest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// plantedPages is memory's queue with a bug in its pages of dead letters.
type plantedPages struct {
	*memory.Queue
	filter func(f *driver.DeadLetterFilter)
	result func(l []driver.DeadLetter, next driver.Cursor) ([]driver.DeadLetter, driver.Cursor)
	full   bool // with bodies
}

func (q *plantedPages) PageDeadLetters(ctx context.Context, f driver.DeadLetterFilter) ([]driver.DeadLetter, driver.Cursor, error) {
	if q.filter != nil {
		q.filter(&f)
	}
	ls, next, err := q.Queue.PageDeadLetters(ctx, f)
	for i := range ls {
		if q.full {
			ls[i].Message.Body = []byte("body")
		}
	}
	if q.result != nil {
		ls, next = q.result(ls, next)
	}
	return ls, next, err
}

func TestPlantedPageBugs(t *testing.T) {
	for name, bug := range map[string]plantedPages{
		"with bodies":             {full: true},
		"every kind":              {filter: func(f *driver.DeadLetterFilter) { f.Kind = "" }},
		"every class":             {filter: func(f *driver.DeadLetterFilter) { f.Class = "" }},
		"every consumer":          {filter: func(f *driver.DeadLetterFilter) { f.Consumer = "" }},
		"always the oldest first": {filter: func(f *driver.DeadLetterFilter) { f.Newest = false }},
		"the first page again":    {filter: func(f *driver.DeadLetterFilter) { f.After = "" }},
		"one too many":            {filter: func(f *driver.DeadLetterFilter) { f.Limit++ }},
		"a limit of 0":            {filter: func(f *driver.DeadLetterFilter) { f.Limit = max(f.Limit, 1) }},
		"one page only": {result: func(l []driver.DeadLetter, _ driver.Cursor) ([]driver.DeadLetter, driver.Cursor) {
			return l, ""
		}},
		"the last of a page is lost": {result: func(l []driver.DeadLetter, next driver.Cursor) ([]driver.DeadLetter, driver.Cursor) {
			return l[:max(len(l)-1, 0)], next
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caught(t, semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
				db, clock := openFake()
				bug.Queue = db.Queue("orders")
				return semeltest.QueueSetup{Queue: &bug, Advance: clock.advance}
			}, "dead letters by page"))
		})
	}
}

// plantedCounts is memory's queue with a bug in its groups of dead letters, or in its counts up to a limit.
type plantedCounts struct {
	*memory.Queue
	most   func(most int) int
	groups func(all []driver.DeadLetterGroup) []driver.DeadLetterGroup
	count  func(s *driver.QueueStats)
}

func (q *plantedCounts) GroupDeadLetters(ctx context.Context, most int) ([]driver.DeadLetterGroup, error) {
	if q.most != nil {
		most = q.most(most)
	}
	all, err := q.Queue.GroupDeadLetters(ctx, most)
	if q.groups != nil {
		all = q.groups(all)
	}
	return all, err
}

func (q *plantedCounts) CountMessages(ctx context.Context, most int) (driver.QueueStats, error) {
	if q.most != nil {
		most = q.most(most)
	}
	s, err := q.Queue.CountMessages(ctx, most)
	if q.count != nil {
		q.count(&s)
	}
	return s, err
}

// TestPlantedCountBugs: the suite finds mistakes in groups of dead letters and in counts up to a limit.
func TestPlantedCountBugs(t *testing.T) {
	each := func(change func(g *driver.DeadLetterGroup)) func(all []driver.DeadLetterGroup) []driver.DeadLetterGroup {
		return func(all []driver.DeadLetterGroup) []driver.DeadLetterGroup {
			for i := range all {
				change(&all[i])
			}
			return driver.MergeGroups(all)
		}
	}
	const groups, inspection = "dead letters by group", "inspection"
	for name, bug := range map[string]plantedCounts{
		groups + "/without a limit":   {most: func(int) int { return 100 }},
		groups + "/one too few":       {most: func(most int) int { return most - 1 }},
		groups + "/of all consumers":  {groups: each(func(g *driver.DeadLetterGroup) { g.Consumer = "" })},
		groups + "/of all kinds":      {groups: each(func(g *driver.DeadLetterGroup) { g.Kind = "" })},
		groups + "/without times":     {groups: each(func(g *driver.DeadLetterGroup) { g.From = time.Time{} })},
		groups + "/in any order":      {groups: func(all []driver.DeadLetterGroup) []driver.DeadLetterGroup { slices.Reverse(all); return all }},
		inspection + "/no limit":      {most: func(int) int { return 100 }},
		inspection + "/never more":    {count: func(s *driver.QueueStats) { s.AtLeast = false }},
		inspection + "/always more":   {count: func(s *driver.QueueStats) { s.AtLeast = true }},
		inspection + "/nothing flies": {count: func(s *driver.QueueStats) { s.Visible, s.InFlight = s.Visible+s.InFlight, 0 }},
		inspection + "/no age":        {count: func(s *driver.QueueStats) { s.Oldest = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, _, _ := strings.Cut(name, "/")
			caught(t, semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
				db, clock := openFake()
				bug.Queue = db.Queue("orders")
				return semeltest.QueueSetup{Queue: &bug, Advance: clock.advance}
			}, in))
		})
	}
}
