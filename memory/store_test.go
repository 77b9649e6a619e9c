package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// acquire claims a key anew.
func acquire(t *testing.T, s *memory.Store, raw string) driver.Hold {
	t.Helper()
	c := driver.Claim{Key: driver.Key{Raw: raw}, Nonce: driver.Nonce{byte(len(raw)), 1}, Lease: time.Minute}
	g, err := s.Claim(t.Context(), c)
	if err != nil || g[0].Verdict != driver.Acquired {
		t.Fatalf("claim of %q: %v, %v", raw, g, err)
	}
	return g[0].Hold
}

func complete(h driver.Hold) driver.Finish {
	return driver.Finish{Hold: h, Final: driver.Complete, Keep: time.Hour}
}

// TestEffects: a refused batch leaves the tables and records as they were, overwritten rows included.
func TestEffects(t *testing.T) {
	db := memory.Open()
	s := db.Store()
	first := &memory.Effects{}
	first.Put("accounts", "ann", "10")
	first.Append("ledger", "first")
	if _, err := s.Commit(t.Context(), driver.Work{Finish: complete(acquire(t, s, "first")), Effects: first}); err != nil {
		t.Fatal(err)
	}
	good, bad := &memory.Effects{}, &memory.Effects{}
	good.Put("accounts", "ann", "20")
	good.Put("accounts", "bob", "5")
	good.Put("accounts", "bob", "6")
	good.Append("ledger", "good")
	bad.Append("ledger", "bad")
	bad.Insert("accounts", "ann", "0")
	h, g := acquire(t, s, "good"), acquire(t, s, "bad")
	var item *driver.ItemError
	_, err := s.Commit(t.Context(), driver.Work{Finish: complete(h), Effects: good}, driver.Work{Finish: complete(g), Effects: bad})
	if !errors.As(err, &item) || item.Index != 1 || !errors.Is(err, memory.ErrExists) {
		t.Fatalf("commit: %v", err)
	}
	want := []memory.Row{{Key: "ann", Value: "10"}}
	if got := db.Tables().Rows("accounts"); !slices.Equal(got, want) {
		t.Errorf("accounts are %v, wanted %v", got, want)
	}
	if _, ok := db.Tables().Get("accounts", "bob"); ok || db.Tables().Len("ledger") != 1 {
		t.Error("a refused batch left rows")
	}
	if r, _, _ := s.Record(t.Context(), h.Key); r.State != driver.InProgress {
		t.Errorf("the record is %v", r.State)
	}
	if _, err := s.Commit(t.Context(), driver.Work{Finish: complete(h), Effects: good}); err != nil {
		t.Fatal(err)
	}
	if v, _ := db.Tables().Get("accounts", "bob"); v != "6" || db.Tables().Len("accounts") != 2 {
		t.Errorf("bob has %q, accounts %v", v, db.Tables().Rows("accounts"))
	}
}

// TestCommitRefusesForeigners: what this store cannot write is refused by item, and nothing is committed.
func TestCommitRefusesForeigners(t *testing.T) {
	db, foreign := memory.Open(), memory.NewQueue("foreign")
	s := db.Store()
	send(t, foreign, driver.Message{ID: "m"})
	h := acquire(t, s, "k")
	for name, w := range map[string]driver.Work{
		"effects":          {Finish: complete(h), Effects: &driver.Statements{}},
		"foreign ack":      {Finish: complete(h), Ack: &driver.Settlement{Receipt: receive(t, foreign, 1)[0].Receipt}},
		"emit to no queue": {Finish: complete(h), Emit: []driver.Message{{ID: "m"}}},
	} {
		var item *driver.ItemError
		if _, err := s.Commit(t.Context(), driver.Work{Finish: complete(h)}, w); !errors.As(err, &item) || item.Index != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, _, _ := s.Record(t.Context(), h.Key); r.State != driver.InProgress {
		t.Errorf("a refused commit left the record %v", r.State)
	}
	if s.Joins(foreign) || !s.Joins(db.Queue("q")) || memory.NewStore().Joins(memory.NewQueue("q")) {
		t.Error("Joins mixes databases up")
	}
	if _, err := memory.NewStore().Commit(t.Context(), driver.Work{Emit: []driver.Message{{Queue: "q"}}}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a store that stands alone emits: %v", err)
	}
}

func TestEmitMakesTheQueue(t *testing.T) {
	db := memory.Open()
	s := db.Store()
	w := driver.Work{Finish: complete(acquire(t, s, "k")), Emit: []driver.Message{{Queue: "next", Body: []byte("x")}}}
	for range 2 {
		if _, err := s.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := db.Queue("next").Stats(t.Context()); err != nil || st.Visible != 1 {
		t.Errorf("queue next holds %+v, %v", st, err)
	}
}

func openTx(t *testing.T, s *memory.Store, raw string) (driver.Tx, *memory.Tx, driver.Hold) {
	t.Helper()
	tx, g, err := s.Begin(t.Context(), driver.Claim{Key: driver.Key{Raw: raw}, Nonce: driver.Nonce{1}, Lease: time.Minute})
	if err != nil || g[0].Verdict != driver.Acquired {
		t.Fatalf("begin: %v, %v", g, err)
	}
	var x *memory.Tx
	if !tx.As(&x) || tx.As(new(int)) || !s.OffersTx(&x) || s.OffersTx(x) {
		t.Fatal("As or OffersTx is wrong about its handle")
	}
	return tx, x, g[0].Hold
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTx: a transaction sees its own writes, others do not, and two inserts of one key end in ErrNotCommitted.
func TestTx(t *testing.T) {
	db := memory.Open()
	s := db.Store()
	tx1, x1, h1 := openTx(t, s, "one")
	tx2, x2, h2 := openTx(t, s, "two")
	must(t, x1.Insert("t", "k", "1"))
	must(t, x1.Put("t", "k", "1b"))
	must(t, x1.Append("log", "x"))
	if v, ok, err := x1.Get("t", "k"); v != "1b" || !ok || err != nil {
		t.Errorf("inside: %q, %v, %v", v, ok, err)
	}
	if err := x1.Insert("t", "k", "again"); !errors.Is(err, memory.ErrExists) {
		t.Errorf("insert of an own row: %v", err)
	}
	if _, ok, _ := x2.Get("t", "k"); ok {
		t.Error("another transaction sees it")
	}
	must(t, x2.Insert("t", "k", "2"))
	must(t, x2.Append("log", "y"))
	must(t, tx1.Commit(t.Context(), driver.Work{Finish: complete(h1)}))
	if err := tx2.Commit(t.Context(), driver.Work{Finish: complete(h2)}); !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("the second insert committed: %v", err)
	}
	if v, _ := db.Tables().Get("t", "k"); v != "1b" || db.Tables().Len("log") != 1 || db.Tables().Len("t") != 1 {
		t.Errorf("k is %q, log %v", v, db.Tables().Rows("log"))
	}
	if _, ok, _ := s.Record(t.Context(), h2.Key); ok {
		t.Error("a transaction that was not committed left its record")
	}
	if _, _, err := x2.Get("t", "k"); err == nil || x2.Put("t", "k", "late") == nil {
		t.Error("the handle works after the end")
	}
	g, err := s.Claim(t.Context(), driver.Claim{Key: h2.Key, Nonce: driver.Nonce{9}, Lease: time.Minute})
	if err != nil || g[0].Verdict != driver.Acquired || g[0].Hold.Token <= h2.Token {
		t.Errorf("afterwards the key returns %v with token %d after %d", g[0].Verdict, g[0].Hold.Token, h2.Token)
	}
}

// TestTxRefusals: an item that is refused takes the transaction back, with the rows of the handle.
func TestTxRefusals(t *testing.T) {
	db := memory.Open()
	s := db.Store()
	tx, x, h := openTx(t, s, "k")
	must(t, x.Append("log", "x"))
	bad := &memory.Effects{}
	bad.Append("log", "y")
	bad.Refuse(errors.New("no"))
	var item *driver.ItemError
	if err := tx.Commit(t.Context(), driver.Work{Finish: complete(h), Effects: bad}); !errors.As(err, &item) || item.Index != 0 {
		t.Errorf("commit: %v", err)
	}
	tx, _, h = openTx(t, s, "k") // it was rolled back: the key is free
	stranger := complete(h)
	stranger.Hold.Key.Raw = "not held"
	if err := tx.Commit(t.Context(), driver.Work{Finish: complete(h)}, driver.Work{Finish: stranger}); !errors.As(err, &item) || item.Index != 1 {
		t.Errorf("commit of a key that is not held: %v", err)
	}
	tx, _, h = openTx(t, s, "k")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tx.Commit(done, driver.Work{Finish: complete(h)}); !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("commit with a done context: %v", err)
	}
	if n := db.Tables().Len("log"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if rs, err := s.Records(t.Context(), driver.RecordFilter{}); err != nil || len(rs) != 0 {
		t.Errorf("records are left: %v, %v", rs, err)
	}
}

// TestSweepBesideClaims sweeps while others claim and finish: nothing that is not due goes, and sweeps take turns.
func TestSweepBesideClaims(t *testing.T) {
	s := memory.NewStore()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, _, err := s.Sweep(context.Background(), 0, 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 2000 {
		h := acquire(t, s, fmt.Sprint(i))
		f := complete(h)
		if i%2 == 0 {
			f.Keep = 0
		}
		if out, err := s.Finish(t.Context(), f); err != nil || out[0] != driver.Applied {
			t.Fatalf("finish %d: %v, %v", i, out, err)
		}
	}
	close(stop)
	wg.Wait()
	time.Sleep(time.Millisecond) // the last records may go
	for more := true; more; {
		_, m, err := s.Sweep(t.Context(), 0, 100)
		must(t, err)
		more = m
	}
	if rs, err := s.Records(t.Context(), driver.RecordFilter{}); err != nil || len(rs) != 1000 {
		t.Errorf("%d records are left (%v), wanted 1000", len(rs), err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Sweep(done, 0, 0); err == nil {
		t.Error("a sweep with a done context returned no error")
	}
}
