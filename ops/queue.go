// Package ops has what operators of semel do and ask, each once: redrive, discard, edit and resolve dead letters; reopen, release
// and erase keys; explain what happened to a key; compare records with effects; compute settings. The command semel and package
// console are faces of it.
//
// Functions that take a context block on the queue or the store until it responds or the context ends. They are safe for
// concurrent use unless they say otherwise. Texts that they return can contain what senders wrote: escape them before they reach
// a terminal or a page.
package ops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Queue is a queue whose dead letters can be worked on, with the store of their records. Make it with [NewQueue].
type Queue struct {
	Name string
	// Horizon is how late the queue itself can deliver a copy of a message: records are kept for longer (law 10). 0 = no
	// bound is known.
	Horizon time.Duration
	// CLI makes the commands that errors and refusals propose; nil leaves out which queue and store.
	CLI         *CLI
	DeadLetters driver.DeadLetterQueue
	Records     driver.RecordInspector

	features driver.QueueFeatures
	store    driver.Store
	sender   driver.Sender
	operator driver.Operator
}

// NewQueue finds what working on dead letters needs. The error wraps [driver.ErrUnsupported] if the queue keeps no dead letters or
// takes no messages, or the store shows no records or takes no operations.
func NewQueue(queue driver.Queue, store driver.Store) (Queue, error) {
	is := queue.Features()
	q := Queue{Name: is.Name, Horizon: is.LateBy(0), features: is, store: store}
	var ok [4]bool
	q.DeadLetters, ok[0] = driver.DeadLettersOf(queue)
	q.sender, ok[1] = driver.As[driver.Sender](queue)
	q.Records, ok[2] = driver.As[driver.RecordInspector](store)
	q.operator, ok[3] = driver.As[driver.Operator](store)
	for i, what := range []string{"keeps no dead letters", "takes no messages", "shows no records", "takes no operations"} {
		if !ok[i] {
			where := "queue " + q.Name
			if i > 1 {
				where = "store " + store.Features().Name
			}
			return q, fmt.Errorf("%s %s: %w", where, what, driver.ErrUnsupported)
		}
	}
	return q, nil
}

// record reads the record of a dead letter; a dead letter about an unusable key has none.
func (q Queue) record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	if k.Raw == "" {
		return driver.Record{}, false, nil
	}
	r, ok, err := q.Records.Record(ctx, k)
	if err != nil {
		return r, false, fmt.Errorf("read record of key %q: %w", k.Raw, err)
	}
	return r, ok && r.State != driver.Absent, nil
}

// keep is how long an operation keeps a record.
func (q Queue) keep(o Options) time.Duration {
	if o.Keep > 0 {
		return o.Keep
	}
	return RetentionFor(q.Horizon)
}

// MostCounted is how many entries pages for people count: more are shown as "10,000+". PageLimit is how many a list shows.
const (
	MostCounted = 10_000
	PageLimit   = 1000
)

// Counts counts the messages of a queue, up to [MostCounted] where the queue can; ok is false if it cannot count.
func Counts(ctx context.Context, q driver.Queue) (s driver.QueueStats, ok bool, err error) {
	if c, ok := driver.As[driver.QueueCounter](q); ok {
		s, err = c.CountMessages(ctx, MostCounted)
		return s, true, err
	}
	if i, ok := driver.As[driver.QueueInspector](q); ok {
		s, err = i.Stats(ctx)
		return s, true, err
	}
	return s, false, nil
}

// Groups are dead letters by kind and reason: those of uncertain keys first, then the largest groups. More: the queue has more
// dead letters than were counted.
type Groups struct {
	Total  int                      `json:"total"`
	More   bool                     `json:"more,omitempty"`
	Groups []driver.DeadLetterGroup `json:"groups"`
}

// Groups counts the dead letters of a consumer, and those without a consumer, among the first [MostCounted] of the queue.
func (q Queue) Groups(ctx context.Context, consumer string) (out Groups, err error) {
	all, more, err := q.groups(ctx)
	out.More = more
	mine := []driver.DeadLetterGroup{}
	for _, g := range all {
		if g.Consumer == "" || g.Consumer == consumer {
			g.Consumer = ""
			mine = append(mine, g)
			out.Total += g.Count
		}
	}
	out.Groups = driver.MergeGroups(mine)
	slices.SortStableFunc(out.Groups, func(a, b driver.DeadLetterGroup) int { return rank(a.Kind) - rank(b.Kind) })
	return out, err
}

func rank(k driver.DeadLetterKind) int {
	if k == driver.DeadLetterUncertain {
		return 0
	}
	return 1
}

// groups counts dead letters in one statement where the queue can, and reads them otherwise.
func (q Queue) groups(ctx context.Context) (all []driver.DeadLetterGroup, more bool, err error) {
	if g, ok := driver.As[driver.DeadLetterGrouper](q.DeadLetters); ok {
		all, err = g.GroupDeadLetters(ctx, MostCounted)
		n := 0
		for i := range all {
			n += all[i].Count
		}
		return all, n >= MostCounted, err
	}
	page, more, err := q.Page(ctx, driver.DeadLetterFilter{Limit: MostCounted})
	for _, l := range page {
		all = append(all, driver.DeadLetterGroup{Consumer: l.Key.Consumer, Kind: l.Kind, Class: l.Reason, Count: 1, From: l.DeadAt, To: l.DeadAt})
	}
	return all, more, err
}

// Page lists up to f.Limit dead letters, oldest first, without bodies where the queue lists them by page. It looks at [MostCounted]
// dead letters at most, and of a queue without pages at the first [PageLimit]. more: there can be others.
func (q Queue) Page(ctx context.Context, f driver.DeadLetterFilter) (page []driver.DeadLetter, more bool, err error) {
	pager, ok := driver.As[driver.DeadLetterPager](q.DeadLetters)
	if !ok {
		all, err := q.DeadLetters.DeadLetters(ctx, PageLimit+1)
		for i := range all[:min(len(all), PageLimit)] {
			if f.Selects(&all[i]) && len(page) < f.Limit {
				page = append(page, all[i])
			}
		}
		return page, len(all) > PageLimit, err
	}
	most := f.Limit
	for range MostCounted / PageLimit {
		f.Limit = min(most-len(page), PageLimit)
		list, next, err := pager.PageDeadLetters(ctx, f)
		page = append(page, list...)
		if f.After = next; err != nil || next == "" || len(page) == most {
			return page, next != "", err
		}
	}
	return page, true, nil
}
