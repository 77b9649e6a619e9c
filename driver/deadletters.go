package driver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DeadLetterFilter selects dead letters of a queue.
type DeadLetterFilter struct {
	Kind     DeadLetterKind // "" = all
	Consumer string         // "" = all
	Class    string         // of the reason ([ReasonClass]); "" = all
	Newest   bool           // the latest written first
	After    Cursor         // "" = the first page
	Limit    int            // of one page, at least 1
}

// Check refuses a filter whose limit is none.
func (f *DeadLetterFilter) Check() error {
	if f.Limit < 1 {
		return fmt.Errorf("DeadLetterFilter.Limit is %d, must be at least 1", f.Limit)
	}
	return nil
}

// Selects reports whether f selects a dead letter.
func (f *DeadLetterFilter) Selects(l *DeadLetter) bool {
	return (f.Kind == "" || l.Kind == f.Kind) && (f.Consumer == "" || l.Key.Consumer == f.Consumer) &&
		(f.Class == "" || ReasonClass(l.Reason) == f.Class)
}

// DeadLetterPager is an optional interface of a [DeadLetterQueue] that lists many dead letters.
type DeadLetterPager interface {
	// PageDeadLetters lists a page of dead letters in the order of writing, without the body and the headers of their messages.
	// It reads a bounded number of them: a page can have fewer than f.Limit, or none, before the end. next is "" at the end.
	PageDeadLetters(ctx context.Context, f DeadLetterFilter) (page []DeadLetter, next Cursor, err error)
}

// DeadLetterGroup is the dead letters of one consumer and kind whose reasons are of one class ([ReasonClass]).
type DeadLetterGroup struct {
	Consumer string         `json:"-"`
	Kind     DeadLetterKind `json:"kind"`
	Class    string         `json:"reason"`
	Count    int            `json:"count"`
	From     time.Time      `json:"from"` // the first DeadAt
	To       time.Time      `json:"to"`   // the last DeadAt
}

// DeadLetterGrouper is an optional interface of a [DeadLetterQueue] that counts many dead letters by group.
type DeadLetterGrouper interface {
	// GroupDeadLetters groups the dead letters that were written first, most of them at most. The largest group comes first.
	GroupDeadLetters(ctx context.Context, most int) ([]DeadLetterGroup, error)
}

// ReasonClass is a reason without the parts that differ from message to message: numbers, what follows the first line, and the
// trace of the run.
func ReasonClass(reason string) string {
	reason, _ = CutTrace(reason)
	reason, _, _ = strings.Cut(reason, "\n")
	var b strings.Builder
	digits := false
	for _, r := range reason {
		is := r >= '0' && r <= '9'
		if is && !digits {
			b.WriteRune('#')
		} else if !is {
			b.WriteRune(r)
		}
		if digits = is; b.Len() >= 100 {
			b.WriteRune('…')
			break
		}
	}
	return strings.ToValidUTF8(b.String(), "?")
}

// MergeGroups merges groups whose Class is a whole reason into those of [DeadLetterGrouper].
func MergeGroups(in []DeadLetterGroup) []DeadLetterGroup {
	out := []DeadLetterGroup{}
	type group struct{ consumer, kind, class string }
	at := map[group]int{}
	for _, g := range in {
		g.Class = ReasonClass(g.Class)
		id := group{g.Consumer, string(g.Kind), g.Class}
		i, ok := at[id]
		if !ok {
			at[id] = len(out)
			out = append(out, g)
			continue
		}
		o := &out[i]
		o.Count += g.Count
		if g.From.Before(o.From) {
			o.From = g.From
		}
		if g.To.After(o.To) {
			o.To = g.To
		}
	}
	slices.SortStableFunc(out, func(a, b DeadLetterGroup) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Class, b.Class),
			strings.Compare(a.Consumer, b.Consumer))
	})
	return out
}
