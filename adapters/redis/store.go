package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Claim decides claims, one script call for those of a shard. New keys are written by it; keys that have a record are
// decided in Go, and what changed is swapped in a second call.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	items := make([]*item, len(c))
	for i := range c {
		items[i] = newItem(&c[i].Key, verbRead)
		if r, _, fresh := driver.DecideClaim(driver.Record{}, c[i], time.Time{}, 0); fresh {
			items[i].args = []any{verbClaim, encode(r)}
		}
	}
	s.run(ctx, items)
	out := make([]driver.Grant, len(c))
	var old []*item
	for i, it := range items {
		if it.n > 0 {
			_, out[i], _ = driver.DecideClaim(driver.Record{}, c[i], it.now, uint64(it.n)) //nolint:gosec // positive
			continue
		}
		it.decide = func(r driver.Record, now time.Time, drawn uint64) (after driver.Record, write bool, more []any) {
			after, out[i], write = driver.DecideClaim(r, c[i], now, drawn)
			return after, write, nil
		}
		old = append(old, it)
	}
	s.swap(ctx, old)
	for i, it := range items {
		if it.err != nil {
			out[i] = driver.Grant{Err: fmt.Errorf("claim key %q: %w", c[i].Key.Raw, it.err)}
		}
	}
	if err := failure("claim", items); err != nil {
		return nil, err
	}
	return out, nil
}

// Extend renews leases, one script call for those of a shard.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	items := make([]*item, len(h))
	for i := range h {
		items[i] = newItem(&h[i].Key, verbExtend, holdBytes(&h[i]), lease.Microseconds())
	}
	s.run(ctx, items)
	out := make([]driver.Outcome, len(h))
	for i, it := range items {
		if it.n == 1 {
			out[i] = driver.Applied
			continue
		}
		var r driver.Record
		if r, it.err = it.record(); it.err == nil {
			_, out[i] = driver.DecideExtend(r, h[i], lease, it.now)
		}
	}
	return out, failure("extend leases", items)
}

// Finish ends attempts. Plain completions are one script call for those of a shard; for others it reads the records, and a
// second call swaps them.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	items := make([]*item, len(f))
	for i := range f {
		if f[i].Final < driver.Complete || f[i].Final > driver.Park {
			return nil, fmt.Errorf("finish: Finish.Final %d is unknown", f[i].Final)
		}
		items[i] = newItem(&f[i].Hold.Key, verbRead)
		if f[i].Final == driver.Complete {
			items[i].args = []any{verbComplete, holdBytes(&f[i].Hold), f[i].Keep.Microseconds(), tail(f[i].Reason, f[i].Result)}
		}
	}
	s.run(ctx, items)
	out := make([]driver.Outcome, len(f))
	var rest []*item
	for i, it := range items {
		if it.n == 1 {
			out[i] = driver.Applied
			continue
		}
		it.decide = func(r driver.Record, now time.Time, _ uint64) (after driver.Record, write bool, more []any) {
			after, out[i], write = driver.DecideFinish(r, f[i], now)
			return after, write, nil
		}
		rest = append(rest, it)
	}
	s.swap(ctx, rest)
	for i, it := range items {
		if it.err != nil {
			out[i] = driver.Unknown
		}
	}
	return out, failure("finish", items)
}

// Record reads one record; ok is false when there is none.
func (s *Store) Record(ctx context.Context, k driver.Key) (r driver.Record, ok bool, err error) {
	it := newItem(&k)
	s.read(ctx, it)
	if r, err = it.record(); err != nil {
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
	it := newItem(&op.Key)
	it.decide = func(found driver.Record, now time.Time, drawn uint64) (driver.Record, bool, []any) {
		var changed bool
		if r, o, changed = driver.DecideOperate(found, op, now, drawn); !changed {
			r = found
			return r, false, nil
		}
		e := op.Entry(found, r, now)
		return r, true, []any{s.auditField(now), encodeRow(e)}
	}
	s.read(ctx, it)
	s.swap(ctx, []*item{it})
	if it.err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, it.err)
	}
	return r, o, nil
}
