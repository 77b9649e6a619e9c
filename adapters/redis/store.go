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
	items := make([]*item, len(f))
	for n := range f {
		if f[n].Final < driver.Complete || f[n].Final > driver.Park {
			return nil, fmt.Errorf("finish: Finish.Final %d is unknown", f[n].Final)
		}
		items[n] = newItem(&f[n].Hold.Key, verbRead)
		if f[n].Final == driver.Complete {
			items[n].args = []any{verbComplete, holdBytes(&f[n].Hold), f[n].Keep.Microseconds(), tail(f[n].Reason, f[n].Result)}
		}
	}
	out := make([]driver.Outcome, len(f))
	err := s.decide(ctx, "finish", items, func(n int, _ *item) { out[n] = driver.Applied },
		func(n int, r driver.Record, now time.Time, _ uint64) (after driver.Record, write bool) {
			after, out[n], write = driver.DecideFinish(r, f[n], now)
			return after, write
		})
	for n, i := range items {
		if i.err != nil {
			out[n] = driver.Unknown
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
