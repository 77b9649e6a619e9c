package redis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// scanPage is how many records a scan asks for at once; scanMemory how many hashes it remembers at least. The server may return
// members of the index again after it has shrunk, and those are of the pages just before.
const (
	scanPage   = 500
	scanMemory = 100000
)

// ScanRecords calls each with every record that f selects, a page at a time.
func (s *Store) ScanRecords(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	done := 0
	var left driver.LeftOut
	err := s.scan(ctx, func(page []*item) error {
		return s.records(ctx, page, f, &left, func(r driver.Record) error {
			if done++; f.Limit > 0 && done > f.Limit {
				return nil
			}
			return each(r)
		})
	})
	return cmp.Or(err, left.Err())
}

// scan calls each with pages of what is in the index. A hash comes once.
func (s *Store) scan(ctx context.Context, each func(page []*item) error) error {
	for shard := range s.shards {
		recent, before := map[string]bool{}, map[string]bool{}
		for cursor := uint64(0); ; {
			members, next, err := s.client.ZScan(ctx, s.slot(shard)+"index", cursor, "", scanPage).Result()
			if err != nil {
				return fmt.Errorf("scan the index: %w", explain(err))
			}
			var page []*item
			for i := 0; i < len(members); i += 2 { // each with its score
				if m := members[i]; len(m) == hashSize && !recent[m] && !before[m] {
					recent[m] = true
					page = append(page, ofHash(m))
				}
			}
			if err := each(page); err != nil {
				return err
			}
			if len(recent) > scanMemory {
				recent, before = map[string]bool{}, recent
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

func ofHash(member string) *item {
	i := &item{}
	copy(i.hash[:], member)
	return i
}

// Records lists records, oldest first unless f says otherwise. Those that are UNCERTAIN are found by the list of cases.
func (s *Store) Records(ctx context.Context, f driver.RecordFilter) (out []driver.Record, err error) {
	trim := func(most int) {
		if len(out) > most {
			slices.SortFunc(out, f.Compare)
			if f.Limit > 0 {
				out = slices.Clip(out[:min(f.Limit, len(out))])
			}
		}
	}
	add := func(r driver.Record) {
		if out = append(out, r); f.Limit > 0 {
			trim(4*f.Limit + 1000)
		}
	}
	var left driver.LeftOut
	if f.State == driver.Uncertain {
		all := driver.CaseFilter{Consumer: f.Consumer, State: f.State, Limit: scanPage}
		err = s.eachCase(ctx, all, math.MaxInt, func(c found) { add(c.Record) })
	} else {
		err = s.scan(ctx, func(page []*item) error {
			return s.records(ctx, page, f, &left, func(r driver.Record) error { add(r); return nil })
		})
	}
	trim(0)
	return out, cmp.Or(err, left.Err())
}

// records calls each with those records of items that f selects and that can be read.
func (s *Store) records(ctx context.Context, items []*item, f driver.RecordFilter, left *driver.LeftOut, each func(driver.Record) error) error {
	s.read(ctx, items...)
	for _, i := range items {
		r, err := i.record()
		if left.Add(err) != nil {
			return fmt.Errorf("read records: %w", err)
		}
		if err != nil {
			continue
		}
		if r.State == driver.Absent || f.Consumer != "" && r.Key.Consumer != f.Consumer || f.State != driver.Absent && r.State != f.State {
			continue
		}
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// scored lists members of a sorted set of hashes.
func (s *Store) scored(ctx context.Context, name string, by goredis.ZRangeBy, newest bool) (page []*item, err error) {
	list := s.client.ZRangeByScoreWithScores
	if newest {
		list = s.client.ZRevRangeByScoreWithScores
	}
	found, err := list(ctx, name, &by).Result()
	if err != nil {
		return nil, fmt.Errorf("read the index: %w", explain(err))
	}
	for _, z := range found {
		if m, ok := z.Member.(string); ok && len(m) == hashSize {
			i := ofHash(m)
			i.score = z.Score
			page = append(page, i)
		}
	}
	return page, nil
}

func scoreText(score float64) string { return strconv.FormatFloat(score, 'f', 0, 64) }
