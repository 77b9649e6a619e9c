package front

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/semel-dev/semel/driver"
)

func key(i int) driver.Key { return driver.Key{Consumer: "c", Raw: fmt.Sprint(i)} }

// lru counts the hits of a plain least-recently-used cache.
type lru struct {
	size  int
	order *list.List
	at    map[int]*list.Element
}

func (l *lru) hit(k int) bool {
	if e := l.at[k]; e != nil {
		l.order.MoveToFront(e)
		return true
	}
	l.at[k] = l.order.PushFront(k)
	if l.order.Len() > l.size {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.at, last.Value.(int))
	}
	return false
}

func hitPolicy(p *policy, k int) bool {
	h := hashKey(key(k), 1)
	if n := p.get(key(k), h); n != nil {
		p.used(n)
		return true
	}
	p.put(key(k), h, &entry{key: key(k)}, 1)
	return false
}

// TestAdmissionBeatsLRU compares hits on traces with a fixed seed. On keys of which few are popular W-TinyLFU has to have
// many more than LRU; a scan of keys that come once in between must not cost the popular ones their places; and where
// every duplicate follows soon and never again, it must not be much worse.
func TestAdmissionBeatsLRU(t *testing.T) {
	const size, n = 500, 100_000
	r := rand.New(rand.NewPCG(7, 7))
	zipf := rand.NewZipf(r, 1.01, 1, 50_000)
	for _, trace := range []struct {
		name  string
		next  func(i int) int
		least float64 // of LRU's hits
	}{
		{"zipf", func(int) int { return int(zipf.Uint64()) }, 1.15},
		{"zipf and a scan", func(i int) int {
			if i%2 == 0 {
				return 1_000_000 + i
			}
			return int(zipf.Uint64())
		}, 1.25},
		{"soon and never again", func(i int) int { return 1_000_000 + i/2 }, 0.99},
	} {
		p := newPolicy(size, 1<<40)
		l := &lru{size: size, order: list.New(), at: map[int]*list.Element{}}
		ours, theirs := 0, 0
		for i := range n {
			k := trace.next(i)
			if hitPolicy(p, k) {
				ours++
			}
			if l.hit(k) {
				theirs++
			}
			if len(p.nodes) > size {
				t.Fatalf("%d entries of %d", len(p.nodes), size)
			}
		}
		t.Logf("%s: %d hits of %d, LRU %d (%.2f×)", trace.name, ours, n, theirs, float64(ours)/float64(theirs))
		if float64(ours) < trace.least*float64(theirs) {
			t.Errorf("%s: %d hits, LRU has %d: wanted %v times as many", trace.name, ours, theirs, trace.least)
		}
	}
}

// TestBounds: entries and bytes never pass their bounds, the rings and the map agree, and nothing too large is kept.
func TestBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, size := range []int{1, 2, 3, 10, 200} {
		most := int64(size) * 50
		p := newPolicy(size, most)
		for range 5000 {
			k := key(r.IntN(3 * size))
			h := hashKey(k, 1)
			switch n := p.get(k, h); {
			case n != nil && r.IntN(4) == 0:
				p.remove(n)
			case n != nil && r.IntN(2) == 0:
				p.used(n)
			default:
				p.put(k, h, &entry{key: k}, int64(1+r.IntN(100)))
			}
			count, bytes := 0, int64(0)
			for s := range p.root {
				of := 0
				for n := p.root[s].next; n != &p.root[s]; n = n.next {
					if p.nodes[n.key] != n || int(n.seg) != s {
						t.Fatalf("size %d: %v is in a ring that is not its own", size, n.key)
					}
					of++
					bytes += n.cost
				}
				if of != p.n[s] {
					t.Fatalf("size %d: segment %d counts %d and has %d", size, s, p.n[s], of)
				}
				count += of
			}
			if count != len(p.nodes) || count > size || bytes != p.bytes || bytes > most {
				t.Fatalf("size %d: %d entries, %d in the map, %d bytes, %d counted, at most %d",
					size, count, len(p.nodes), bytes, p.bytes, most)
			}
		}
		p.put(key(-1), 1, &entry{key: key(-1)}, most+1)
		if p.nodes[key(-1)] != nil {
			t.Errorf("size %d: an entry larger than all the room is kept", size)
		}
	}
}

// TestRunsAreBounded: attempts whose end nobody told are forgotten in time, those that end are not kept.
func TestRunsAreBounded(t *testing.T) {
	c := &cache{runs: map[driver.Key]run{}, mostRuns: 10}
	for i := range 1000 {
		c.note(key(i), run{grant: driver.Grant{Hold: driver.Hold{Token: uint64(i + 1)}}})
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
