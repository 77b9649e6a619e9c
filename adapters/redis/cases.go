package redis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// cases is the name of the sorted set with a shard's cases in one state, scored by Record.UpdatedAt.
func (s *Store) cases(shard int, state driver.State) string {
	if state == driver.Uncertain {
		return s.slot(shard) + "uncertain"
	}
	return s.slot(shard) + "failed"
}

// found is a record with its place in a list of cases.
type found struct {
	driver.Record
	at *item
}

// behind orders the places of a list as the server does.
func behind(a, b *item, newest bool) int {
	c := cmp.Or(cmp.Compare(a.score, b.score), bytes.Compare(a.hash[:hashSize], b.hash[:hashSize]))
	if newest {
		return -c
	}
	return c
}

// Cases lists a page of cases. It leaves out records that cannot be read, and logs them. See [driver.CaseLister].
func (s *Store) Cases(ctx context.Context, f driver.CaseFilter) (page []driver.Record, next driver.Cursor, err error) {
	var all []found
	err = s.eachCase(ctx, f, f.Limit+1, func(c found) { all = append(all, c) })
	if err != nil {
		return nil, "", fmt.Errorf("list cases: %w", err)
	}
	slices.SortFunc(all, func(a, b found) int { return behind(a.at, b.at, f.Newest) })
	for i := range all[:min(f.Limit, len(all))] {
		page = append(page, all[i].Record)
	}
	if len(all) > f.Limit {
		last := all[f.Limit-1].at
		next = driver.NewCursor(int64(last.score), last.hash[:hashSize])
	}
	return page, next, nil
}

// CountCases counts cases, up to most in each state. See [driver.CaseLister].
func (s *Store) CountCases(ctx context.Context, consumer string, state driver.State, most int) (n int, err error) {
	counts := map[driver.State]int{}
	f := driver.CaseFilter{Consumer: consumer, State: state, Limit: max(most, 1)}
	if err := s.eachCase(ctx, f, most, func(c found) { counts[c.State]++ }); err != nil {
		return 0, fmt.Errorf("count cases: %w", err)
	}
	for _, c := range counts {
		n += min(c, most)
	}
	return n, nil
}

// eachCase calls each with the cases of every list (one for each shard and state) behind f.After, at most most of a list.
func (s *Store) eachCase(ctx context.Context, f driver.CaseFilter, most int, each func(found)) error {
	if err := f.Check(); err != nil {
		return err
	}
	var after *item
	if f.After != "" {
		at, id, err := f.After.Parts()
		if err != nil {
			return err
		}
		after = ofHash(string(id))
		after.score = float64(at)
	}
	for shard := range s.shards {
		for _, state := range f.States() {
			n := 0
			err := s.walk(ctx, s.cases(shard, state), f, after, func(c found) bool {
				if n < most {
					each(c)
				}
				n++
				return n < most
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// walk calls each with the cases of one list behind a place (nil = the beginning) until it returns false.
func (s *Store) walk(ctx context.Context, list string, f driver.CaseFilter, after *item, each func(found) bool) error {
	by := goredis.ZRangeBy{Min: "-inf", Max: "+inf", Count: int64(min(f.Limit, scanPage) + 1)}
	from := &by.Min
	if f.Newest {
		from = &by.Max
	}
	for {
		if after != nil {
			*from = scoreText(after.score)
		}
		items, err := s.scored(ctx, list, by, f.Newest)
		if err != nil {
			return err
		}
		full := len(items) == int(by.Count)
		if after != nil {
			items = slices.DeleteFunc(items, func(i *item) bool { return behind(i, after, f.Newest) <= 0 })
		}
		s.read(ctx, items...)
		for _, i := range items {
			r, err := i.record()
			if isUnreadable(err) {
				slog.Warn("a case is left out of the list", "list", list, "hash", hex.EncodeToString(i.hash[:hashSize]), "err", err)
				continue
			}
			if err != nil {
				return err
			}
			if r.Case() && (f.Consumer == "" || f.Consumer == r.Key.Consumer) && !each(found{r, i}) {
				return nil
			}
		}
		if !full {
			return nil
		}
		if len(items) > 0 {
			after = items[len(items)-1]
		} else { // more have one score than a page has
			by.Count *= 2
		}
	}
}
