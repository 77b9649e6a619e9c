package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Store keeps idempotency records. The driver's Decide functions decide every item inside the write transaction. The
// guarded statements of record.go decide the plain case in one step. Package rowstore does the rest.
type Store struct {
	*slowPath
	db *DB
}

// slowPath is embedded under a name that programs do not see.
type slowPath = rowstore.Store

// Store returns the record store of the database; all of them are one.
func (db *DB) Store() *Store { return &Store{slowPath: rowstore.New(rows{db}), db: db} }

// Features describes the store. ServerClock: the host's clock decides, and processes that share a file share a host.
func (s *Store) Features() driver.StoreFeatures {
	return driver.StoreFeatures{
		Name: s.db.path, Kind: "sqlite", Durable: true, ServerClock: true, Emits: true, MaxTx: s.db.o.MaxTx,
		ListsUncertain: true,
	}
}

// Claim decides claims in one transaction. An error means that nothing was decided, or, unless it wraps
// driver.ErrNotCommitted, that the outcome is unknown.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	places := places(c, func(c *driver.Claim) *driver.Key { return &c.Key })
	return writeAll(ctx, s.db, "claim", len(c), func(t *txn, out []driver.Grant) error { return t.claims(c, places, out) })
}

// writeAll decides n items in one write transaction.
func writeAll[R any](ctx context.Context, db *DB, what string, n int, each func(t *txn, out []R) error) ([]R, error) {
	out := make([]R, n)
	if err := db.write(ctx, n, func(t *txn) error { return each(t, out) }); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}

// claims decides claims in their order. Most keys are new, so the inserts come first: they are the guarded write for "no
// record". Existing records are read together and decided by the table.
func (t *txn) claims(c []driver.Claim, places []rowstore.Place, out []driver.Grant) error {
	var old []int
	for i := range c {
		drawn, err := t.draw()
		if err != nil {
			return err
		}
		after, g, fresh := driver.DecideClaim(driver.Record{}, c[i], t.now, uint64(drawn))
		if out[i] = g; fresh {
			fresh, err = t.insert(&after, places[i])
		}
		if err != nil {
			return fmt.Errorf("key %q: %w", c[i].Key.Raw, err)
		}
		if !fresh {
			old = append(old, i)
			continue
		}
		t.use(drawn)
	}
	grants, _, err := rowstore.ClaimTx(rowTx{t}, rowstore.Make, nil, rowstore.Some(c, old)...)
	for at := range grants {
		out[old[at]] = grants[at]
	}
	return err
}

// rest are the items of a call that the guarded statement did not match, or that are not for it. The table decides them
// together, so an item must not overtake one of the same key.
type rest []int

func (r rest) has(place rowstore.Place, places []rowstore.Place) bool {
	return slices.ContainsFunc(r, func(i int) bool { return places[i] == place })
}

// Extend renews leases in one transaction.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	places := places(h, func(h *driver.Hold) *driver.Key { return &h.Key })
	return writeAll(ctx, s.db, "extend leases", len(h), func(t *txn, out []driver.Outcome) error {
		var others rest
		for i := range h {
			n, err := t.s.exec(sqlExtend, t.micros(), micro(t.now.Add(lease)), int64(lease%time.Microsecond), int64(h[i].Token),
				h[i].Nonce[:], []byte(places[i]), int64(h[i].Generation))
			switch {
			case err != nil:
				return fmt.Errorf("key %q: %w", h[i].Key.Raw, err)
			case n == 1:
				out[i] = driver.Applied
			default:
				others = append(others, i)
			}
		}
		decided, err := rowstore.ExtendTx(rowTx{t}, rowstore.Wait, lease, rowstore.Some(h, others)...)
		for at := range decided {
			out[others[at]] = decided[at]
		}
		return err
	})
}

// Finish ends attempts in one transaction.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	places := places(f, func(f *driver.Finish) *driver.Key { return &f.Hold.Key })
	return writeAll(ctx, s.db, "finish", len(f), func(t *txn, out []driver.Outcome) error {
		_, err := t.finish(func(i int) *driver.Finish { return &f[i] }, places, out)
		return err
	})
}

// finish ends attempts. fresh lists those that it writes, in the order of the call.
func (t *txn) finish(item func(i int) *driver.Finish, places []rowstore.Place, out []driver.Outcome) (fresh []int, err error) {
	var others rest
	var ends []driver.Finish // of others
	fresh = make([]int, 0, len(out))
	for i := range out {
		f, n := item(i), int64(0)
		if f.Final == driver.Complete && f.Hold.Version == "" && f.Hold.Generation == 1 && !others.has(places[i], places) {
			n, err = t.s.exec(sqlComplete, t.micros(), milli(t.now.Add(f.Keep)), bytesOrNull(f.Result), textOrNull(f.Reason),
				int64(f.Hold.Token), f.Hold.Nonce[:], []byte(places[i]))
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("key %q: %w", f.Hold.Key.Raw, err)
		case n == 1:
			out[i], fresh = driver.Applied, append(fresh, i)
		default:
			others, ends = append(others, i), append(ends, *f)
		}
	}
	decided, written, err := rowstore.FinishTx(rowTx{t}, rowstore.Wait, ends...)
	for at := range decided {
		out[others[at]] = decided[at]
	}
	for _, at := range written {
		fresh = append(fresh, others[at])
	}
	slices.Sort(fresh)
	return fresh, err
}
