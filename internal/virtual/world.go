package virtual

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Epoch is the date at which every simulation begins.
var Epoch = time.Unix(1_700_000_000, 0)

// Schedule is all that the history of a simulation depends on.
type Schedule struct {
	Seed      uint64
	Mistake   int  // planted, by its number in [Kind.Mistakes]; 0 = none
	Faultless bool // no fault is drawn at random
	// At is the operation at which Fault, a number in [Kind.Faults], is planted; -1 = none.
	At, Fault int
}

// Random returns the schedule of a seed with random faults alone.
func Random(seed uint64) Schedule { return Schedule{Seed: seed, At: -1} }

// World is what every simulation has. A simulator embeds it, and adds its model and its invariants.
type World struct {
	Schedule
	*rand.Rand
	// Now is the virtual time since Epoch. Only the simulator moves it.
	Now time.Duration
	// Operations counts the boundaries at which a fault can be planted.
	Operations int
	// Broken is the first invariant that was violated, or nil.
	Broken *Violation
	// Trace is nil unless the history is wanted. Hot paths check it before they call Log, whose arguments cost memory.
	Trace *Trace

	source *rand.PCG
}

// Begin makes the world ready for a schedule, whatever it simulated before. Simulators with different salts draw different
// numbers from one seed.
func (w *World) Begin(s Schedule, salt uint64, t *Trace) {
	if w.source == nil {
		w.source = new(rand.PCG)
		w.Rand = rand.New(w.source)
	}
	w.source.Seed(s.Seed, salt)
	*w = World{Schedule: s, Rand: w.Rand, Trace: t, source: w.source}
}

// Time is the date.
func (w *World) Time() time.Time { return Epoch.Add(w.Now) }

// Operation counts an operation. planted reports that the schedule's fault happens at it.
func (w *World) Operation() (n int, planted bool) {
	n = w.Operations
	w.Operations++
	return n, n == w.At
}

// Log writes a line of the history, if it is wanted. key is what it is about, -1 for everything.
func (w *World) Log(key int, format string, args ...any) {
	if w.Trace != nil {
		w.Trace.add(w.Now, key, fmt.Sprintf(format, args...))
	}
}

// Fail records that an invariant is violated. The first violation counts. key is as in Log.
func (w *World) Fail(invariant string, key int, format string, args ...any) {
	if w.Broken != nil {
		return
	}
	w.Broken = &Violation{Invariant: invariant, Schedule: w.Schedule, Key: key, Detail: fmt.Sprintf(format, args...)}
	w.Log(key, "*** %s: %s", invariant, w.Broken.Detail)
}

// Chance is true with a probability of perMille / 1000.
func (w *World) Chance(perMille int) bool { return w.IntN(1000) < perMille }

// Between draws a duration, both ends included.
func (w *World) Between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.Int64N(int64(to-from)+1))
}

// Pick draws an index by weight.
func (w *World) Pick(weights ...int) int {
	sum := 0
	for _, x := range weights {
		sum += x
	}
	r := w.IntN(sum)
	for i, x := range weights {
		if r -= x; r < 0 {
			return i
		}
	}
	return 0
}
