package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// as finds an interface that a store is known to have.
func as[T any](s any) T {
	t, ok := driver.As[T](s)
	if !ok {
		panic(fmt.Sprintf("%T is no %T", s, new(T)))
	}
	return t
}

// sides tells which optional interfaces a store has.
func sides(s driver.Store) map[string]bool {
	has := map[string]bool{}
	_, has["Committer"] = driver.As[driver.Committer](s)
	_, has["Transactor"] = driver.As[driver.Transactor](s)
	_, has["StepStore"] = driver.As[driver.StepStore](s)
	_, has["RecordInspector"] = driver.As[driver.RecordInspector](s)
	_, has["RecordScanner"] = driver.As[driver.RecordScanner](s)
	_, has["Operator"] = driver.As[driver.Operator](s)
	_, has["AuditLog"] = driver.As[driver.AuditLog](s)
	_, has["Sweeper"] = driver.As[driver.Sweeper](s)
	_, has["Meter"] = driver.As[driver.Meter](s)
	_, has["DuplicateLog"] = driver.As[driver.DuplicateLog](s)
	return has
}

// paid is a store that is paid by use.
type paid struct{ driver.Store }

func (paid) Consumed() driver.Units { return driver.Units{Calls: 7} }

// TestOptionalInterfacesStay compares the interfaces of some stores with those of the caches before them.
func TestOptionalInterfacesStay(t *testing.T) {
	s := memory.Open().Store()
	for n, store := range []driver.Store{
		s,
		paid{s},
		struct{ driver.Store }{s},
		struct {
			driver.Store
			driver.Committer
		}{s, s},
		struct {
			driver.Store
			driver.Transactor
			driver.StepStore
		}{s, s, s},
		struct {
			driver.Store
			driver.Operator
			driver.AuditLog
		}{s, s, s},
		struct {
			driver.Store
			driver.RecordInspector
			driver.Sweeper
		}{s, s, s},
		cache.New(s, cache.Options{Size: 1}),
	} {
		behind := cache.New(store, cache.Options{Size: 1})
		if want, got := fmt.Sprint(sides(store)), fmt.Sprint(sides(behind)); want != got {
			t.Errorf("store %d has %v, its cache %v", n, want, got)
		}
		if _, ok := driver.As[driver.Cached](behind); !ok {
			t.Errorf("the cache of store %d is not Cached", n)
		}
	}
}

// TestSidesAreTheStores: what the cache does not decide comes from the store behind it.
func TestSidesAreTheStores(t *testing.T) {
	db := memory.Open()
	s := cache.New(db.Store(), cache.Options{Size: 1})
	c := as[driver.Committer](s)
	if !c.Joins(db.Queue("q")) || c.Joins(memory.NewQueue("q")) {
		t.Error("the cache joins other queues than its store")
	}
	if e := (*memory.Effects)(nil); !c.Offers(&e) || e == nil {
		t.Error("the cache offers no buffer of its store's")
	}
	if f := s.Features(); f.Name != "memory" || !f.Emits {
		t.Errorf("features %+v", f)
	}
	if u := as[driver.Meter](cache.New(paid{db.Store()}, cache.Options{Size: 1})).Consumed(); u.Calls != 7 {
		t.Errorf("consumed %+v", u)
	}
	if off := cache.New(db.Store(), cache.Options{}); off != driver.Store(db.Store()) {
		t.Error("a cache of size 0 is not the store itself")
	}
}

// judging is a store whose transactions classify errors.
type judging struct {
	driver.Store
	driver.Transactor
}

type judge struct{ driver.Tx }

func (judge) Transient(error) error { return driver.ErrBlocked }

func (s judging) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	tx, g, err := s.Transactor.Begin(ctx, c...)
	return judge{tx}, g, err
}

// TestTransactionsClassifyAsTheStores do, and no others.
func TestTransactionsClassifyAsTheStores(t *testing.T) {
	s := memory.Open().Store()
	for _, store := range []driver.Store{s, judging{s, s}} {
		_, want := store.(judging)
		tx, _, err := as[driver.Transactor](cache.New(store, cache.Options{Size: 1})).Begin(t.Context(),
			driver.Claim{Key: driver.Key{Raw: fmt.Sprint(want)}, Nonce: driver.Nonce{1}, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := driver.As[driver.TxClassifier](tx); ok != want || ok && !errors.Is(c.Transient(nil), driver.ErrBlocked) {
			t.Errorf("a transaction of %T is a TxClassifier: %v", store, ok)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
