package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Claim decides claims, each with one conditional write. For a new key it succeeds. For a duplicate it fails and returns the
// record. An error means that no outcome is known.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if len(c) == 0 {
		return nil, nil
	}
	out := make([]driver.Grant, len(c))
	s.each(ctx, len(c), func(i int, err error) {
		if err == nil {
			out[i], err = s.claim(ctx, &c[i])
		}
		if err != nil {
			out[i] = driver.Grant{Err: fmt.Errorf("claim key %q: %w", c[i].Key.Raw, err)}
		}
	})
	errs := make([]error, len(out))
	for i := range out {
		// An item that cannot be decoded must not look like an outage of the store.
		if errs[i] = out[i].Err; errs[i] == nil || errors.Is(errs[i], errItem) {
			return out, nil
		}
	}
	return nil, errs[worst(errs)]
}

func (s *Store) claim(ctx context.Context, c *driver.Claim) (g driver.Grant, err error) {
	ch := &change{key: c.Key}
	if r, ok := s.rows.claimed(c.Key, c.Nonce); ok {
		ch.row = r // the claim is repeated
	}
	ch.decide = func(r row, now time.Time) (after row, write bool, err error) {
		after, g, write = s.decideClaim(r, c, now)
		return after, write, nil
	}
	_, err = s.change(ctx, ch)
	return g, err
}

func (s *Store) decideClaim(r row, c *driver.Claim, now time.Time) (after row, g driver.Grant, write bool) {
	after = r
	if r.foreign && r.State == driver.InProgress {
		// Its writer may still run it, so it gets one lease from now on before it is taken over.
		after.Lease, after.LeaseUntil, after.CreatedAt, after.UpdatedAt = c.Lease, now.Add(c.Lease), now, now
		return after, driver.Grant{
			Verdict: driver.Busy, Hold: after.Hold(), Attempt: after.Attempt, Takeover: after.Takeover,
			Wait: c.Lease + s.o.skew(), Created: now,
		}, true
	}
	view := s.leased(r, c.Nonce, now)
	rec, g, write := driver.DecideClaim(view, *c, now, s.drawn())
	after.Record = s.unleased(r, view, rec)
	if write && g.Verdict == driver.Busy && !after.LeaseUntil.Equal(r.LeaseUntil) { // the lease was cut
		g.Wait = after.LeaseUntil.Add(s.o.skew()).Sub(now)
	}
	return after, g, write
}

// Extend renews leases, one conditional write each.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	return s.guarded(ctx, len(h), "extend lease of", func(i int) *driver.Hold { return &h[i] },
		func(i int, r driver.Record, now time.Time) (driver.Record, driver.Outcome, bool) {
			after, o := driver.DecideExtend(r, h[i], lease, now)
			return after, o, o == driver.Applied
		})
}

// Finish ends attempts, one conditional write each.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	return s.guarded(ctx, len(f), "finish", func(i int) *driver.Hold { return &f[i].Hold },
		func(i int, r driver.Record, now time.Time) (driver.Record, driver.Outcome, bool) {
			end := f[i]
			end.Reason = clipped(end.Reason)
			return driver.DecideFinish(r, end, now)
		})
}

// guarded changes records of attempts. A change that failed is Unknown. It returns an error only if all of them failed.
func (s *Store) guarded(
	ctx context.Context, n int, what string, hold func(i int) *driver.Hold,
	decide func(i int, r driver.Record, now time.Time) (driver.Record, driver.Outcome, bool),
) ([]driver.Outcome, error) {
	if n == 0 {
		return nil, nil
	}
	out, errs := make([]driver.Outcome, n), make([]error, n)
	rows := s.rowsOf(ctx, n, hold, errs)
	s.each(ctx, n, func(i int, err error) {
		if err = errors.Join(errs[i], err); err != nil {
			errs[i] = err
			return
		}
		c := &change{key: hold(i).Key, row: rows[i].row, read: rows[i].read}
		var o driver.Outcome
		c.decide = func(r row, now time.Time) (after row, write bool, err error) {
			after = r
			after.Record, o, write = decide(i, r.Record, now)
			return after, write, nil
		}
		if _, errs[i] = s.change(ctx, c); errs[i] == nil {
			out[i] = o
		}
	})
	some := false
	for i, err := range errs {
		if some = some || err == nil; tooLargeItem(err) {
			return nil, fmt.Errorf("%s key %q: %w", what, hold(i).Key.Raw, &driver.ItemError{Index: i, Err: err})
		}
	}
	if some {
		return out, nil
	}
	i := worst(errs)
	return nil, fmt.Errorf("%s key %q: %w", what, hold(i).Key.Raw, errs[i])
}

// found is a row. read means that it was just read.
type found struct {
	row  row
	read bool
}

// rowsOf returns the rows of attempts. Rows that are not cached are read in one batch.
func (s *Store) rowsOf(ctx context.Context, n int, hold func(i int) *driver.Hold, errs []error) []found {
	rows := make([]found, n)
	var missing []driver.Key
	var at []int
	for i := range n {
		r, ok := s.rows.of(*hold(i))
		if rows[i].row = r; !ok {
			rows[i].row = row{}
			missing, at = append(missing, hold(i).Key), append(at, i)
		}
	}
	if len(missing) == 0 {
		return rows
	}
	loaded, bad, err := s.load(ctx, missing)
	for _, i := range at {
		k := hold(i).Key
		switch r, ok := loaded[k]; {
		case ok:
			rows[i] = found{r, true}
		case bad[k] != nil:
			errs[i] = bad[k]
		default:
			errs[i] = fmt.Errorf("%w: %w", driver.ErrNotCommitted, err)
		}
	}
	return rows
}
