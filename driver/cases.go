package driver

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Cursor is a position in a list that is read by page. "" is the beginning of a list, and as the next cursor its end. What is in
// the list during the whole reading is listed exactly once, whatever is added or removed meanwhile.
type Cursor string

// NewCursor returns the cursor behind an entry that a list orders by number and ID.
func NewCursor(number int64, id []byte) Cursor {
	return Cursor(strconv.FormatInt(number, 10) + "." + hex.EncodeToString(id))
}

// Parts returns what NewCursor got.
func (c Cursor) Parts() (number int64, id []byte, err error) {
	n, text, ok := strings.Cut(string(c), ".")
	number, err = strconv.ParseInt(n, 10, 64)
	if err == nil {
		id, err = hex.DecodeString(text)
	}
	if err != nil || !ok {
		return 0, nil, fmt.Errorf("cursor %q: it is not one that a list returned", string(c))
	}
	return number, id, nil
}

// Case reports whether the record needs a person: it is UNCERTAIN, or FAILED and its dead letter was not discarded.
func (r *Record) Case() bool { return r.State == Uncertain || r.State == FailedState && !r.Disposed }

// CaseFilter selects cases.
type CaseFilter struct {
	Consumer string // "" = all
	State    State  // Uncertain or FailedState; Absent = both
	Newest   bool   // the newest first, by Record.UpdatedAt
	After    Cursor // "" = the first page
	Limit    int    // of one page, at least 1
}

// States returns the states that f selects.
func (f *CaseFilter) States() []State {
	if f.State == Absent {
		return []State{FailedState, Uncertain}
	}
	return []State{f.State}
}

// Check refuses a filter whose limit or state is none.
func (f *CaseFilter) Check() error {
	switch {
	case f.Limit < 1:
		return fmt.Errorf("CaseFilter.Limit is %d, must be at least 1", f.Limit)
	case f.State != Absent && f.State != Uncertain && f.State != FailedState:
		return fmt.Errorf("CaseFilter.State is %v, must be UNCERTAIN or FAILED", f.State)
	}
	return nil
}

// CaseLister is an optional interface of stores: it lists the records that need a person ([Record.Case]) and reads no others.
type CaseLister interface {
	// Cases lists a page of cases, ordered by Record.UpdatedAt: since when they need a person. next is "" behind the last page.
	// A record that cannot be read ([ErrUnreadable]) is left out and logged, so that the others are listed: a page may have
	// fewer than f.Limit records, and even none, before the last page.
	Cases(ctx context.Context, f CaseFilter) (page []Record, next Cursor, err error)
	// CountCases counts the cases of a consumer ("" = all) in a state (Absent = both). It stops at most for each state.
	CountCases(ctx context.Context, consumer string, state State, most int) (int, error)
}
