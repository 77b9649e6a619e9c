package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// deadLetters keeps the dead letters of a queue, which may be elsewhere: a hash with two fields for each (all but body and
// headers, and these), and an index scored by when it was written.
type deadLetters struct {
	s    *Store
	name string
	keys []string // see Store.queueKeys
}

// content is what a page of dead letters leaves out.
type content struct {
	Body    []byte
	Headers map[string]string
}

func (s *Store) deadLetters(queue string) deadLetters {
	return deadLetters{s, queue, s.queueKeys(queue)}
}

// DeadLetterQueue returns the place for the dead letters of a queue. See [driver.DeadLetterStore].
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue {
	d := s.deadLetters(queue)
	return &d
}

// encodeDeadLetter makes the two fields of a dead letter.
func encodeDeadLetter(l *driver.DeadLetter, queue string) (head, message []byte) {
	out := *l
	out.Message.Queue = cmp.Or(l.Message.Queue, queue)
	c := content{l.Message.Body, l.Message.Headers}
	out.Message.Body, out.Message.Headers = nil, nil
	return encodeRow(out), encodeRow(c)
}

func (q *deadLetters) failed(doing string, err error) error {
	return fmt.Errorf("%s dead letters of queue %q: %w", doing, q.name, explain(err))
}

// PutDeadLetter writes a dead letter once for each ID.
func (q *deadLetters) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("redis: put dead letter: it has no ID")
	}
	head, message := encodeDeadLetter(&l, q.name)
	if _, err := q.call(ctx, []any{"put", l.ID, head, message}); err != nil {
		return q.failed("write", err)
	}
	return nil
}

// DeleteDeadLetter removes a dead letter, if it exists.
func (q *deadLetters) DeleteDeadLetter(ctx context.Context, id string) error {
	if _, err := q.call(ctx, []any{"close", id}); err != nil {
		return q.failed("delete", err)
	}
	return nil
}

// DeadLetter returns one dead letter; ok is false when there is none.
func (q *deadLetters) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	at, err := q.s.client.ZScore(ctx, q.keys[3], id).Result()
	if errors.Is(err, goredis.Nil) {
		return l, false, nil
	}
	var all []driver.DeadLetter
	if err == nil {
		all, err = q.read(ctx, []goredis.Z{{Score: at, Member: id}}, true)
	}
	if err != nil || len(all) == 0 {
		return l, false, err
	}
	return all[0], true, nil
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (q *deadLetters) DeadLetters(ctx context.Context, limit int) (out []driver.DeadLetter, err error) {
	f := driver.DeadLetterFilter{Limit: scanPage}
	for more := true; more && err == nil; more = f.After != "" && (limit == 0 || len(out) < limit) {
		if limit > 0 {
			f.Limit = min(scanPage, limit-len(out))
		}
		var page []driver.DeadLetter
		page, f.After, err = q.page(ctx, f, true)
		out = append(out, page...)
	}
	return out, err
}

// PageDeadLetters lists a page of dead letters. See [driver.DeadLetterPager].
func (q *deadLetters) PageDeadLetters(ctx context.Context, f driver.DeadLetterFilter) (page []driver.DeadLetter, next driver.Cursor, err error) {
	if err := f.Check(); err != nil {
		return nil, "", err
	}
	return q.page(ctx, f, false)
}

// page reads a page of dead letters, and filters what it read.
func (q *deadLetters) page(ctx context.Context, f driver.DeadLetterFilter, whole bool) (page []driver.DeadLetter, next driver.Cursor, err error) {
	by, list := &goredis.ZRangeBy{Min: "-inf", Max: "+inf"}, q.s.client.ZRangeByScoreWithScores
	from := &by.Min
	if f.Newest {
		from, list = &by.Max, q.s.client.ZRevRangeByScoreWithScores
	}
	if f.After != "" {
		at, _, err := f.After.Parts()
		if err != nil {
			return nil, "", err
		}
		*from = "(" + strconv.FormatInt(at, 10)
	}
	limit := f.Limit
	if f.Kind != "" || f.Consumer != "" || f.Class != "" {
		limit = max(limit, scanPage)
	}
	by.Count = int64(limit) + 1
	found, err := list(ctx, q.keys[3], by).Result()
	if err != nil {
		return nil, "", q.failed("list", err)
	}
	more := len(found) > limit
	found = found[:min(limit, len(found))]
	all, err := q.read(ctx, found, whole)
	last := 0.0
	if len(found) > 0 {
		last = found[len(found)-1].Score
	}
	for i := range all {
		if len(page) == f.Limit {
			more, last = true, float64(all[i-1].DeadAt.UnixMicro())
			break
		}
		if f.Selects(&all[i]) {
			page = append(page, all[i])
		}
	}
	if err == nil && more {
		next = driver.NewCursor(int64(last), nil)
	}
	return page, next, err
}

// read reads dead letters, with their bodies and headers if whole. It leaves out those that are deleted meanwhile.
func (q *deadLetters) read(ctx context.Context, index []goredis.Z, whole bool) (out []driver.DeadLetter, err error) {
	kinds := "h"
	if whole {
		kinds = "hm"
	}
	var fields []string
	for _, z := range index {
		for _, kind := range kinds {
			fields = append(fields, string(kind)+z.Member.(string))
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	values, err := q.s.client.HMGet(ctx, q.keys[2], fields...).Result()
	if err != nil {
		return nil, q.failed("read", err)
	}
	for i, z := range index {
		head, ok := values[i*len(kinds)].(string)
		if !ok {
			continue
		}
		l, err := decodeRow[driver.DeadLetter](head)
		if err == nil && whole {
			text, _ := values[i*2+1].(string)
			var c content
			c, err = decodeRow[content](text)
			l.Message.Body, l.Message.Headers = c.Body, c.Headers
		}
		if err != nil {
			return nil, q.failed(fmt.Sprintf("read %q of the", z.Member), err)
		}
		l.DeadAt = time.UnixMicro(int64(z.Score))
		out = append(out, l)
	}
	return out, nil
}
