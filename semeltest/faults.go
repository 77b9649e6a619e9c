package semeltest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrFault is wrapped by every injected error.
var ErrFault = errors.New("injected fault")

// Plan sets how often each fault is injected. Rates are probabilities from 0 to 1; the zero Plan injects nothing. The
// fault of the n-th call of an operation depends only on Seed, the operation and n, so a run with the same order of
// calls per operation repeats itself.
type Plan struct {
	Seed uint64
	// Before: the call fails and nothing was done.
	Before float64
	// After: the call is carried out and its response is lost.
	After float64
	// Late: the call fails now and is carried out LateBy later, when others may have gone on. Calls that return
	// something (Receive, Begin, DeadLetters and the like) are carried out at once instead, as with After.
	Late   float64
	LateBy time.Duration
	// Unknown: the probability that an item of a write returns Unknown (a claim: Grant.Err). Half of those items are
	// carried out, the others are not.
	Unknown float64
	// Delay: the call waits for DelayBy first, or for its ctx.
	Delay   float64
	DelayBy time.Duration
	// Only limits the faults to these operations ("claim", "finish", "settle", ...). Empty = all.
	Only []string
}

// Faults carries out a [Plan]. One Faults may serve a store and a queue. Its methods may be called concurrently.
type Faults struct {
	plan Plan
	late sync.WaitGroup

	mu     sync.Mutex
	outage bool
	calls  map[string]uint64
	counts map[string]int
}

// NewFaults makes the faults of a plan.
func NewFaults(p Plan) *Faults {
	return &Faults{plan: p, calls: map[string]uint64{}, counts: map[string]int{}}
}

// Outage makes every call fail before it does anything, until it is called with false.
func (f *Faults) Outage(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = on
}

// Counts returns how often each fault was injected: "before", "after", "late", "unknown", "delay", "outage".
func (f *Faults) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]int, len(f.counts))
	for k, n := range f.counts {
		all[k] = n
	}
	return all
}

// Wait waits until all late calls were carried out.
func (f *Faults) Wait() { f.late.Wait() }

// fate is what happens to one call.
type fate struct {
	err    string // "", "outage", "before", "after", "late"
	delay  bool
	random *rand.Rand
}

func (f *Faults) draw(op string) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outage {
		f.counts["outage"]++
		return fate{err: "outage"}
	}
	if !f.concerns(op) {
		return fate{}
	}
	f.calls[op]++
	h := fnv.New64a()
	_, _ = h.Write([]byte(op))
	x := fate{random: rand.New(rand.NewPCG(f.plan.Seed^h.Sum64(), f.calls[op]))}
	if x.delay = x.random.Float64() < f.plan.Delay; x.delay {
		f.counts["delay"]++
	}
	p := x.random.Float64()
	for _, o := range []struct {
		name string
		rate float64
	}{{"before", f.plan.Before}, {"after", f.plan.After}, {"late", f.plan.Late}} {
		if p < o.rate {
			x.err = o.name
			f.counts[o.name]++
			break
		}
		p -= o.rate
	}
	return x
}

func (f *Faults) concerns(op string) bool {
	for _, o := range f.plan.Only {
		if o == op {
			return true
		}
	}
	return len(f.plan.Only) == 0
}

// call carries out one call under the plan. handsOut calls are never late.
func call[R any](ctx context.Context, f *Faults, op string, handsOut bool, do func(context.Context, fate) (R, error)) (r R, err error) {
	x := f.draw(op)
	if x.delay {
		t := time.NewTimer(f.plan.DelayBy)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return r, fmt.Errorf("%s: %w", op, ctx.Err())
		}
	}
	var none R
	switch {
	case x.err == "":
		return do(ctx, x)
	case x.err == "late" && !handsOut:
		f.late.Go(func() {
			time.Sleep(f.plan.LateBy)
			_, _ = do(context.WithoutCancel(ctx), x) // the caller has stopped waiting
		})
	case x.err == "late" || x.err == "after":
		_, _ = do(ctx, x)
	}
	return none, fmt.Errorf("%s (%s): %w", op, x.err, ErrFault)
}

// items carries out a batch without the items whose writes are to be lost, and blanks the results of others. fix
// translates an error that names an item by its place in the shortened batch.
func items[I, O any](f *Faults, x fate, in []I, blank func(*O), fix func(err error, place []int) error, do func([]I) ([]O, error)) ([]O, error) {
	if x.random == nil || f.plan.Unknown == 0 {
		return do(in)
	}
	out := make([]O, len(in))
	var sent []I
	var place []int
	blanked := make([]bool, len(in))
	for i := range in {
		hit, lost := x.random.Float64() < f.plan.Unknown, x.random.IntN(2) == 0
		if blanked[i] = hit; hit {
			f.mu.Lock()
			f.counts["unknown"]++
			f.mu.Unlock()
		}
		if hit && lost {
			continue
		}
		sent, place = append(sent, in[i]), append(place, i)
	}
	if len(sent) > 0 {
		got, err := do(sent)
		if err != nil {
			return nil, fix(err, place)
		}
		for j := range got {
			out[place[j]] = got[j]
		}
	}
	for i := range out {
		if blanked[i] {
			blank(&out[i])
		}
	}
	return out, nil
}
