package sqlite

import (
	"context"
	"fmt"
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
	hashes := hashes(c, func(c *driver.Claim) *driver.Key { return &c.Key })
	return writeAll(ctx, s.db, "claim", len(c), func(t *txn, out []driver.Grant) error { return t.claims(c, hashes, out) })
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
func (t *txn) claims(c []driver.Claim, hashes [][]byte, out []driver.Grant) error {
	var old []int
	for i := range c {
		drawn, err := t.draw()
		if err != nil {
			return err
		}
		after, g, fresh := driver.DecideClaim(driver.Record{}, c[i], t.now, uint64(drawn))
		if out[i] = g; fresh {
			fresh, err = t.insert(&after, hashes[i])
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
	if len(old) == 0 {
		return nil
	}
	found, err := t.findAll(old, func(i int) []byte { return hashes[i] })
	if err != nil {
		return err
	}
	for _, i := range old {
		if out[i], err = t.claimOld(&c[i], found, out[i]); err != nil {
			return fmt.Errorf("key %q: %w", c[i].Key.Raw, err)
		}
	}
	return nil
}

// claimOld decides a claim on a key that has a record, and updates found, because a call may have a key twice. absent is
// the grant without a record: only a claim that waits for another version makes none.
func (t *txn) claimOld(c *driver.Claim, found map[driver.Key]readable, absent driver.Grant) (driver.Grant, error) {
	r, ok := found[c.Key]
	switch {
	case !ok && absent.Verdict == driver.Busy:
		return absent, nil
	case !ok:
		return driver.Grant{Err: fmt.Errorf("key %q: %w", c.Key.Raw, rowstore.ErrCollision)}, nil
	case r.err != nil:
		return driver.Grant{Err: r.err}, nil //nolint:nilerr // it is the error of this key alone
	}
	drawn, err := t.draw()
	if err != nil {
		return driver.Grant{}, err
	}
	after, g, changed := driver.DecideClaim(r.Record, *c, t.now, uint64(drawn))
	if !changed {
		return g, nil
	}
	found[c.Key] = readable{Record: after}
	t.use(int64(after.Token))
	return g, t.store(r.Token, &after)
}

// Extend renews leases in one transaction.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	hashes := hashes(h, func(h *driver.Hold) *driver.Key { return &h.Key })
	return writeAll(ctx, s.db, "extend leases", len(h), func(t *txn, out []driver.Outcome) (err error) {
		for i := range h {
			if out[i], err = t.extend(&h[i], hashes[i], lease); err != nil {
				return fmt.Errorf("key %q: %w", h[i].Key.Raw, err)
			}
		}
		return nil
	})
}

func (t *txn) extend(h *driver.Hold, hash []byte, lease time.Duration) (driver.Outcome, error) {
	if !checkToken(h.Token) {
		return driver.Lost, nil
	}
	n, err := t.s.exec(sqlExtend, int64(lease), micro(t.now.Add(lease)), t.micros(), int64(h.Token), h.Nonce[:],
		int64(h.Generation), hash)
	if err != nil {
		return driver.Unknown, err
	}
	if n == 1 {
		return driver.Applied, nil
	}
	r, err := t.find(h.Key, hash)
	if r.err != nil || err != nil {
		return driver.Unknown, err
	}
	after, o := driver.DecideExtend(r.Record, *h, lease, t.now)
	if o == driver.Applied {
		err = t.store(r.Token, &after)
	}
	return o, err
}

// Finish ends attempts in one transaction.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	hashes := hashes(f, func(f *driver.Finish) *driver.Key { return &f.Hold.Key })
	return writeAll(ctx, s.db, "finish", len(f), func(t *txn, out []driver.Outcome) (err error) {
		for i := range f {
			if out[i], _, err = t.finish(&f[i], hashes[i]); err != nil {
				return fmt.Errorf("key %q: %w", f[i].Hold.Key.Raw, err)
			}
		}
		return nil
	})
}

// finish decides one end of an attempt; changed is false when nothing was written now.
func (t *txn) finish(f *driver.Finish, hash []byte) (o driver.Outcome, changed bool, err error) {
	if !checkToken(f.Hold.Token) {
		return driver.Lost, false, nil
	}
	if f.Final == driver.Complete && f.Hold.Version == "" {
		n, err := t.s.exec(sqlComplete, t.micros(), t.micros(), micro(t.now.Add(f.Keep)), bytesOrNull(f.Result), f.Reason,
			int64(f.Hold.Token), f.Hold.Nonce[:], int64(f.Hold.Generation), hash)
		if err != nil {
			return driver.Unknown, false, err
		}
		if n == 1 {
			return driver.Applied, true, nil
		}
	}
	r, err := t.find(f.Hold.Key, hash)
	if r.err != nil || err != nil {
		return driver.Unknown, false, err
	}
	after, o, changed := driver.DecideFinish(r.Record, *f, t.now)
	if changed {
		err = t.store(r.Token, &after)
	}
	return o, changed, err
}
