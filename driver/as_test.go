package driver_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// fakeStore has the interfaces that tests look for.
type fakeStore struct{ driver.Store }

func (*fakeStore) Consumed() driver.Units { return driver.Units{Calls: 1} }

func (*fakeStore) Sweep(context.Context, time.Duration, int, ...string) (driver.Swept, bool, error) {
	return driver.Swept{Purged: 1}, false, nil
}

func (*fakeStore) AddDuplicates(context.Context, ...driver.Duplicate) error { return nil }

func (*fakeStore) Duplicates(context.Context, driver.Key) (int64, []driver.Duplicate, error) {
	return 1, nil, nil
}

// wrap is a wrapper that overrides nothing.
type wrap struct {
	driver.Store
	passes, adds []driver.Interface
}

func (w wrap) Unwrap() any                { return w.Store }
func (w wrap) Passes() []driver.Interface { return w.passes }
func (w wrap) Adds() []driver.Interface   { return w.adds }

// sweeps overrides Sweep, and has a Cached of its own.
type sweeps struct{ wrap }

func (sweeps) Sweep(context.Context, time.Duration, int, ...string) (driver.Swept, bool, error) {
	return driver.Swept{Purged: 2}, false, nil
}

func (sweeps) CacheStats() driver.CacheStats { return driver.CacheStats{Size: 2} }

// purged tells whose Sweep As finds; 0 = none.
func purged(t *testing.T, s any) int {
	t.Helper()
	sw, ok := driver.As[driver.Sweeper](s)
	if !ok {
		return 0
	}
	n, _, err := sw.Sweep(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n.Purged
}

func TestAs(t *testing.T) {
	inner, none := &fakeStore{}, struct{ driver.Store }{}
	sweeper := []driver.Interface{driver.InterfaceOf[driver.Sweeper]()}
	for _, c := range []struct {
		what string
		s    any
		want int // 1: the inner store's, 2: the wrapper's
	}{
		{"no store", nil, 0},
		{"a store without", none, 0},
		{"a store with", inner, 1},
		{"hidden by a wrapper", wrap{Store: inner}, 0},
		{"passed by a wrapper", wrap{Store: inner, passes: sweeper}, 1},
		{"passed by two wrappers", wrap{Store: wrap{Store: inner, passes: sweeper}, passes: sweeper}, 1},
		{"hidden by the inner one of two", wrap{Store: wrap{Store: inner}, passes: sweeper}, 0},
		{"hidden by the outer one of two", wrap{Store: wrap{Store: inner, passes: sweeper}}, 0},
		{"passed, and not there", wrap{Store: none, passes: sweeper}, 0},
		{"overridden", sweeps{wrap{Store: inner}}, 2},
		{"overridden, and not there", sweeps{wrap{Store: none}}, 0},
		{"overridden, and hidden further inside", sweeps{wrap{Store: wrap{Store: inner}}}, 0},
		{"overridden, and passed further inside", sweeps{wrap{Store: wrap{Store: inner, passes: sweeper}}}, 2},
		{"added", sweeps{wrap{Store: none, adds: sweeper}}, 2},
		{"said to be added, and not implemented", wrap{Store: inner, adds: sweeper}, 0},
		{"a wrapper of nothing", wrap{passes: sweeper}, 0},
	} {
		if got := purged(t, c.s); got != c.want {
			t.Errorf("%s: found %d, wanted %d", c.what, got, c.want)
		}
	}
}

// TestAsReadsThrough: what only reads is found behind a wrapper that says nothing of it, and no other interface is.
func TestAsReadsThrough(t *testing.T) {
	s := wrap{Store: wrap{Store: &fakeStore{}}}
	if m, ok := driver.As[driver.Meter](s); !ok || m.Consumed().Calls != 1 {
		t.Error("the store's meter is not found")
	}
	if _, ok := driver.As[driver.DuplicateLog](s); ok {
		t.Error("the store's duplicate log is found: writes to it get past the wrapper")
	}
	if _, ok := driver.As[driver.Cached](s); ok {
		t.Error("found an interface that nothing has")
	}
	if _, ok := driver.As[*fakeStore](s); ok {
		t.Error("found the store itself: all its methods get past the wrapper")
	}
	if _, ok := driver.As[driver.Cached](sweeps{wrap{Store: &fakeStore{}}}); ok {
		t.Error("a wrapper has an interface by itself, and does not say that it adds it")
	}
}

// TestReadOnlyInterfacesOnly: a new interface of the package passes no wrapper. Who adds one decides here whether it writes.
func TestReadOnlyInterfacesOnly(t *testing.T) {
	decides := "Adder Committer DeadLetterKeeper DeadLetterStore DuplicateLog DeadLetterQueue LongTerm Operator Passer Purger Queue RefusalLog Sender WorkerLog " +
		"Settler StepStore Store Sweeper Transactor Tx Wrapper"
	reads := "AuditLog Cached CaseLister DeadLetterGrouper DeadLetterPager Historian Meter QueueCounter QueueInspector RecordInspector RecordScanner TxClassifier"
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var interfaces, listed []string
	note := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if _, ok := n.Type.(*ast.InterfaceType); ok && n.Name.IsExported() {
				interfaces = append(interfaces, n.Name.Name)
			}
		case *ast.ValueSpec:
			if n.Names[0].Name == "readOnly" {
				ast.Inspect(n, func(n ast.Node) bool {
					if i, ok := n.(*ast.IndexExpr); ok {
						listed = append(listed, i.Index.(*ast.Ident).Name)
					}
					return true
				})
			}
		}
		return true
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, note)
	}
	slices.Sort(interfaces)
	slices.Sort(listed)
	known := slices.Sorted(maps.Keys(set(strings.Fields(decides + " " + reads))))
	if !slices.Equal(interfaces, known) {
		t.Errorf("the package has the interfaces\n%q, this test knows\n%q:\nadd the new one to decides, or to reads and to readOnly", interfaces, known)
	}
	if !slices.Equal(listed, strings.Fields(reads)) {
		t.Errorf("readOnly has %q, wanted %q", listed, strings.Fields(reads))
	}
}

func set(names []string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// wrapQueue is a wrapper of a queue.
type wrapQueue struct {
	driver.Queue
	passes []driver.Interface
}

func (w wrapQueue) Unwrap() any                { return w.Queue }
func (w wrapQueue) Passes() []driver.Interface { return w.passes }

type fakeQueue struct{ driver.Queue }

func (*fakeQueue) DeadLetterQueue() driver.DeadLetterQueue { return nil }

func TestSettles(t *testing.T) {
	inner := &fakeQueue{}
	settler := []driver.Interface{driver.InterfaceOf[driver.Settler]()}
	for _, c := range []struct {
		what string
		q    driver.Queue
		want bool
	}{
		{"the queue itself", inner, true},
		{"behind a wrapper that settles", wrapQueue{Queue: inner}, false},
		{"behind one that does not", wrapQueue{inner, settler}, true},
		{"behind two", wrapQueue{wrapQueue{inner, settler}, settler}, true},
		{"behind two, of which one settles", wrapQueue{wrapQueue{Queue: inner}, settler}, false},
		{"another queue", struct{ driver.Queue }{inner}, false},
		{"no queue", nil, false},
	} {
		if got, ok := driver.Settles[*fakeQueue](c.q); ok != c.want || ok && got != inner {
			t.Errorf("%s: %v, %v", c.what, got, ok)
		}
	}
	if _, ok := driver.DeadLettersOf(inner); ok {
		t.Error("a keeper without dead letters has a box")
	}
}

// BenchmarkAs shows what a look costs: it is made for construction, not for each message.
func BenchmarkAs(b *testing.B) {
	s := any(wrap{Store: &fakeStore{}, passes: []driver.Interface{driver.InterfaceOf[driver.Sweeper]()}})
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := driver.As[driver.Sweeper](s); !ok {
			b.Fatal("not found")
		}
	}
}
