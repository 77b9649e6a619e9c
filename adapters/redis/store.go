package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// decision decides item n of a call on the record that is there.
type decision func(n int, r driver.Record, now time.Time, drawn uint64) (after driver.Record, write bool)

// decide runs items, one script call for those of a shard. made gets those that the script wrote. The others are decided in
// Go, and a second call swaps what changed.
func (s *Store) decide(ctx context.Context, what string, items []*item, made func(n int, i *item), d decision) error {
	s.run(ctx, items)
	var rest []*item
	for n, i := range items {
		if i.n > 0 {
			made(n, i)
			continue
		}
		i.decide = func(r driver.Record, now time.Time, drawn uint64) (driver.Record, bool, []any) {
			after, write := d(n, r, now, drawn)
			return after, write, nil
		}
		rest = append(rest, i)
	}
	s.swap(ctx, rest)
	return failure(what, items)
}

// failure is the error of a call of which nothing has succeeded; an unreadable record is no failure of the call.
func failure(what string, items []*item) error {
	var err error
	for _, i := range items {
		if i.err == nil || isUnreadable(i.err) {
			return nil
		}
		err = i.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Claim decides claims. The script writes those of new keys.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	items := make([]*item, len(c))
	for n := range c {
		items[n] = newItem(&c[n].Key, verbRead)
		if r, _, fresh := driver.DecideClaim(driver.Record{}, c[n], time.Time{}, 0); fresh {
			items[n].args = []any{verbClaim, encode(r)}
		}
	}
	out := make([]driver.Grant, len(c))
	made := func(n int, i *item) {
		_, out[n], _ = driver.DecideClaim(driver.Record{}, c[n], i.now, uint64(i.n)) //nolint:gosec // the token is positive
	}
	err := s.decide(ctx, "claim", items, made, func(n int, r driver.Record, now time.Time, drawn uint64) (after driver.Record, write bool) {
		after, out[n], write = driver.DecideClaim(r, c[n], now, drawn)
		return after, write
	})
	if err != nil {
		return nil, err
	}
	for n, i := range items {
		if i.err != nil {
			out[n] = driver.Grant{Err: fmt.Errorf("claim key %q: %w", c[n].Key.Raw, i.err)}
		}
	}
	return out, nil
}

// Extend renews leases. The script does so for attempts that hold their record.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	items := make([]*item, len(h))
	for n := range h {
		items[n] = newItem(&h[n].Key, verbExtend, holdBytes(&h[n]), lease.Microseconds())
	}
	out := make([]driver.Outcome, len(h))
	err := s.decide(ctx, "extend leases", items, func(n int, _ *item) { out[n] = driver.Applied },
		func(n int, r driver.Record, now time.Time, _ uint64) (driver.Record, bool) {
			_, out[n] = driver.DecideExtend(r, h[n], lease, now)
			return r, false
		})
	return out, err
}

// Finish ends attempts. The script completes those that are plain.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	w := make([]driver.Work, len(f))
	for n := range f {
		w[n].Finish = f[n]
	}
	return s.finish(ctx, "finish", w)
}

// Commit ends attempts, and settles their deliveries if these are of a queue of this store. A delivery is settled by the script
// that writes the record. One that expired is no error, because the record decides. See [driver.Committer].
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	for n := range w {
		if err := s.check(&w[n]); err != nil {
			return nil, fmt.Errorf("commit: %w", &driver.ItemError{Index: n, Err: err})
		}
	}
	return s.finish(ctx, "commit", w)
}

// check refuses what this store cannot write.
func (s *Store) check(w *driver.Work) error {
	if w.Effects != nil || len(w.Emit) > 0 || w.Claim != nil {
		return fmt.Errorf("effects, messages or a claim in a commit: a script of Redis is not rolled back: %w", driver.ErrUnsupported)
	}
	if w.Ack == nil {
		return nil
	}
	rc, ok := w.Ack.Receipt.(*receipt)
	if !ok || !s.Joins(rc.q) {
		return fmt.Errorf("ack: receipt %T is not of a queue that the store joins: %w", w.Ack.Receipt, driver.ErrUnsupported)
	}
	return rc.q.check(w.Ack)
}

// Offers returns false: effects do not commit with records.
func (s *Store) Offers(any) bool { return false }

// Joins reports that q is a queue of this store, and that one script can write both: on a cluster only with one shard.
func (s *Store) Joins(q driver.Queue) bool {
	mine, ok := driver.Settles[*Queue](q)
	return ok && mine.s.client == s.client && mine.s.prefix == s.prefix && (s.shards == 1 || !s.server.Cluster)
}

// finish ends attempts and settles the deliveries of those that the script writes.
func (s *Store) finish(ctx context.Context, what string, w []driver.Work) ([]driver.Outcome, error) {
	items := make([]*item, len(w))
	for n := range w {
		f := &w[n].Finish
		if f.Final < driver.Complete || f.Final > driver.Park {
			return nil, fmt.Errorf("%s: Finish.Final %d is unknown", what, f.Final)
		}
		items[n] = newItem(&f.Hold.Key, verbRead)
		items[n].ack = w[n].Ack
		if f.Final == driver.Complete {
			items[n].args = []any{verbComplete, holdBytes(&f.Hold), f.Keep.Microseconds(), tail(f.Reason, f.Result)}
		}
	}
	out := make([]driver.Outcome, len(w))
	err := s.decide(ctx, what, items, func(n int, _ *item) { out[n] = driver.Applied },
		func(n int, r driver.Record, now time.Time, _ uint64) (after driver.Record, write bool) {
			after, out[n], write = driver.DecideFinish(r, w[n].Finish, now)
			return after, write
		})
	for n, i := range items {
		if i.err != nil {
			out[n] = driver.Unknown
		}
		if i.ack != nil {
			wake(*i.ack)
		}
	}
	return out, err
}

// Record reads one record; ok is false when there is none.
func (s *Store) Record(ctx context.Context, k driver.Key) (r driver.Record, ok bool, err error) {
	i := newItem(&k)
	s.read(ctx, i)
	if r, err = i.record(); err != nil {
		return driver.Record{}, false, fmt.Errorf("read record: %w", err)
	}
	return r, r.State != driver.Absent, nil
}

// Operate carries out what an operator asks for; an entry of the audit log commits with it. The record returned is the one
// that is stored afterwards. It erases no record (driver.ErrUnsupported), because audit entries are stored with their record.
func (s *Store) Operate(ctx context.Context, op driver.Operation) (r driver.Record, o driver.Outcome, err error) {
	if op.Kind == driver.Erase {
		return r, driver.Unknown, fmt.Errorf("erase key %q: %w on Redis; Try: wait for the end of its retention", op.Key.Raw, driver.ErrUnsupported)
	}
	i := newItem(&op.Key)
	i.decide = func(found driver.Record, now time.Time, drawn uint64) (_ driver.Record, write bool, more []any) {
		if r, o, write = driver.DecideOperate(found, op, now, drawn); !write {
			r = found
			return r, false, nil
		}
		return r, true, []any{s.auditField(now), encodeRow(op.Entry(found, r, now))}
	}
	s.read(ctx, i)
	s.swap(ctx, []*item{i})
	if i.err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, i.err)
	}
	return r, o, nil
}
