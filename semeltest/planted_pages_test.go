package semeltest_test

import (
	"context"
	"testing"

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
