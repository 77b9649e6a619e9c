package driver

import (
	"context"
	"fmt"
)

// DeadLetterFilter selects dead letters of a queue.
type DeadLetterFilter struct {
	Kind     DeadLetterKind // "" = all
	Consumer string         // "" = all
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
	return (f.Kind == "" || l.Kind == f.Kind) && (f.Consumer == "" || l.Key.Consumer == f.Consumer)
}

// DeadLetterPager is an optional interface of a [DeadLetterQueue] that lists many dead letters.
type DeadLetterPager interface {
	// PageDeadLetters lists a page of dead letters in the order of writing, without the body and the headers of their messages.
	// It reads a bounded number of them: a page can have fewer than f.Limit, or none, before the end. next is "" at the end.
	PageDeadLetters(ctx context.Context, f DeadLetterFilter) (page []DeadLetter, next Cursor, err error)
}
