package sqslocal

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Fault says how often something goes wrong. The zero Fault is off.
type Fault struct {
	// Rate is a chance from 0 to 1.
	Rate float64 `json:"rate,omitempty"`
	// Next is how many of the next chances certainly hit, whatever the rate.
	Next int `json:"next,omitempty"`
	// Operations limits it to some ("DeleteMessage"). Empty = all that it can hit.
	Operations []string `json:"operations,omitempty"`
	// By is the time of a delay and of a visibility that ends late (default: 1s, 30s) or early (default: at once).
	By config.Duration `json:"by,omitzero"`
}

// The names of faults.
const (
	Duplicate     = "duplicate"
	DroppedDelete = "dropped-delete"
	StaleHandle   = "stale-handle"
	EarlyVisible  = "early-visible"
	LateVisible   = "late-visible"
	Disorder      = "disorder"
	LostResponse  = "lost-response"
	Torn          = "torn"
	Cut           = "cut"
	Throttle      = "throttle"
	Unavailable   = "unavailable"
	Internal      = "internal"
	Partial       = "partial"
	Delay         = "delay"
)

var (
	receives = []string{"ReceiveMessage"}
	deletes  = []string{"DeleteMessage", "DeleteMessageBatch"}
	settles  = append([]string{"ChangeMessageVisibility", "ChangeMessageVisibilityBatch"}, deletes...)
	batches  = []string{"SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"}
)

// kinds are the faults with the operations that they hit (nil = every one) and the default of By.
var kinds = map[string]struct {
	operations []string
	by         time.Duration
	timed      bool
}{
	Duplicate:     {operations: receives},
	DroppedDelete: {operations: deletes},
	StaleHandle:   {operations: settles},
	EarlyVisible:  {operations: receives, timed: true},
	LateVisible:   {operations: receives, by: 30 * time.Second, timed: true},
	Disorder:      {operations: receives},
	Partial:       {operations: batches},
	Delay:         {by: time.Second, timed: true},
	LostResponse:  {},
	Torn:          {},
	Cut:           {},
	Throttle:      {},
	Unavailable:   {},
	Internal:      {},
}

// Names are the names of all faults, sorted.
func Names() []string { return slices.Sorted(maps.Keys(kinds)) }

// check refuses what no fault can be.
func (f Fault) check(name string) error {
	k, ok := kinds[name]
	if !ok {
		return output.Usage("fault %q is unknown", name).WithHint("known: %s", strings.Join(Names(), ", "))
	}
	if !(f.Rate >= 0 && f.Rate <= 1) { // so that NaN is none
		return output.Usage("fault %s: rate %v is no chance", name, f.Rate).WithHint("%s=0.2, from 0 to 1", name)
	}
	if f.Next < 0 || f.Next > 1_000_000 {
		return output.Usage("fault %s: next %d is out of range", name, f.Next).WithHint("%s=next:3, up to 1000000", name)
	}
	if f.By != 0 && !k.timed {
		return output.Usage("fault %s takes no time", name).WithHint("by=… is for %s, %s and %s", Delay, EarlyVisible, LateVisible)
	}
	if f.By < 0 || time.Duration(f.By) > 12*time.Hour {
		return output.Usage("fault %s: by %s is out of range", name, f.By).WithHint("up to 12h")
	}
	for _, op := range f.Operations {
		if k.operations != nil && !slices.Contains(k.operations, op) {
			return output.Usage("fault %s cannot hit %q", name, op).WithHint("it hits %s", strings.Join(k.operations, ", "))
		}
		if !slices.Contains(operations, op) {
			return output.Usage("fault %s: operation %q is unknown", name, op).WithHint("known: %s", strings.Join(operations, ", "))
		}
	}
	return nil
}

// Faults decides what goes wrong. Which chances of a fault hit depends on the seed, the fault and how many chances it had
// before, and on nothing else. Its methods may be called concurrently.
type Faults struct {
	mu     sync.Mutex
	seed   uint64
	set    map[string]Fault
	counts map[string]*Count
}

// Count is how often a fault could have hit since it was set for the first time, and did.
type Count struct {
	Chances int `json:"chances"`
	Hits    int `json:"hits"`
}

// NewFaults makes a Faults that does nothing yet.
func NewFaults(seed uint64) *Faults {
	return &Faults{seed: seed, set: map[string]Fault{}, counts: map[string]*Count{}}
}

// Change is what a request changes: the seed, which counts anew, and faults by their names; one that is off is taken away.
type Change struct {
	Seed   *uint64          `json:"seed,omitempty"`
	Faults map[string]Fault `json:"faults"`
}

// Apply makes a change, or none of it.
func (f *Faults) Apply(c Change) error {
	for _, name := range slices.Sorted(maps.Keys(c.Faults)) {
		if err := c.Faults[name].check(name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Seed != nil {
		f.seed = *c.Seed
		clear(f.counts)
	}
	for name, x := range c.Faults {
		if x.Rate == 0 && x.Next == 0 {
			delete(f.set, name)
			continue
		}
		f.set[name] = x
	}
	return nil
}

// Clear takes all faults away. The counts stay.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.set)
}

// State is what is set and what came of it.
type State struct {
	Seed   uint64           `json:"seed"`
	Faults map[string]Fault `json:"faults"`
	Counts map[string]Count `json:"counts"`
}

// State tells what is set now.
func (f *Faults) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := State{Seed: f.seed, Faults: maps.Clone(f.set), Counts: map[string]Count{}}
	for name, c := range f.counts {
		s.Counts[name] = *c
	}
	return s
}

// hit is a fault that strikes now.
type hit struct {
	by     time.Duration
	random *rand.Rand
}

// any reports whether anything is set.
func (f *Faults) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.set) > 0
}

// draw decides whether a fault hits this chance of an operation; nil when not.
func (f *Faults) draw(name, operation string) *hit {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, ok := f.set[name]
	if !ok || len(x.Operations) > 0 && !slices.Contains(x.Operations, operation) {
		return nil
	}
	if k := kinds[name]; k.operations != nil && !slices.Contains(k.operations, operation) {
		return nil
	}
	c := f.counts[name]
	if c == nil {
		c = &Count{}
		f.counts[name] = c
	}
	c.Chances++
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	r := rand.New(rand.NewPCG(f.seed^h.Sum64(), uint64(c.Chances)))
	struck := r.Float64() < x.Rate
	if x.Next > 0 {
		x.Next--
		struck = true
		if f.set[name] = x; x.Next == 0 && x.Rate == 0 {
			delete(f.set, name)
		}
	}
	if !struck {
		return nil
	}
	c.Hits++
	by := time.Duration(x.By)
	if by == 0 {
		by = kinds[name].by
	}
	return &hit{by: by, random: r}
}
