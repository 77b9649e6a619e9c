package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Simulator simulates schedules, one at a time. One schedule is one history, whatever it simulated before.
type Simulator interface {
	// Simulate runs a schedule to its end, and writes its history to t unless it is nil. It returns how many operations
	// there were, and the first violation.
	Simulate(s Schedule, t *Trace) (operations int, v *Violation)
}

// Kind is a kind of simulator, and what can be planted in its schedules.
type Kind struct {
	// Prefix begins each report about it.
	Prefix string
	// New makes a simulator for one goroutine. Done, when that has ended, takes what the simulator counted.
	New  func() Simulator
	Done func(Simulator)
	// Faults names the faults that can be planted at an operation; of a schedule the first MaxPoints operations get them, 0 =
	// all.
	Faults    []string
	MaxPoints int
	// Mistakes has the known ways to get the protocol wrong, from 1: the first entry is none.
	Mistakes []Mistake
}

// Mistake is a known way to get the protocol wrong. Invariants are those of which it must violate one, separated by spaces:
// if another one found it, that would be an accident of the simulator.
type Mistake struct{ Name, Invariants string }

// Breaks reports that an invariant is one of those that the mistake must violate.
func (m Mistake) Breaks(invariant string) bool {
	return strings.Contains(" "+m.Invariants+" ", " "+invariant+" ")
}

// MistakeResult reports whether a planted mistake was found.
type MistakeResult struct {
	Name      string
	Found     bool
	Seed      uint64
	Invariant string
	Tried     int // seeds until it was found
	Elapsed   time.Duration
	Detail    string
}

const (
	seedsPerMistake = 100_000
	maxViolations   = 10
)

// Explorer runs many schedules of simulators at the same time. Its methods stop early when Context is done, or after ten
// violations.
type Explorer struct {
	Context  context.Context
	First    uint64 // seed
	Workers  int    // goroutines
	Progress func(string)
	// Violations are those that were found, each with its history.
	Violations []Violation

	mu sync.Mutex
}

// share runs job(simulator, i) for i in [0, n) on all goroutines, until one returns false. It returns the number of jobs.
func (x *Explorer) share(k *Kind, n int, job func(s Simulator, i int) bool) int {
	var next, done atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range x.Workers {
		wg.Go(func() {
			s := k.New()
			for !stop.Load() && x.Context.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				if !job(s, i) {
					stop.Store(true)
				}
				done.Add(1)
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			k.Done(s)
		})
	}
	wg.Wait()
	return int(done.Load())
}

// hold simulates a schedule that must not violate anything; more = the search goes on.
func (x *Explorer) hold(k *Kind, s Simulator, sc Schedule) (operations int, more bool) {
	operations, v := s.Simulate(sc, nil)
	if v == nil {
		return operations, true
	}
	k.Explain(s, v)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Violations = append(x.Violations, *v)
	return operations, len(x.Violations) < maxViolations
}

// Explain names what was planted and runs the violation's schedule again, with its history written down.
func (k *Kind) Explain(s Simulator, v *Violation) {
	t := &Trace{}
	_, again := s.Simulate(v.Schedule, t)
	v.Trace = t.Of(v.Key)
	if again == nil || again.Detail != v.Detail {
		v.Trace += "(the history above is not the violating one: the simulator is not deterministic)\n"
	}
	v.Detail, v.MistakeName = k.Prefix+v.Detail, k.Mistakes[v.Mistake].Name
	if v.At >= 0 {
		v.FaultName = k.Faults[v.Fault]
	}
}

// Seeds simulates n seeds with random faults and returns how many it did.
func (x *Explorer) Seeds(k *Kind, n int) (done int) {
	const chunk = 20_000
	for from := 0; from < n && x.Context.Err() == nil && len(x.Violations) < maxViolations; from += chunk {
		done += x.share(k, min(chunk, n-from), func(s Simulator, i int) bool {
			_, more := x.hold(k, s, Random(x.First+uint64(from+i)))
			return more
		})
		x.Progress(fmt.Sprintf("%s%d seeds, %d violations", k.Prefix, done, len(x.Violations)))
	}
	return done
}

// CrashPoints plants each fault at each operation of the first seeds, without random faults. It returns how many schedules
// had one.
func (x *Explorer) CrashPoints(k *Kind, seeds int) int {
	var points atomic.Int64
	x.share(k, seeds, func(s Simulator, i int) bool {
		sc := Schedule{Seed: x.First + uint64(i), Faultless: true, At: -1}
		operations, more := x.hold(k, s, sc)
		if k.MaxPoints > 0 {
			operations = min(operations, k.MaxPoints)
		}
		for sc.At = 0; sc.At < operations && more; sc.At++ {
			for sc.Fault = 0; sc.Fault < len(k.Faults) && more && x.Context.Err() == nil; sc.Fault++ {
				points.Add(1)
				_, more = x.hold(k, s, sc)
			}
		}
		return more
	})
	x.Progress(fmt.Sprintf("%s%d crash points, %d violations", k.Prefix, points.Load(), len(x.Violations)))
	return int(points.Load())
}

// FindMistakes plants each mistake in one seed after the other, until it violates one of its invariants.
func (x *Explorer) FindMistakes(k *Kind) []MistakeResult {
	results := make([]MistakeResult, len(k.Mistakes)-1)
	for n := range results {
		began, res, mistake := time.Now(), &results[n], k.Mistakes[n+1]
		res.Name = k.Prefix + mistake.Name
		var mu sync.Mutex
		res.Tried = x.share(k, seedsPerMistake, func(s Simulator, i int) bool {
			sc := Random(x.First + uint64(i))
			sc.Mistake = n + 1
			_, v := s.Simulate(sc, nil)
			if v == nil || !mistake.Breaks(v.Invariant) {
				return true
			}
			mu.Lock()
			defer mu.Unlock()
			if !res.Found || v.Seed < res.Seed {
				res.Found, res.Seed, res.Invariant, res.Detail = true, v.Seed, v.Invariant, v.Detail
			}
			return false
		})
		res.Elapsed = time.Since(began)
		x.Progress(fmt.Sprintf("mutant %q: found %v after %d seeds (%s)", res.Name, res.Found, res.Tried, res.Invariant))
	}
	return results
}
