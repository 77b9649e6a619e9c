package semeltest

import (
	"errors"
	"slices"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// testUnreadable makes one record unreadable: every call returns driver.ErrUnreadable for its key. The other keys get
// their results, and nothing is written to the record.
func testUnreadable(t testing.TB, s StoreSetup) {
	if s.Damage == nil {
		t.Log("left out: StoreSetup.Damage is nil")
		return
	}
	ks := keys(5, "unreadable-%d")
	held := mustClaim(t, s.Store, ks[2])[0]
	s.Damage(t, ks[2])
	for _, asked := range [][]driver.Key{{ks[2]}, ks[:3], ks, {ks[3], ks[2]}} {
		cs := make([]driver.Claim, len(asked))
		for i, k := range asked {
			cs[i] = driver.Claim{Key: k, Nonce: newNonce(), Lease: long}
		}
		gs, err := s.Store.Claim(t.Context(), cs...)
		s.unreadableGrants(t, "claim", asked, ks[2], gs, err)
		if tr, ok := driver.As[driver.Transactor](s.Store); ok {
			tx, gs, err := tr.Begin(t.Context(), cs...)
			s.unreadableGrants(t, "begin", asked, ks[2], gs, err)
			if tx != nil {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	other := mustClaim(t, s.Store, driver.Key{Consumer: "suite", Raw: "readable"})[0]
	s.unreadableLists(t, other.Hold.Key)
	release := func(g driver.Grant) driver.Finish {
		return driver.Finish{Hold: g.Hold, Final: driver.Release, Keep: keep}
	}
	out, err := s.Store.Finish(t.Context(), release(held), release(other))
	if err != nil || out[0] != driver.Unknown || out[1] != driver.Applied {
		t.Errorf("the end of an attempt whose record cannot be read, and of another, returned %v, %v; wanted Unknown and Applied", out, err)
	}
}

// unreadableLists lists the readable records, and fails at the end.
func (s StoreSetup) unreadableLists(t testing.TB, readable driver.Key) {
	t.Helper()
	check := func(what string, rs []driver.Record, err error) {
		t.Helper()
		found := slices.ContainsFunc(rs, func(r driver.Record) bool { return r.Key == readable })
		if !errors.Is(err, driver.ErrUnreadable) || !found {
			t.Errorf("%s with a record that cannot be read: another record is listed: %v, error: %v; wanted both", what, found, err)
		}
	}
	if i, ok := driver.As[driver.RecordInspector](s.Store); ok {
		rs, err := i.Records(t.Context(), driver.RecordFilter{})
		check("a list", rs, err)
	}
	if scan, ok := driver.As[driver.RecordScanner](s.Store); ok {
		var rs []driver.Record
		err := scan.ScanRecords(t.Context(), driver.RecordFilter{}, func(r driver.Record) error { rs = append(rs, r); return nil })
		check("a scan", rs, err)
	}
}

func (s StoreSetup) unreadableGrants(t testing.TB, what string, asked []driver.Key, damaged driver.Key, gs []driver.Grant, err error) {
	t.Helper()
	if err != nil || len(gs) != len(asked) {
		t.Errorf("%s of %d keys, of one of which the record cannot be read, returned %d grants and %v: it is that key's error", what, len(asked), len(gs), err)
		return
	}
	for i, k := range asked {
		if bad := k == damaged; bad != errors.Is(gs[i].Err, driver.ErrUnreadable) || !bad && gs[i].Err != nil {
			t.Errorf("%s: key %q returned %v, error %v; the record of %q cannot be read", what, k.Raw, gs[i].Verdict, gs[i].Err, damaged.Raw)
		}
	}
}

// testCommitTransient lets one item's effects be refused, each time, with an error that often is the store's own trouble. It
// must not look like an outage or like a write with an unknown outcome. Without the item the others are written.
func testCommitTransient(t testing.TB, s StoreSetup) {
	c, ok := effects(t, s)
	if !ok || s.Ledger.Transient == nil {
		t.Log("left out: no driver.Committer, or Ledger.Transient is nil")
		return
	}
	refusedApart(t, s, c, "transient", s.Ledger.Transient, func(err error, alone bool) error {
		var item *driver.ItemError
		switch {
		case errors.Is(err, driver.ErrOutage) || errors.Is(err, driver.ErrBlocked):
			return errors.New("it is neither an outage nor a lock")
		case errors.As(err, &item):
			if !alone && !item.Transient {
				return errors.New("among others it must be Transient: the item need not be at fault")
			}
		case !errors.Is(err, driver.ErrNotCommitted):
			return errors.New("it certainly was not committed")
		}
		return nil
	})
}

// testCommitBlocked lets one item's effects wait for another session's lock: the commit returns while the lock lasts, with an
// error that names the item and the lock.
func testCommitBlocked(t testing.TB, s StoreSetup) {
	c, ok := effects(t, s)
	if !ok || s.Ledger.Lock == nil {
		t.Log("left out: no driver.Committer, or Ledger.Lock is nil")
		return
	}
	use, unlock := s.Ledger.Lock(t)
	last := refusedApart(t, s, c, "blocked", use, func(err error, _ bool) error {
		if !errors.Is(err, driver.ErrBlocked) || !errors.As(err, new(*driver.ItemError)) {
			return errors.New("wanted an ItemError that wraps ErrBlocked")
		}
		return nil
	})
	unlock()
	mustCommit(t, c, []driver.Work{last}, driver.Applied)
}

// refusedApart commits works of which one is refused, together and alone, and then the others. It returns the refused one.
func refusedApart(
	t testing.TB, s StoreSetup, c driver.Committer, name string, refuse func(any), judge func(err error, alone bool) error,
) driver.Work {
	t.Helper()
	const culprit = 2
	ks := keys(5, name+"-%d")
	gs := mustClaim(t, s.Store, ks...)
	works := func() (all, others []driver.Work) {
		for i, g := range gs {
			w := s.Ledger.work(c, g)
			if all = append(all, w); i == culprit {
				refuse(w.Effects)
			} else {
				others = append(others, w)
			}
		}
		return all, others
	}
	for range 2 {
		all, _ := works()
		out, err := c.Commit(t.Context(), all...)
		var item *driver.ItemError
		if err == nil || errors.As(err, &item) && item.Index != culprit {
			t.Fatalf("commit with item %d refused returned %v, %v", culprit, out, err)
		}
		if wrong := judge(err, false); wrong != nil {
			t.Errorf("commit with item %d refused returned %v: %v", culprit, err, wrong)
		}
		if _, err = c.Commit(t.Context(), all[culprit]); err == nil {
			t.Fatal("the refused item was committed alone")
		}
		if wrong := judge(err, true); wrong != nil {
			t.Errorf("commit of the refused item alone returned %v: %v", err, wrong)
		}
	}
	all, others := works()
	mustCommit(t, c, others, driver.Applied)
	for i, k := range ks {
		s.Ledger.counts(t, map[bool]int{true: 0, false: 1}[i == culprit], k)
	}
	return all[culprit]
}
