package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// keptDeadLetter is a dead letter with the order in which it was written.
type keptDeadLetter struct {
	driver.DeadLetter
	seq uint64
}

// Settle ends deliveries. A receipt can be used until its message is redelivered, even after its visibility has ended.
// Repeating the action of a used receipt returns Applied, another action Lost. Settlement.Close is carried out in any case,
// because it follows from the record.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("settle in queue %q: %w", q.name, err)
	}
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", q.name, i, err)
		}
	}
	out := make([]driver.Outcome, len(s))
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	now := q.db.clock()
	for i := range s {
		out[i] = q.settle(&s[i], now)
	}
	q.wake()
	return out, nil
}

// check refuses invalid settlements.
func (q *Queue) check(s *driver.Settlement) error {
	if rc, ok := s.Receipt.(*receipt); !ok || rc.q.messages != q.messages {
		return fmt.Errorf("receipt %T is not of this queue", s.Receipt)
	}
	return s.Check()
}

func (q *Queue) settle(s *driver.Settlement, now time.Time) driver.Outcome {
	if s.Close != "" {
		delete(q.deadLetters, s.Close)
	}
	rc := s.Receipt.(*receipt)
	if rc.settled != 0 {
		if rc.settled == s.Action+1 {
			return driver.Applied
		}
		return driver.Lost
	}
	e := rc.e
	if e.delivery != rc.delivery {
		return driver.Lost
	}
	rc.settled = s.Action + 1
	e.delivery = 0
	switch s.Action {
	case driver.Dead:
		q.putDeadLetter(s.DeadLetter, now)
		q.forget(e, now)
	case driver.Ack:
		q.forget(e, now)
	default:
		q.schedule(e, now.Add(s.After), now)
	}
	return driver.Applied
}

// Extend keeps deliveries invisible to others for visible from now. That works even after the visibility has ended, if the
// message was not redelivered.
func (q *Queue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("extend in queue %q: %w", q.name, err)
	}
	for i, r := range receipts {
		if rc, ok := r.(*receipt); !ok || rc.q.messages != q.messages {
			return nil, fmt.Errorf("extend in queue %q: item %d: receipt %T is not of this queue", q.name, i, r)
		}
	}
	out := make([]driver.Outcome, len(receipts))
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	now := q.db.clock()
	for i, r := range receipts {
		rc := r.(*receipt)
		out[i] = driver.Lost
		if rc.e.delivery == rc.delivery {
			q.fly(rc.e, now.Add(visible))
			out[i] = driver.Applied
		}
	}
	return out, nil
}

// Stats counts what the queue holds. Followers of a group's head are visible as soon as they are due.
func (q *Queue) Stats(ctx context.Context) (driver.QueueStats, error) {
	if err := ctx.Err(); err != nil {
		return driver.QueueStats{}, err
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	now := q.db.clock()
	q.advance(now)
	s := driver.QueueStats{
		Visible: q.counts[ready], InFlight: q.counts[flying], Delayed: q.counts[delayed], DeadLetters: int64(len(q.deadLetters)),
	}
	for _, g := range q.groups {
		for e := g.head.behind; e != nil; e = e.behind {
			if e.due.After(now) {
				s.Delayed++
			} else {
				s.Visible++
			}
		}
	}
	if q.oldest != nil {
		s.Oldest = max(now.Sub(q.oldest.m.SentAt), 0)
	}
	return s, nil
}

// Peek returns up to limit messages without receiving them, oldest first. They have no receipt.
func (q *Queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	var out []driver.Delivery
	for e := q.oldest; e != nil && len(out) < limit; e = e.newer {
		out = append(out, driver.Delivery{Message: e.m, Count: e.count})
	}
	return out, nil
}

// Purge removes every message that is not a dead letter, including those in flight, whose receipts are then Lost.
func (q *Queue) Purge(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	now, n := q.db.clock(), int64(0)
	for q.oldest != nil {
		q.forget(q.oldest, now)
		n++
	}
	return n, nil
}

func (q *Queue) putDeadLetter(l *driver.DeadLetter, now time.Time) {
	if _, ok := q.deadLetters[l.ID]; ok {
		return
	}
	q.deadLetterSeq++
	k := keptDeadLetter{DeadLetter: *l, seq: q.deadLetterSeq}
	k.DeadAt = now
	q.deadLetters[l.ID] = k
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (q *Queue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.db.mu.Lock()
	kept := make([]keptDeadLetter, 0, len(q.deadLetters))
	for _, l := range q.deadLetters {
		kept = append(kept, l)
	}
	q.db.mu.Unlock()
	slices.SortFunc(kept, func(a, b keptDeadLetter) int { return cmp.Compare(a.seq, b.seq) })
	if limit > 0 && len(kept) > limit {
		kept = kept[:limit]
	}
	out := make([]driver.DeadLetter, len(kept))
	for i := range kept {
		out[i] = kept[i].DeadLetter
	}
	return out, nil
}

// DeadLetter returns one dead letter. ok is false if it does not exist.
func (q *Queue) DeadLetter(ctx context.Context, id string) (driver.DeadLetter, bool, error) {
	if err := ctx.Err(); err != nil {
		return driver.DeadLetter{}, false, err
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	l, ok := q.deadLetters[id]
	return l.DeadLetter, ok, nil
}

// PutDeadLetter publishes a dead letter that belongs to no delivery. Publishing an ID twice makes one dead letter.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.ID == "" {
		return fmt.Errorf("put dead letter into queue %q: it has no ID", q.name)
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	q.putDeadLetter(&l, q.db.clock())
	return nil
}

// DeleteDeadLetter removes a dead letter. It returns nil if it does not exist.
func (q *Queue) DeleteDeadLetter(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	delete(q.deadLetters, id)
	return nil
}
