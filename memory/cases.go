package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/semel-dev/semel/driver"
)

// Cases lists a page of the records that need a person. See [driver.CaseLister].
func (s *Store) Cases(ctx context.Context, f driver.CaseFilter) (page []driver.Record, next driver.Cursor, err error) {
	if err := cmp.Or(ctx.Err(), f.Check()); err != nil {
		return nil, "", fmt.Errorf("list cases: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, state := range f.States() {
		page = append(page, s.cases(f.Consumer, state)...)
	}
	position := func(r *driver.Record) (int64, string) {
		id := r.Key.Hash()
		return r.UpdatedAt.UnixNano(), string(id[:])
	}
	compare := func(a, b driver.Record) int {
		at, id := position(&a)
		to, other := position(&b)
		n := cmp.Or(cmp.Compare(at, to), strings.Compare(id, other))
		if f.Newest {
			return -n
		}
		return n
	}
	if f.After != "" {
		after, last, err := f.After.Parts()
		if err != nil {
			return nil, "", err
		}
		page = slices.DeleteFunc(page, func(r driver.Record) bool {
			at, id := position(&r)
			n := cmp.Or(cmp.Compare(at, after), strings.Compare(id, string(last)))
			return n == 0 || (n < 0) != f.Newest
		})
	}
	slices.SortFunc(page, compare)
	if len(page) > f.Limit {
		page = page[:f.Limit]
		at, id := position(&page[f.Limit-1])
		next = driver.NewCursor(at, []byte(id))
	}
	return page, next, nil
}

// cases lists the cases of a consumer in a state.
func (s *Store) cases(consumer string, state driver.State) (out []driver.Record) {
	for rec := s.oldest; rec != nil; rec = rec.newer {
		if rec.Case() && rec.State == state && (consumer == "" || rec.Key.Consumer == consumer) {
			out = append(out, rec.Record)
		}
	}
	return out
}

// CountCases counts cases, up to most in each state. See [driver.CaseLister].
func (s *Store) CountCases(ctx context.Context, consumer string, state driver.State, most int) (n int, err error) {
	f := driver.CaseFilter{State: state, Limit: max(most, 1)}
	if err := cmp.Or(ctx.Err(), f.Check()); err != nil {
		return 0, fmt.Errorf("count cases: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, state := range f.States() {
		n += min(len(s.cases(consumer, state)), most)
	}
	return n, nil
}
