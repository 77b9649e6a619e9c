package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/semel-dev/semel/driver"
)

func key(i int) driver.Key { return driver.Key{Consumer: "c", Raw: fmt.Sprint(i)} }

// TestLeastRecentlyUsedGoes: what was used last stays.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	l := newLRU(3, 1<<20)
	for i := range 3 {
		l.put(key(i), &entry{key: key(i)}, 1)
	}
	l.used(l.nodes[key(0)])
	l.put(key(3), &entry{key: key(3)}, 1)
	l.put(key(2), &entry{key: key(2)}, 1)
	l.put(key(4), &entry{key: key(4)}, 1)
	for i, want := range []bool{false, false, true, true, true} {
		if _, kept := l.nodes[key(i)]; kept != want {
			t.Errorf("key %d is kept: %v, want %v", i, kept, want)
		}
	}
}

// TestBounds: entries and bytes never pass their bounds, the rings and the map agree, and nothing too large is kept.
func TestBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, size := range []int{1, 2, 3, 10, 200} {
		most := int64(size) * 50
		l := newLRU(size, most)
		for range 5000 {
			k := key(r.IntN(3 * size))
			switch n := l.nodes[k]; {
			case n != nil && r.IntN(4) == 0:
				l.remove(n)
			case n != nil && r.IntN(2) == 0:
				l.used(n)
			default:
				l.put(k, &entry{key: k}, int64(1+r.IntN(100)))
			}
			bytes := int64(0)
			for _, n := range l.nodes {
				bytes += n.cost
			}
			if n := len(l.nodes); n != l.order.Len() || n > size || bytes != l.bytes || bytes > most {
				t.Fatalf("size %d: %d entries, %d in order, %d bytes, %d counted, at most %d", size, n, l.order.Len(), bytes, l.bytes, most)
			}
		}
		before := len(l.nodes)
		l.put(key(-1), &entry{key: key(-1)}, most+1)
		if l.nodes[key(-1)] != nil || len(l.nodes) < before-1 {
			t.Errorf("size %d: an entry larger than the bound is kept, or took others with it", size)
		}
	}
}

// TestRunsAreBounded: attempts whose end is not reported are forgotten in time, and ended ones are not kept.
func TestRunsAreBounded(t *testing.T) {
	c := &cache{runs: map[driver.Key]run{}, mostRuns: 10}
	for i := range 1000 {
		c.remember(key(i), run{grant: driver.Grant{Hold: driver.Hold{Token: uint64(i + 1)}}})
		if i%3 != 0 {
			delete(c.runs, key(i))
		}
		if len(c.runs) > 10 || len(c.order) > 11 {
			t.Fatalf("%d runs, %d in order", len(c.runs), len(c.order))
		}
	}
	if c.runs[key(999)].grant.Hold.Token != 1000 {
		t.Error("the latest run is not known")
	}
}
