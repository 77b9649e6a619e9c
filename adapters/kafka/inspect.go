package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/driver"
)

// span is what is left of a partition: from is its position, or where this member's messages end.
type span struct{ from, end int64 }

// spans reads what is left of each partition, behind what has arrived here. stats counts what has arrived here.
func (q *Queue) spans(ctx context.Context) (left map[int32]span, stats driver.QueueStats, err error) {
	ends, err := q.offsets(ctx, q.admin.ListCommittedOffsets)
	if err != nil {
		return nil, stats, err
	}
	left = make(map[int32]span, len(ends))
	q.mu.Lock()
	var oldest time.Time
	for id, p := range q.parts {
		visible, inFlight, delayed, first := p.counts()
		stats.Visible, stats.InFlight, stats.Delayed = stats.Visible+visible, stats.InFlight+inFlight, stats.Delayed+delayed
		if !first.IsZero() && (oldest.IsZero() || first.Before(oldest)) {
			oldest = first
		}
		left[id] = span{p.next, max(ends[id], p.next)}
	}
	q.mu.Unlock()
	if !oldest.IsZero() {
		stats.Oldest = max(time.Since(oldest), time.Nanosecond)
	}
	if len(left) == len(ends) {
		return left, stats, nil
	}
	starts, err := q.offsets(ctx, q.admin.ListStartOffsets)
	if err != nil {
		return nil, stats, err
	}
	committed, err := q.admin.FetchOffsets(ctx, q.o.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, stats, q.explain("read the position of", err)
	}
	for id, end := range ends {
		if _, ours := left[id]; ours {
			continue
		}
		from := starts[id]
		if c, ok := committed.Lookup(q.topic, id); ok && c.Err == nil {
			from = max(from, c.At)
		}
		left[id] = span{from, max(end, from)}
	}
	return left, stats, nil
}

// offsets lists one offset of every partition.
func (q *Queue) offsets(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	listed, err := list(ctx, q.topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, q.explain("list the offsets of", err)
	}
	out := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out, nil
}

// Stats counts the messages of all partitions behind the group's position. Those that other members of the group have in
// flight count as visible.
func (q *Queue) Stats(ctx context.Context) (driver.QueueStats, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	left, s, err := q.spans(ctx)
	if err != nil {
		return s, err
	}
	for _, l := range left {
		s.Visible += l.end - l.from
	}
	if s.Visible > 0 && s.Oldest == 0 {
		first, err := q.peek(ctx, 1, left)
		if err != nil || len(first) == 0 {
			return s, err
		}
		s.Oldest = max(time.Since(first[0].SentAt), time.Nanosecond)
	}
	return s, nil
}

// Peek shows up to limit messages without receiving them, the oldest first, from the first that is not settled on.
func (q *Queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	left, _, err := q.spans(ctx)
	if err != nil {
		return nil, err
	}
	var out []driver.Delivery
	q.mu.Lock()
	for _, p := range q.parts {
		for _, r := range p.open {
			if !r.settled {
				out = append(out, driver.Delivery{Message: r.msg})
			}
		}
	}
	q.mu.Unlock()
	more, err := q.peek(ctx, limit, left)
	return oldest(append(out, more...), limit), err
}

func oldest(ds []driver.Delivery, limit int) []driver.Delivery {
	slices.SortFunc(ds, func(a, b driver.Delivery) int {
		return cmp.Or(a.SentAt.Compare(b.SentAt), cmp.Compare(a.Position.Partition, b.Position.Partition), cmp.Compare(a.Position.Offset, b.Position.Offset))
	})
	return ds[:min(limit, len(ds))]
}

// peek reads from brokers, outside of the group.
func (q *Queue) peek(ctx context.Context, limit int, left map[int32]span) (out []driver.Delivery, err error) {
	from := map[int32]kgo.Offset{}
	for id, l := range left {
		if l.from < l.end {
			from[id] = kgo.NewOffset().At(l.from)
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	opts := append(append(q.o.common(), q.o.Client...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{q.topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, q.explain("peek into", err)
	}
	defer c.Close()
	seen := map[int32]int{}
	for len(from) > 0 {
		fetches := c.PollRecords(ctx, 0)
		if err := fetches.Err(); err != nil {
			return nil, q.explain("peek into", err)
		}
		fetches.EachRecord(func(in *kgo.Record) {
			if _, wanted := from[in.Partition]; !wanted {
				return
			}
			if !in.Attrs.IsControl() {
				out = append(out, driver.Delivery{Message: q.unpack(in).msg})
				seen[in.Partition]++
			}
			if in.Offset+1 >= left[in.Partition].end || seen[in.Partition] >= limit {
				delete(from, in.Partition)
			}
		})
	}
	return oldest(out, limit), nil
}

// Purge moves the group's position to the end of every partition, and drops what is in flight here: the queue leaves the group, and
// the next Receive joins it again. The messages stay in the topic for other groups. Purge is refused while the group has other
// members.
func (q *Queue) Purge(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	left, s, err := q.spans(ctx)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	m := q.member
	q.member = nil
	for id := range q.parts {
		q.drop(id)
	}
	q.mu.Unlock()
	if m != nil {
		m.close()
		defer q.wake.Signal() // a Receive that waits joins again
	}
	n, to := s.Visible+s.InFlight+s.Delayed, kadm.Offsets{}
	for id, l := range left {
		n += l.end - l.from
		to.AddOffset(q.topic, id, l.end, -1)
	}
	res, err := q.admin.CommitOffsets(ctx, q.o.Group, to)
	if err = cmp.Or(err, res.Error()); err != nil {
		return 0, q.explain("purge", fmt.Errorf("stop the members of its group first: %w", err))
	}
	return n, nil
}
