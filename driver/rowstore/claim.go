package rowstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// batch holds the locked records of the items of one call. Items are decided in the order of the call, also those of one key.
type batch struct {
	ids    []ID  // distinct, in the order of their places, which is the order of locks
	at     []int // place of an item's key in ids
	locked []Locked
	after  []*driver.Record // nil: unchanged
}

// record returns the record of ids[at] after the items that were decided.
func (b *batch) record(at int) *driver.Record {
	if r := b.after[at]; r != nil {
		return r
	}
	return &b.locked[at].Record
}

// set keeps a changed record. A function of its own: only changed records are copied to the heap.
func (b *batch) set(at int, after driver.Record) { b.after[at] = &after }

func lock(tx Tx, n int, key func(i int) *driver.Key, mode Mode) (*batch, error) {
	all := make([]ID, n)
	for i := range all {
		all[i] = ID{*key(i), PlaceOf(key(i))}
	}
	b := &batch{ids: slices.Clone(all), at: make([]int, n)}
	slices.SortFunc(b.ids, compareIDs)
	b.ids = slices.CompactFunc(b.ids, func(a, b ID) bool { return a.Key == b.Key })
	for i := range all {
		b.at[i], _ = slices.BinarySearchFunc(b.ids, all[i], compareIDs)
	}
	if n == 0 {
		return b, nil
	}
	var err error
	b.locked, err = tx.Lock(b.ids, mode)
	for i := range b.locked {
		l := &b.locked[i]
		l.Place = b.ids[i].Place
		if i > 0 && mode == Make && l.Place == b.ids[i-1].Place && l.Err == nil && l.Record.State == driver.Absent {
			l.Err = ErrCollision // one of the two keys has the placeholder
		}
	}
	b.after = make([]*driver.Record, len(b.ids))
	return b, err
}

// compareIDs orders by place. Two keys with one place are two IDs, of which one cannot have a record.
func compareIDs(a, b ID) int {
	if c := cmp.Compare(a.Place, b.Place); c != 0 || a.Key == b.Key {
		return c
	}
	return cmp.Or(cmp.Compare(a.Key.Consumer, b.Key.Consumer), cmp.Compare(a.Key.Tenant, b.Key.Tenant), cmp.Compare(a.Key.Raw, b.Key.Raw))
}

// unlock drops the placeholders of keys that get no record, when all items are decided: a later one may make it.
func (b *batch) unlock(tx Tx, mode Mode) error {
	for at := range b.locked {
		if l := &b.locked[at]; mode == Make && l.Err == nil && b.record(at).State == driver.Absent {
			if err := tx.Drop(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes the changed records.
func (b *batch) write(tx Tx) error {
	for at, after := range b.after {
		if after == nil {
			continue
		}
		if err := tx.Put(&b.locked[at], after); err != nil {
			return fmt.Errorf("key %q: %w", b.ids[at].Key.Raw, err)
		}
	}
	return nil
}

// Decide runs f in a transaction and returns its results. items is the number of records. If the wait for locked records
// failed, it runs f once more with [Skip].
func Decide[T any](ctx context.Context, s *Store, items int, mode Mode, f func(tx Tx, mode Mode) (T, error)) (out T, err error) {
	if items == 0 {
		return out, nil
	}
	try := func(mode Mode) error {
		return s.db.Atomic(ctx, items, func(tx Tx) (err error) { out, err = f(tx, mode); return err })
	}
	var item *driver.ItemError
	if err = try(mode); mode != Skip && errors.Is(err, driver.ErrBlocked) && !errors.As(err, &item) {
		err = try(Skip)
	}
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// Some returns some items of a call.
func Some[T any](items []T, which []int) []T {
	out := make([]T, len(which))
	for at, i := range which {
		out[at] = items[i]
	}
	return out
}

// Wrap adds to an error what failed; nil stays nil.
func Wrap(err error, what string, args ...any) error {
	if err != nil {
		return fmt.Errorf(what+": %w", append(args, err)...)
	}
	return nil
}

// Claim decides claims in one transaction. It waits for keys that other sessions have locked, and then returns Busy.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	places := make([]Place, len(c))
	for i := range c {
		places[i] = PlaceOf(&c[i].Key)
	}
	out, rest, err := AtCommit(ctx, s.db, c, places)
	if err != nil {
		return nil, Wrap(err, "claim")
	}
	some := Some(c, rest)
	decided, err := Decide(ctx, s, len(some), Make, func(tx Tx, mode Mode) ([]driver.Grant, error) {
		decided, _, err := ClaimTx(tx, mode, nil, some...)
		return decided, err
	})
	if err != nil {
		return nil, Wrap(err, "claim")
	}
	for at := range decided {
		if errors.Is(decided[at].Err, ErrLocked) || errors.Is(decided[at].Err, ErrAbsent) {
			decided[at] = LockedGrant(&some[at])
		}
		out[rest[at]] = decided[at]
	}
	return out, nil
}

// atCommitStep is how many places one statement of AtCommit names.
const atCommitStep = 100

// sqlKnown lists those of atCommitStep places that have a record. To name fewer, the last one is named again.
var sqlKnown = "SELECT place FROM semel_record WHERE place IN (?" + strings.Repeat(", ?", atCommitStep-1) + ")"

// AtCommit decides the claims of a call that want no record before their run, if their keys have none. It reads only committed
// records, and locks nothing. rest are the indexes of all other claims.
func AtCommit(ctx context.Context, db DB, c []driver.Claim, places []Place) (out []driver.Grant, rest []int, err error) {
	out, rest = make([]driver.Grant, len(c)), make([]int, 0, len(c))
	var look []Place
	for i := range c {
		if c[i].AtCommit {
			look = append(look, places[i])
		}
	}
	known := map[Place]bool{}
	for chunk := range slices.Chunk(look, atCommitStep) {
		args := make([]any, atCommitStep)
		for i := range args {
			args[i] = chunk[min(i, len(chunk)-1)]
		}
		err := db.Read(ctx, func(r Row) error { known[Place(r.Bytes(0))] = true; return nil }, sqlKnown, args...)
		if err != nil {
			return nil, nil, err
		}
	}
	for i := range c {
		if c[i].AtCommit && !known[places[i]] {
			_, out[i], _ = driver.DecideClaim(driver.Record{}, c[i], time.Time{}, 0)
		} else if rest = append(rest, i); len(look) > 0 {
			known[places[i]] = true // a later claim of the key finds the record that this one makes
		}
	}
	return out, rest, nil
}

// lockedWait is the Grant.Wait of a key that another session has locked, because the end of the lock is unknown.
const lockedWait = 100 * time.Millisecond

// LockedGrant returns the grant of a claim whose record another session has locked.
func LockedGrant(c *driver.Claim) driver.Grant {
	return driver.Grant{
		Verdict: driver.Busy, Hold: driver.Hold{Key: c.Key, Generation: 1}, Takeover: c.Takeover, Wait: lockedWait,
	}
}

// ErrAbsent is the error of a claim in [ClaimTx] whose key has no record and that may not make one.
var ErrAbsent = errors.New("there is no record")

// ClaimTx decides claims inside a transaction. It makes new records only with [Make]. In other modes the claim of a key without
// a record has the error ErrAbsent. Grant.Err of a record that another session has locked is ErrLocked (see [Skip]).
//
// With h, the transaction stays open and holds the acquired claims. Some claims change a record without acquiring it: an
// expired record under Once is parked, a lease too far ahead is shortened. These changes must be durable whatever the outcome
// of this transaction. ClaimTx then writes nothing and returns the indexes of these claims in durable. [Park] writes them
// before the transaction is opened again.
func ClaimTx(tx Tx, mode Mode, h *Held, c ...driver.Claim) (out []driver.Grant, durable []int, err error) {
	out = make([]driver.Grant, len(c))
	b, err := lock(tx, len(c), func(i int) *driver.Key { return &c[i].Key }, mode)
	if err != nil {
		return nil, nil, err
	}
	for i := range c {
		at := b.at[i]
		l := &b.locked[at]
		if l.Err != nil {
			out[i] = driver.Grant{Err: fmt.Errorf("key %q: %w", c[i].Key.Raw, l.Err)}
			continue
		}
		after, g, changed := driver.DecideClaim(*b.record(at), c[i], l.Now, l.Drawn)
		switch out[i] = g; {
		case changed && l.Record.State == driver.Absent && mode != Make:
			out[i] = driver.Grant{Err: fmt.Errorf("key %q: %w", c[i].Key.Raw, ErrAbsent)}
		case changed && h != nil && g.Verdict != driver.Acquired:
			durable = append(durable, i)
		case changed:
			b.set(at, after)
			if h != nil {
				h.Add(l.before(), after)
			}
		}
	}
	if err := b.unlock(tx, mode); err != nil {
		return nil, nil, err
	}
	if len(durable) > 0 {
		return out, durable, nil
	}
	return out, nil, b.write(tx)
}

// Extend renews leases in one transaction.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	out, err := Decide(ctx, s, len(h), Wait, func(tx Tx, mode Mode) ([]driver.Outcome, error) {
		return ExtendTx(tx, mode, lease, h...)
	})
	return out, Wrap(err, "extend leases")
}

// Finish ends attempts in one transaction.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	out, err := Decide(ctx, s, len(f), Wait, func(tx Tx, mode Mode) ([]driver.Outcome, error) {
		out, _, err := FinishTx(tx, mode, f...)
		return out, err
	})
	return out, Wrap(err, "finish")
}

// Commit writes works in one transaction: records, effects, emitted messages, acks. See [driver.Committer].
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if err := CheckWorks(w, s.layout.Check); err != nil {
		return nil, Wrap(err, "commit")
	}
	out, err := Decide(ctx, s, 2*len(w), CommitMode(w), func(tx Tx, mode Mode) ([]driver.Outcome, error) { return CommitTx(tx, mode, w...) })
	return out, Wrap(err, "commit")
}

// CommitMode returns the mode of [CommitTx]: Make if some of the works bring their claims, else Wait.
func CommitMode(w []driver.Work) Mode {
	if slices.ContainsFunc(w, func(w driver.Work) bool { return w.Claim != nil }) {
		return Make
	}
	return Wait
}

// CommitTx writes works inside a transaction. The items of records that another session has locked are Unknown (see [Skip]),
// and so are, in other modes than [Make], those of works with a claim whose keys have no record.
func CommitTx(tx Tx, mode Mode, w ...driver.Work) ([]driver.Outcome, error) {
	out, fresh, err := RecordTx(tx, mode, w...)
	if err != nil || len(fresh) == 0 {
		return out, err
	}
	return out, tx.Works(w, fresh)
}

// FinishTx ends attempts inside a transaction. fresh lists those that this call writes. The items of records that another
// session has locked are Unknown (see [Skip]).
func FinishTx(tx Tx, mode Mode, f ...driver.Finish) (out []driver.Outcome, fresh []int, err error) {
	return RecordTx(tx, mode, Works(f)...)
}

// Works are works that only end attempts.
func Works(f []driver.Finish) []driver.Work {
	w := make([]driver.Work, len(f))
	for i := range f {
		w[i].Finish = f[i]
	}
	return w
}

// RecordTx is CommitTx without what comes with the records.
func RecordTx(tx Tx, mode Mode, w ...driver.Work) (out []driver.Outcome, fresh []int, err error) {
	return ends(tx, mode, len(w), func(i int) *driver.Hold { return &w[i].Finish.Hold }, func(i int, l *Locked, r driver.Record) (
		driver.Record, driver.Outcome, bool,
	) {
		switch {
		case w[i].Claim == nil:
			return driver.DecideFinish(r, w[i].Finish, l.Now)
		case l.Err != nil: // the key cannot have a record, which its claim reports
			return r, driver.Lost, false
		case r.State == driver.Absent && mode != Make:
			return r, driver.Unknown, false
		}
		return driver.DecideInsert(r, *w[i].Claim, w[i].Finish, l.Now, l.Drawn)
	})
}

// ExtendTx renews leases inside a transaction, as FinishTx ends attempts.
func ExtendTx(tx Tx, mode Mode, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	out, _, err := ends(tx, mode, len(h), func(i int) *driver.Hold { return &h[i] }, func(i int, l *Locked, r driver.Record) (
		driver.Record, driver.Outcome, bool,
	) {
		after, o := driver.DecideExtend(r, h[i], lease, l.Now)
		return after, o, o == driver.Applied
	})
	return out, err
}

func ends(tx Tx, mode Mode, n int, hold func(i int) *driver.Hold,
	decide func(i int, l *Locked, r driver.Record) (after driver.Record, o driver.Outcome, changed bool),
) (out []driver.Outcome, fresh []int, err error) {
	b, err := lock(tx, n, func(i int) *driver.Key { return &hold(i).Key }, mode)
	if err != nil {
		return nil, nil, err
	}
	out = make([]driver.Outcome, n)
	for i := range out {
		at := b.at[i]
		l := &b.locked[at]
		if unlessCollision(l.Err) != nil {
			continue // unreadable, or locked: Unknown
		}
		after, o, changed := decide(i, l, *b.record(at))
		if out[i] = o; changed {
			b.set(at, after)
			fresh = append(fresh, i)
		}
	}
	if err := b.unlock(tx, mode); err != nil {
		return nil, nil, err
	}
	return out, fresh, b.write(tx)
}
