package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// A sweep reads the whole table, and reads are billed. So DynamoDB's own time to live does most of the purging for free, and
// a pass begins every Options.SweepEvery in one process of all. It parks abandoned claims, and purges where the time to live
// is off.

const (
	// sweepEvery is the default of Options.SweepEvery.
	sweepEvery = 6 * time.Hour
	// sweepPages bounds the pages (1 MB) that one call of a pass reads, so that a pass is spread over time.
	sweepPages = 8
	// sweepAttr is the attribute of the item "semel#sweep": when the next pass may begin, in microseconds.
	sweepAttr = "next"
)

// sweeper is the pass that is under way. slot serialises the sweeps of a store.
type sweeper struct {
	once    sync.Once
	slot    chan struct{}
	running bool
	next    time.Time // no pass begins before this
	cursor  attrs     // the last item of the last page that was read
	end     bool      // that was the last page
	todo    []row     // the rows of that page that are still to be swept
	gate    bool      // the records are done, the gate is under way
	gone    []gateRow // the rows of its page that are still to be removed
}

func (w *sweeper) acquire(ctx context.Context) error {
	w.once.Do(func() { w.slot = make(chan struct{}, 1) })
	select {
	case w.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sweep continues the pass over the table that is under way, or begins one when it is due. It reads a part of the table,
// purges up to limit records past their retention (0 = no limit), and parks claims of the consumers (none = all) that were
// abandoned for longer than horizon. more reports that it stopped at the limit. With a negative Options.SweepEvery a call
// that finds no pass under way does a whole one. See [driver.Sweeper].
func (s *Store) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (sum driver.Swept, more bool, err error) {
	w := &s.sweeper
	if err := w.acquire(ctx); err != nil {
		return sum, false, fmt.Errorf("sweep: %w", err)
	}
	defer func() { <-w.slot }()
	if !w.running {
		due, err := s.sweepDue(ctx)
		if err != nil || !due {
			return sum, false, err
		}
		w.running, w.end, w.cursor, w.todo, w.gate, w.gone = true, false, nil, nil, false, nil
	}
	var bad error
	for pages := 0; ; pages++ {
		for len(w.todo) > 0 {
			n := len(w.todo)
			if limit > 0 {
				n = min(n, limit-sum.Count())
			}
			if n == 0 {
				s.left(&sum)
				return sum, true, bad
			}
			if err := s.sweepRows(ctx, w.todo[:n], horizon, consumers, &sum); err != nil {
				return sum, false, fmt.Errorf("sweep: %w", errors.Join(err, bad))
			}
			w.todo = w.todo[n:]
		}
		if w.end && !w.gate && s.o.Gate != "" {
			w.gate, w.end, w.cursor = true, false, nil
		}
		if w.gate {
			over, more, err := s.sweepGate(ctx, limit, pages, &sum)
			if w.running = w.running && !over; err != nil {
				err = fmt.Errorf("sweep: %w", err)
			}
			return sum, more, errors.Join(err, bad)
		}
		if w.end {
			w.running = false
			return sum, false, bad
		}
		if s.o.SweepEvery >= 0 && pages == sweepPages {
			return sum, sum.Did(), bad
		}
		broken, err := s.sweepPage(ctx, horizon, consumers)
		if err != nil {
			return sum, false, fmt.Errorf("sweep: %w", errors.Join(err, bad))
		}
		if broken != nil {
			bad = fmt.Errorf("sweep: %w", errors.Join(bad, broken))
		}
	}
}

// sweepDue reports whether a pass may begin now, and if so reserves it against the other processes.
func (s *Store) sweepDue(ctx context.Context) (bool, error) {
	now := s.now()
	if s.o.SweepEvery < 0 {
		return true, nil
	}
	if left := s.sweeper.next.Sub(now); left > 0 && left <= max(s.o.SweepEvery, time.Minute) {
		return false, nil
	}
	r, next := s.repeater(), now.Add(s.o.SweepEvery)
	is, err := r.do(ctx, func(ctx context.Context) error {
		out, err := s.client.UpdateItem(ctx, &awsdynamodb.UpdateItemInput{
			TableName: &s.table, Key: s.shape.keyAt(ownMark + "sweep"),
			UpdateExpression: aws.String("SET #n = :next"),
			// A time beyond :far was written by a clock that was far ahead. It must not put sweeps off forever.
			ConditionExpression:      aws.String("attribute_not_exists(#n) OR #n <= :now OR #n > :far"),
			ExpressionAttributeNames: map[string]string{"#n": sweepAttr},
			ExpressionAttributeValues: attrs{
				":next": number(next.UnixMicro()), ":now": number(now.UnixMicro()), ":far": number(next.Add(s.o.skew()).UnixMicro()),
			},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.wrote(capacity(out.ConsumedCapacity)...)
		}
		return err
	})
	var failed *types.ConditionalCheckFailedException
	if is == condition && errors.As(err, &failed) {
		s.meter.failedWrite(failed.Item)
		at, _ := asInt(failed.Item[sweepAttr])
		if at == next.UnixMicro() { // ours: the response to the first request was lost
			s.sweeper.next = next
			return true, nil
		}
		s.sweeper.next = now.Add(min(max(time.UnixMicro(at).Sub(now), time.Minute), max(s.o.SweepEvery, time.Minute)))
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("sweep: %w", explain(err, "UpdateItem", s.table))
	}
	s.sweeper.next = next
	return true, nil
}

// sweepPage reads the next page, and keeps the rows to sweep.
func (s *Store) sweepPage(ctx context.Context, horizon time.Duration, consumers []string) (bad, err error) {
	w := &s.sweeper
	p, err := s.page(ctx, scanned{eventual: s.o.SweepEvery >= 0}, w.cursor)
	if err != nil {
		return nil, err
	}
	if p.ahead > s.o.skew() {
		w.running = false
		return nil, s.aheadError(p.ahead)
	}
	bad = errors.Join(p.bad...)
	w.cursor, w.end, w.todo = p.next, p.next == nil, w.todo[:0]
	now, top := s.now(), uint64(0)
	for i := range p.rows {
		r := &p.rows[i]
		switch _, v := driver.DecideSweep(r.Record, now, horizon, 0, consumers...); v {
		case driver.SweepKeep:
			continue
		case driver.SweepPurge:
			if !s.outgrown(r, now) {
				continue
			}
			top = max(top, r.Token)
		case driver.SweepAbandon, driver.SweepExpire:
		}
		w.todo = append(w.todo, *r)
	}
	if top > 0 {
		// Before the first of them is removed: its token is lost afterwards.
		if err := s.raiseFloor(ctx, top); err != nil {
			w.todo = nil
			return bad, err
		}
	}
	return bad, nil
}

// outgrown reports that every clock within MaxClockSkew has passed a record's token, so the next token of its key is greater
// even though this one is forgotten.
func (s *Store) outgrown(r *row, now time.Time) bool {
	passed := now.Add(-s.o.skew()).UnixMicro()
	return passed > 0 && r.Token < uint64(passed)
}

// errKept ends a change that is no longer due.
var errKept = errors.New("changed meanwhile")

// sweepRows purges or parks records, each only if it has not changed since it was read (law 10).
func (s *Store) sweepRows(ctx context.Context, rows []row, horizon time.Duration, consumers []string,
	sum *driver.Swept) error {
	var mu sync.Mutex
	var errs []error
	now := s.now()
	s.each(ctx, len(rows), func(i int, err error) {
		var purged, abandoned bool
		if err == nil {
			switch _, v := driver.DecideSweep(rows[i].Record, now, horizon, 0, consumers...); v {
			case driver.SweepPurge:
				purged, err = s.purge(ctx, &rows[i])
			case driver.SweepAbandon:
				abandoned, err = s.abandon(ctx, &rows[i], horizon, consumers)
			case driver.SweepKeep, driver.SweepExpire: // it has no long-term periods
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if purged {
			sum.Purged++
		}
		if abandoned {
			sum.Abandoned++
		}
		if err != nil {
			errs = append(errs, err)
		}
	})
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d records: %w", len(errs), len(rows), errs[0])
	}
	return nil
}

// purge removes a record if it has not changed since it was read: the condition names its revision, token and nonce, so
// state and retention are those of the decision.
func (s *Store) purge(ctx context.Context, r *row) (bool, error) {
	e := newExpression()
	s.guard(e, r)
	rep := s.repeater()
	is, err := rep.do(ctx, func(ctx context.Context) error {
		out, err := s.client.DeleteItem(ctx, &awsdynamodb.DeleteItemInput{
			TableName: &s.table, Key: s.shape.keyOf(r.Key), ConditionExpression: e.condition(),
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.wrote(capacity(out.ConsumedCapacity)...)
		}
		return err
	})
	var failed *types.ConditionalCheckFailedException
	if is == condition && errors.As(err, &failed) {
		s.meter.failedWrite(failed.Item)
		return rep.maybe && len(failed.Item) == 0, nil // the earlier request was carried out, and its response lost
	}
	if err != nil {
		return false, fmt.Errorf("purge key %q: %w", r.Key.Raw, explain(err, "DeleteItem", s.table))
	}
	return true, nil
}

// abandon parks an abandoned claim. The row was read without journal and audit log: the write leaves them alone.
func (s *Store) abandon(ctx context.Context, r *row, horizon time.Duration, consumers []string) (bool, error) {
	c := &change{key: r.Key, row: *r, decide: func(r row, now time.Time) (after row, write bool, err error) {
		rec, v := driver.DecideSweep(r.Record, now, horizon, 0, consumers...)
		if v != driver.SweepAbandon {
			return r, false, errKept
		}
		after = r
		after.Record = rec
		return after, true, nil
	}}
	_, err := s.change(ctx, c)
	switch {
	case errors.Is(err, errKept):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("park key %q: %w", r.Key.Raw, err)
	}
	return true, nil
}
