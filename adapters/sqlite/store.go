package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Store keeps idempotency records. The driver's Decide functions decide every item inside the write transaction. The
// guarded statements of record.go decide the plain case in one step. Package rowstore does the rest.
type Store struct {
	*slowPath
	*workers
	db *DB
}

// slowPath and workers are embedded under names that programs do not see.
type (
	slowPath = rowstore.Store
	workers  = rowstore.Workers
)

// Store returns the record store of the database; all of them are one.
func (db *DB) Store() *Store {
	return &Store{rowstore.New(rows{db}), rowstore.NewWorkers(rows{db}), db}
}

// Features describes the store. ServerClock: the host's clock decides, and processes that share a file share a host.
func (s *Store) Features() driver.StoreFeatures {
	return driver.StoreFeatures{
		Name: s.db.path, Kind: "sqlite", Durable: true, ServerClock: true, Emits: true, MaxTx: s.db.o.MaxTx,
		ListsUncertain: true, ClaimsAtCommit: true,
	}
}

// Claim decides claims in one transaction. An error means that nothing was decided, or, unless it wraps
// driver.ErrNotCommitted, that the outcome is unknown.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	places := places(c, func(c *driver.Claim) *driver.Key { return &c.Key })
	out, rest, err := rowstore.AtCommit(ctx, rows{s.db}, c, places)
	if err == nil && len(rest) > 0 {
		decided := out
		if len(rest) < len(c) {
			c, places, decided = rowstore.Some(c, rest), rowstore.Some(places, rest), make([]driver.Grant, len(rest))
		}
		err = s.db.write(ctx, len(rest), func(t *txn) error { return t.claims(c, places, decided) })
		for at, i := range rest {
			out[i] = decided[at]
		}
	}
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return out, nil
}

// claims decides claims in their order. Most keys are new, so the inserts come first: they are the guarded write for "no
// record". Existing records are read together and decided by the table.
func (t *txn) claims(c []driver.Claim, places []rowstore.Place, out []driver.Grant) error {
	var old []int
	for i := range c {
		if c[i].AtCommit {
			old = append(old, i)
			continue
		}
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

// Finish ends attempts in one transaction.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	return s.write(ctx, "finish", rowstore.Works(f))
}

// finish ends attempts, and inserts the records of those that come with their claims. fresh lists those that it writes, in
// the order of the call.
func (t *txn) finish(w []driver.Work, places []rowstore.Place, out []driver.Outcome) (fresh []int, err error) {
	var others rest
	var ends []driver.Work // of others
	fresh = make([]int, 0, len(out))
	for i := range out {
		f, c := &w[i].Finish, w[i].Claim
		n := int64(0)
		switch {
		case others.has(places[i], places):
		case c != nil:
			n, err = t.insertCompleted(c, f, places[i])
		case f.Final == driver.Complete && f.Hold.Version == "" && f.Hold.Generation == 1:
			n, err = t.s.exec(sqlComplete, t.micros(), milli(t.now.Add(f.Keep)), rowstore.OrNull(f.Result), rowstore.OrNull(f.Reason),
				int64(f.Hold.Token), f.Hold.Nonce[:], []byte(places[i]))
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("key %q: %w", f.Hold.Key.Raw, err)
		case n == 1:
			out[i], fresh = driver.Applied, append(fresh, i)
		default:
			others, ends = append(others, i), append(ends, driver.Work{Finish: *f, Claim: c})
		}
	}
	decided, written, err := rowstore.RecordTx(rowTx{t}, rowstore.Make, ends...)
	for at := range decided {
		out[others[at]] = decided[at]
	}
	for _, at := range written {
		fresh = append(fresh, others[at])
	}
	slices.Sort(fresh)
	return fresh, err
}

// insertCompleted inserts the record of an attempt that comes with its claim. 0: the key has one, and the table decides.
func (t *txn) insertCompleted(c *driver.Claim, f *driver.Finish, place rowstore.Place) (n int64, err error) {
	drawn, err := t.draw()
	if err != nil {
		return 0, err
	}
	after, _, ok := driver.DecideInsert(driver.Record{}, *c, *f, t.now, uint64(drawn))
	if ok {
		ok, err = t.insert(&after, place)
	}
	if err != nil || !ok {
		return 0, err
	}
	t.use(drawn)
	return 1, nil
}
