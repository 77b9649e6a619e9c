package semel_test

import (
	"context"
	"slices"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// weakQueue and weakStore say what is wrong with their server.
type weakQueue struct {
	*memory.Queue
	durable bool
	caveats []string
}

func (q weakQueue) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Durable, f.Caveats = q.durable, q.caveats
	return f
}

type weakStore struct {
	*memory.Store
	durable bool
	caveats []string
}

func (s weakStore) Features() driver.StoreFeatures {
	f := s.Store.Features()
	f.Durable, f.Caveats = s.durable, s.caveats
	return f
}

// The caveats of an adapter are part of the guarantee, once.
func TestGuaranteeNamesCaveats(t *testing.T) {
	const off = "synchronous_commit is off: the last commits before a crash can be lost"
	for _, x := range []struct {
		name     string
		durable  bool
		caveats  []string
		want, no []string
	}{
		{"sound", true, nil, nil,
			[]string{"records can be lost", "records are lost with the process: for development only"}},
		{"a caveat", true, []string{"the clock is coarse"}, []string{"the clock is coarse"}, []string{"records can be lost"}},
		{"not durable, and says why", false, []string{off}, []string{off, "records can be lost", "messages can be lost"},
			[]string{"records are lost with the process: for development only"}},
		{"not durable", false, nil,
			[]string{"records are lost with the process: for development only", "messages are lost with the process"}, nil},
	} {
		db := memory.Open()
		p, err := semel.Guarantee(semel.Config{
			Queue:   weakQueue{db.Queue("orders"), x.durable, x.caveats},
			Store:   weakStore{db.Store(), x.durable, x.caveats},
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		if p.Durable != x.durable {
			t.Errorf("%s: durable %v", x.name, p.Durable)
		}
		for _, w := range x.want {
			if n := count(p.Assumptions, w); n != 1 {
				t.Errorf("%s: %q stands %d times in %q", x.name, w, n, p.Assumptions)
			}
		}
		for _, w := range x.no {
			if slices.Contains(p.Assumptions, w) {
				t.Errorf("%s: %q stands in %q", x.name, w, p.Assumptions)
			}
		}
	}
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}
