package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// PageDeadLetters lists a page of dead letters. See [driver.DeadLetterPager].
func (q *Queue) PageDeadLetters(ctx context.Context, f driver.DeadLetterFilter) (page []driver.DeadLetter, next driver.Cursor, err error) {
	if err := cmp.Or(ctx.Err(), f.Check()); err != nil {
		return nil, "", err
	}
	after := int64(0)
	if f.After != "" {
		if after, _, err = f.After.Parts(); err != nil {
			return nil, "", err
		}
	}
	q.db.mu.Lock()
	kept := make([]keptDeadLetter, 0, len(q.deadLetters))
	for _, l := range q.deadLetters {
		seq := int64(l.seq)
		if f.Selects(&l.DeadLetter) && (f.After == "" || seq != after && (seq < after) == f.Newest) {
			kept = append(kept, l)
		}
	}
	q.db.mu.Unlock()
	slices.SortFunc(kept, func(a, b keptDeadLetter) int { return cmp.Compare(a.seq, b.seq) })
	if f.Newest {
		slices.Reverse(kept)
	}
	if len(kept) > f.Limit {
		kept = kept[:f.Limit]
		next = driver.NewCursor(int64(kept[f.Limit-1].seq), nil)
	}
	for _, l := range kept {
		l.Message.Body, l.Message.Headers = nil, nil
		page = append(page, l.DeadLetter)
	}
	return page, next, nil
}

// GroupDeadLetters groups the first dead letters. See [driver.DeadLetterGrouper].
func (q *Queue) GroupDeadLetters(ctx context.Context, most int) (all []driver.DeadLetterGroup, err error) {
	page, _, err := q.PageDeadLetters(ctx, driver.DeadLetterFilter{Limit: most})
	for _, l := range page {
		all = append(all, driver.DeadLetterGroup{Consumer: l.Key.Consumer, Kind: l.Kind, Class: l.Reason, Count: 1, From: l.DeadAt, To: l.DeadAt})
	}
	return driver.MergeGroups(all), err
}

// CountMessages counts the messages up to a limit. See [driver.QueueCounter].
func (q *Queue) CountMessages(ctx context.Context, most int) (driver.QueueStats, error) {
	s, err := q.Stats(ctx)
	s.DeadLetters, s.AtLeast = 0, s.Visible+s.InFlight+s.Delayed >= int64(most)
	for _, n := range []*int64{&s.Visible, &s.InFlight, &s.Delayed} {
		*n = min(*n, int64(most))
	}
	return s, err
}
