package cache_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/cache"
)

func hash(i int) [32]byte { return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i))) }

func newFilter(t testing.TB, o cache.FilterOptions) *cache.Filter {
	t.Helper()
	f, err := cache.NewFilter(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ready(t testing.TB, f *cache.Filter) *cache.Filter {
	t.Helper()
	if err := f.Fill(func(func([32]byte, time.Time)) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return f
}

// wall is a clock that the test moves.
type wall struct{ at time.Time }

func (w *wall) now() time.Time { return w.at }

func newWall() *wall { return &wall{time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)} }

// TestFilterRate fills all generations: no key is forgotten, and strangers are taken for known about as seldom as asked for.
func TestFilterRate(t *testing.T) {
	for _, o := range []cache.FilterOptions{
		{Keys: 3000, FalsePositives: 0.01, Generations: 4},
		{Keys: 3000, FalsePositives: 0.001, Generations: 2},
		{Keys: 3000, FalsePositives: 0.2, Generations: 2},
	} {
		w := newWall()
		o.Now, o.Span = w.now, time.Hour
		f := ready(t, newFilter(t, o))
		n := 0
		for range o.Generations {
			for range o.Keys {
				f.Add(hash(n))
				n++
			}
			w.at = w.at.Add(o.Span)
		}
		w.at = w.at.Add(-o.Span)
		for i := range n {
			if !f.MayHave(hash(i)) {
				t.Fatalf("%+v: key %d was added and is called certainly unknown", o, i)
			}
		}
		const strangers = 50_000
		wrong := 0
		for i := range strangers {
			if f.MayHave(hash(1_000_000 + i)) {
				wrong++
			}
		}
		rate := float64(wrong) / strangers
		t.Logf("asked for %v: %v, %d bits a key", o.FalsePositives, rate, f.Stats().Bytes*8/int64(n))
		if rate > 1.25*o.FalsePositives || wrong == 0 {
			t.Errorf("asked for %v false positives, got %v", o.FalsePositives, rate)
		}
	}
}

// TestFilterForgets: keys are remembered for all spans but one at least, and forgotten soon after; memory stays bounded.
func TestFilterForgets(t *testing.T) {
	w := newWall()
	f := ready(t, newFilter(t, cache.FilterOptions{Keys: 100, Span: time.Hour, Generations: 3, Now: w.now, Bytes: 3000}))
	f.Add(hash(1))
	w.at = w.at.Add(3*time.Hour - time.Second)
	if !f.MayHave(hash(1)) {
		t.Error("forgotten within its spans")
	}
	w.at = w.at.Add(time.Hour)
	if f.MayHave(hash(1)) {
		t.Error("still there after its spans")
	}
	for i := range 50 {
		f.Add(hash(i))
		w.at = w.at.Add(30 * time.Minute)
		if got := f.Stats().Bytes; got > 3000 {
			t.Fatalf("%d bytes after %d half hours", got, i)
		}
	}
}

// TestFilterClockBack: a clock that steps back, and keys from what is then the future, make nothing be forgotten early.
func TestFilterClockBack(t *testing.T) {
	w := newWall()
	f := newFilter(t, cache.FilterOptions{Keys: 100, Span: time.Hour, Generations: 3, Now: w.now})
	f.Add(hash(1))
	w.at = w.at.Add(-100 * time.Hour)
	f.Add(hash(2))
	if err := f.Fill(func(add func([32]byte, time.Time)) error {
		for i := range 10 {
			add(hash(10+i), w.at.Add(time.Duration(i-5)*50*time.Hour))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{1, 2, 10, 15, 19} {
		if !f.MayHave(hash(i)) {
			t.Errorf("key %d is called certainly unknown", i)
		}
	}
	w.at = w.at.Add(102 * time.Hour)
	if !f.MayHave(hash(2)) {
		t.Error("what was added while the clock was behind is forgotten early")
	}
}

// TestFilterFill: a scan that fails leaves the filter unready.
func TestFilterFill(t *testing.T) {
	f := newFilter(t, cache.FilterOptions{Keys: 10})
	if f.Ready() || !f.MayHave(hash(1)) {
		t.Error("an empty filter is certain, although nobody filled it")
	}
	broken := errors.New("disk gone")
	scan := func(add func([32]byte, time.Time)) error { add(hash(1), time.Now()); return broken }
	if err := f.Fill(scan); !errors.Is(err, broken) {
		t.Errorf("a failed scan returned %v", err)
	}
	if f.Ready() || !f.MayHave(hash(2)) {
		t.Error("certain after a scan that failed")
	}
	ready(t, f)
	if !f.MayHave(hash(1)) || f.MayHave(hash(2)) {
		t.Error("after the scan the filter knows something else than was scanned")
	}
}

func TestFilterOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]cache.FilterOptions{
		"Keys":           {},
		"FalsePositives": {Keys: 1, FalsePositives: 0.9},
		"Span":           {Keys: 1, Span: 1},
		"Generations":    {Keys: 1, Generations: 1},
		"Bytes":          {Keys: 1, Bytes: 100},
	} {
		if _, err := cache.NewFilter(o); err == nil || !strings.Contains(err.Error(), "FilterOptions."+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// tier is a second memory of keys: reads of it are what a filter saves.
type tier struct {
	filter *cache.Filter
	keys   map[[32]byte]bool
	reads  int
}

func (m *tier) add(k [32]byte) {
	m.filter.Add(k)
	m.keys[k] = true
}

func (m *tier) has(k [32]byte) bool {
	if !m.filter.MayHave(k) {
		return false
	}
	m.reads++
	if !m.keys[k] {
		m.filter.Wrong()
	}
	return m.keys[k]
}

// TestFilterIsAHint runs one workload with filters that are honest, that lie (100 % false positives: one bit for
// everything), and that were lost on the way: every result is the same, and only the reads differ (S1-07).
func TestFilterIsAHint(t *testing.T) {
	o := cache.FilterOptions{Keys: 2000}
	run := func(f *cache.Filter, lostAt int) (results []bool, reads int) {
		m := &tier{filter: f, keys: map[[32]byte]bool{}}
		for i := range 4000 {
			if i == lostAt {
				m.filter = newFilter(t, o) // a new process found no file
			}
			k := hash(i * 7919 % 2500) // 1500 of them twice
			results = append(results, m.has(k))
			m.add(k)
		}
		return results, m.reads
	}
	lying := newFilter(t, cache.FilterOptions{Keys: 2000, Generations: 2, Bytes: 128})
	for i := range 4000 {
		lying.Add(hash(-1 - i))
	}
	want, honest := run(ready(t, newFilter(t, o)), -1)
	duplicates := 0
	for _, dup := range want {
		if dup {
			duplicates++
		}
	}
	if duplicates != 1500 || honest > 1500+50 {
		t.Errorf("honest: %d duplicates, %d reads for 2500 new keys and 1500 old ones", duplicates, honest)
	}
	for name, f := range map[string]func() ([]bool, int){
		"lying": func() ([]bool, int) { return run(ready(t, lying), -1) },
		"lost":  func() ([]bool, int) { return run(ready(t, newFilter(t, o)), 2000) },
	} {
		got, reads := f()
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: result %d is %v, and with an honest filter %v", name, i, got[i], want[i])
			}
		}
		t.Logf("%s: %d reads, honest %d", name, reads, honest)
		if name == "lying" && reads != 4000 {
			t.Errorf("lying: %d of 4000 were read: it does not lie enough", reads)
		}
	}
}

// TestFilterConcurrently: whoever added a key finds it, while others add, fill and rotate.
func TestFilterConcurrently(t *testing.T) {
	f := ready(t, newFilter(t, cache.FilterOptions{Keys: 1000}))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				k := hash(g*1000 + i)
				f.Add(k)
				if !f.MayHave(k) {
					t.Errorf("key %d of %d is not there", i, g)
				}
				if i%100 == 0 {
					ready(t, f)
				}
			}
		})
	}
	wg.Wait()
}
