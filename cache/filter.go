package cache

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// FilterOptions are the size of a [Filter] and how long it remembers.
type FilterOptions struct {
	// Keys is how many keys are added in one Span. More keys only make false positives more likely.
	Keys int
	// FalsePositives is the probability of "perhaps" for a key that was not added, from 0.000001 to 0.5. Defaults to 0.01.
	FalsePositives float64
	// Bytes limits the memory of all generations together. A limit that is too low for Keys makes false positives more
	// likely. Defaults to 64 MiB.
	Bytes int
	// Span is how long keys are added to one generation, and Generations is how many generations there are. A key is remembered
	// for at least Generations-1 spans, which must be as long as the memory behind the filter keeps it. They default to 24 hours
	// and 15: two weeks.
	Span        time.Duration
	Generations int
	// Now is the clock. Wall time, because a filter outlives its process. Defaults to time.Now.
	Now func() time.Time
}

// The defaults of [FilterOptions].
const (
	DefaultFalsePositives = 0.01
	DefaultFilterBytes    = 64 << 20
	DefaultSpan           = 24 * time.Hour
	DefaultGenerations    = 15
)

// Filter is a blocked Bloom filter in generations: all bits of a key are in one block of 64 bytes, which is one line of the
// processor's cache (Putze, Sanders, Singler: "Cache-, Hash- and Space-Efficient Bloom Filters", 2007). The oldest
// generation is dropped after each span. Its methods may be called concurrently and block only on each other.
//
// It is a hint: after "perhaps", and while the filter is not [Filter.Ready], read the memory behind it.
type Filter struct {
	o      FilterOptions
	blocks uint64 // of a generation
	probes int    // bits per key

	mu    sync.Mutex
	gens  []generation // the newest first
	ready bool
	stats FilterStats
}

// FilterStats counts what a filter did.
type FilterStats struct {
	Added int64
	// Certain counts results "certainly not added", and Perhaps the others. Wrong counts calls of [Filter.Wrong].
	Certain, Perhaps, Wrong int64
	// Bytes is the memory of the bits.
	Bytes int64
}

const blockWords = 8

type generation struct {
	from int64 // the number of its span since 1970
	bits []uint64
}

// NewFilter makes an empty filter. It is not ready: until it is filled ([Filter.Fill]) it reports "perhaps" for everything,
// because earlier processes may have added keys. An error names the option.
func NewFilter(o FilterOptions) (*Filter, error) {
	if o.FalsePositives == 0 {
		o.FalsePositives = DefaultFalsePositives
	}
	if o.Bytes == 0 {
		o.Bytes = DefaultFilterBytes
	}
	if o.Span == 0 {
		o.Span = DefaultSpan
	}
	if o.Generations == 0 {
		o.Generations = DefaultGenerations
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Keys < 1:
		return nil, fmt.Errorf("FilterOptions.Keys is %d: say how many keys are added in one span", o.Keys)
	case !(o.FalsePositives >= 1e-6 && o.FalsePositives <= 0.5):
		return nil, fmt.Errorf("FilterOptions.FalsePositives is %v: use 0.000001 to 0.5", o.FalsePositives)
	case o.Span < time.Second:
		return nil, fmt.Errorf("FilterOptions.Span is %v: use a second or more", o.Span)
	case o.Generations < 2 || o.Generations > 1000:
		return nil, fmt.Errorf("FilterOptions.Generations is %d: use 2 to 1000", o.Generations)
	case o.Bytes < o.Generations*blockWords*8:
		return nil, fmt.Errorf("FilterOptions.Bytes is %d: use %d or more", o.Bytes, o.Generations*blockWords*8)
	}
	f := &Filter{o: o}
	// A lookup reads all generations, so each gets its share of the false positives. Blocks fill unevenly, and a fifth more
	// bits compensates that.
	p := o.FalsePositives / float64(o.Generations)
	perKey := -math.Log(p) / (math.Ln2 * math.Ln2) * 1.2
	if p < 1e-3 {
		perKey *= 1.2 // for fewer false positives the fullest blocks matter more
	}
	f.probes = min(max(int(math.Round(-math.Log2(p))), 1), 16)
	f.blocks = uint64(math.Ceil(perKey*float64(o.Keys)/512)) + 1
	f.blocks = max(min(f.blocks, uint64(o.Bytes)/uint64(o.Generations*blockWords*8)), 1)
	f.gens = []generation{f.open(f.span())}
	return f, nil
}

func (f *Filter) open(from int64) generation {
	return generation{from: from, bits: make([]uint64, f.blocks*blockWords)}
}

// span returns the number of the current span.
func (f *Filter) span() int64 { return f.o.Now().UnixNano() / int64(f.o.Span) }

// Add adds a key by its hash (driver.Key.Hash). Add a key before you write it to the memory behind the filter. Otherwise the
// filter may deny a key that is already there.
func (f *Filter) Add(hash [32]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rotate()
	f.stats.Added++
	f.set(f.gens[0].bits, hash)
}

// MayHave reports whether a key may have been added. false means that it certainly was not, in the spans of the filter.
func (f *Filter) MayHave(hash [32]byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rotate()
	if !f.ready || slices.ContainsFunc(f.gens, func(g generation) bool { return f.has(g.bits, hash) }) {
		f.stats.Perhaps++
		return true
	}
	f.stats.Certain++
	return false
}

// Wrong counts a "perhaps" that the memory behind the filter did not confirm.
func (f *Filter) Wrong() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Wrong++
}

// Ready reports whether the filter covers all added keys: it was filled or read since it was made.
func (f *Filter) Ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready
}

// Stats returns what the filter did.
func (f *Filter) Stats() FilterStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Bytes = int64(len(f.gens)) * int64(f.blocks) * blockWords * 8
	return s
}

// Fill makes the filter ready by a scan: scan calls add with the hash of every key in the memory behind the filter, and the
// time when it was added. Keys that Add adds in the meantime remain. If scan fails, Fill returns its error and the filter does
// not become ready. The keys that were added so far are harmless.
func (f *Filter) Fill(scan func(add func(hash [32]byte, at time.Time)) error) error {
	err := scan(func(hash [32]byte, at time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rotate()
		f.stats.Added++
		f.set(f.at(at.UnixNano()/int64(f.o.Span)).bits, hash)
	})
	if err != nil {
		return fmt.Errorf("fill the filter: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = true
	return nil
}

// at returns the generation of a span. A key from before the oldest generation goes into the oldest, because the memory still
// has it. A span in the future (the clock stepped back) becomes the newest generation, so that no key is forgotten too early.
func (f *Filter) at(span int64) *generation {
	span = max(span, f.gens[0].from-int64(f.o.Generations)+1)
	i, found := slices.BinarySearchFunc(f.gens, span, func(g generation, span int64) int { return cmp.Compare(span, g.from) })
	if !found {
		f.insert(i, span)
	}
	return &f.gens[min(i, len(f.gens)-1)]
}

// insert opens a generation. If there are too many, the oldest is merged into the next one, which is kept for longer.
func (f *Filter) insert(i int, span int64) {
	f.gens = slices.Insert(f.gens, i, f.open(span))
	if n := len(f.gens); n > f.o.Generations {
		for j, w := range f.gens[n-1].bits {
			f.gens[n-2].bits[j] |= w
		}
		f.gens = f.gens[:n-1]
	}
}

// rotate opens the generation of the current span and drops those that are too old. If the clock steps back, keys go into the
// newest.
func (f *Filter) rotate() {
	now := f.span()
	if now <= f.gens[0].from {
		return
	}
	for n := len(f.gens); n > 0 && f.gens[n-1].from <= now-int64(f.o.Generations); n = len(f.gens) {
		f.gens = f.gens[:n-1]
	}
	f.insert(0, now)
}

// place returns where a key's bits are: its block, and the two numbers from which the bits in it are derived.
func (f *Filter) place(hash [32]byte) (block uint64, a, b uint32) {
	block, _ = bits.Mul64(binary.LittleEndian.Uint64(hash[:]), f.blocks)
	return block * blockWords, binary.LittleEndian.Uint32(hash[8:]), binary.LittleEndian.Uint32(hash[12:]) | 1
}

func (f *Filter) set(words []uint64, hash [32]byte) {
	block, a, b := f.place(hash)
	for i := range uint32(f.probes) {
		bit := mix(uint64(a)<<32|uint64(a+i*b)) & 511
		words[block+bit/64] |= 1 << (bit % 64)
	}
}

func (f *Filter) has(words []uint64, hash [32]byte) bool {
	block, a, b := f.place(hash)
	for i := range uint32(f.probes) {
		bit := mix(uint64(a)<<32|uint64(a+i*b)) & 511
		if words[block+bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// mix spreads the bits of a number (the finalizer of SplitMix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
