package front_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/front"
	"github.com/semel-dev/semel/memory"
)

// sides tells which optional interfaces a store has.
func sides(s driver.Store) map[string]bool {
	has := map[string]bool{}
	_, has["Committer"] = s.(driver.Committer)
	_, has["Transactor"] = s.(driver.Transactor)
	_, has["StepStore"] = s.(driver.StepStore)
	_, has["RecordInspector"] = s.(driver.RecordInspector)
	_, has["RecordScanner"] = s.(driver.RecordScanner)
	_, has["Operator"] = s.(driver.Operator)
	_, has["AuditLog"] = s.(driver.AuditLog)
	return has
}

// TestOptionalInterfacesStay compares them for every combination that a front knows, and some stores.
func TestOptionalInterfacesStay(t *testing.T) {
	s := memory.Open().Store()
	type (
		plain interface{ driver.Store }
		j     interface {
			Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error)
			WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error)
		}
		i = driver.RecordInspector
		o = driver.Operator
		a = driver.AuditLog
		r = driver.RecordScanner
	)
	commits := driver.Committer(s)
	for n, store := range []driver.Store{
		s,
		struct{ plain }{s},
		struct{ driver.Committer }{s},
		struct{ driver.Transactor }{s},
		struct {
			plain
			j
		}{s, s},
		struct {
			driver.Committer
			j
			i
			o
			a
		}{s, s, s, s, s},
		struct {
			driver.Committer
			j
			r
			i
			o
			a
		}{commits, s, s, s, s, s},
		struct {
			plain
			i
		}{s, s},
		struct {
			plain
			i
			r
		}{s, s, s},
		struct {
			plain
			o
		}{s, s},
		struct {
			plain
			i
			o
		}{s, s, s},
		struct {
			plain
			r
			i
			o
		}{s, s, s, s},
		struct {
			driver.Transactor
			o
			a
		}{s, s, s},
		struct {
			driver.Transactor
			j
			i
			o
			a
		}{s, s, s, s, s},
		struct {
			driver.Committer
			i
			r
			o
			a
		}{s, s, s, s, s},
	} {
		want, got := sides(store), sides(front.New(store, front.Options{Size: 1}))
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("store %d has %v, its front %v", n, want, got)
		}
	}
}

// paid is a store that is paid by use.
type paid struct{ driver.Store }

func (paid) Consumed() driver.Units { return driver.Units{Calls: 7} }

// TestSidesAreTheStores: what the front does not decide comes from the store behind it.
func TestSidesAreTheStores(t *testing.T) {
	db := memory.Open()
	s := front.New(db.Store(), front.Options{Size: 1})
	c := s.(driver.Committer)
	if !c.Joins(db.Queue("q")) || c.Joins(memory.NewQueue("q")) {
		t.Error("the front joins other queues than its store")
	}
	if e := (*memory.Effects)(nil); !c.Offers(&e) || e == nil {
		t.Error("the front offers no buffer of its store's")
	}
	if f := s.Features(); f.Name != "memory" || !f.Emits {
		t.Errorf("features %+v", f)
	}
	if u := front.New(paid{db.Store()}, front.Options{Size: 1}).(driver.Meter).Consumed(); u.Calls != 7 {
		t.Errorf("consumed %+v", u)
	}
	if u := s.(driver.Meter).Consumed(); u != (driver.Units{}) {
		t.Errorf("a store that is not paid by use consumed %+v", u)
	}
	if w, more, err := front.New(struct{ driver.Store }{db.Store()}, front.Options{Size: 1}).(driver.Sweeper).
		Sweep(t.Context(), time.Hour, 0); w != (driver.Swept{}) || more || err != nil {
		t.Errorf("sweep of a store that has none: %+v, %v, %v", w, more, err)
	}
	if off := front.New(db.Store(), front.Options{}); off != driver.Store(db.Store()) {
		t.Error("a front of size 0 is not the store itself")
	}
}
