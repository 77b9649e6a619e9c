package saga

import (
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
)

const (
	lease       = 10 * time.Second
	keep        = 24 * time.Hour
	maxAttempts = 3
	maxEvents   = 4000
	maxFaults   = 6
)

var theKey = driver.Key{Consumer: "sim", Raw: "trip"}

// Simulation is one schedule: one key, its record and journals, the attempts at it, and the outside world. It is reused for
// the next schedule.
type Simulation struct {
	virtual.World
	mut    mutant
	stats  Stats
	faults int // that random faults are left

	plan     []plan
	careless bool // the function does not look at errors
	rec      driver.Record
	journals [8][]driver.Step // by epoch
	drawn    uint64
	runners  []*runner // that have not ended
	late     []landing
	out      outside
	people   int // operators' tasks that are left
}

// landing is a request that arrives after its sender gave up.
type landing struct {
	at time.Duration
	do func()
}

// Simulate is virtual.Simulator's. It runs until nothing is left to happen, then lets everything that is still on its way
// land.
func (w *Simulation) Simulate(s virtual.Schedule, t *virtual.Trace) (calls int, v *virtual.Violation) {
	*w = Simulation{World: w.World, stats: w.stats, mut: mutant(s.Mistake)}
	w.Begin(s, 63, t)
	w.faults, w.people = w.IntN(maxFaults+1), w.IntN(3)
	w.plan, w.careless = w.drawPlan(), w.Chance(150)
	w.out.bookings, w.out.tries = map[string]*booking{}, map[string]int{}
	w.stats.Runs++
	for events := 0; w.Broken == nil && w.step(); events++ {
		if events > maxEvents {
			w.Fail("I17", -1, "it does not end: the record is %v", w.rec.State)
		}
	}
	for _, r := range w.runners {
		r.kill()
	}
	if w.Broken == nil {
		w.checkEnd()
	}
	return w.Operations, w.Broken
}

// step lets one thing happen; false = there is nothing left.
func (w *Simulation) step() bool {
	w.Now += time.Duration(1+w.IntN(20)) * time.Millisecond
	var ready []func()
	next := time.Duration(1<<62 - 1)
	soon := func(at time.Duration, do func()) {
		if at <= w.Now {
			ready = append(ready, do)
		}
		next = min(next, at)
	}
	for _, r := range w.runners {
		soon(r.wakes, r.resume)
	}
	for i := range w.late {
		soon(w.late[i].at, func() { w.land(i) })
	}
	if at, ok := w.claimable(); ok {
		soon(at, w.attempt)
	}
	if (w.rec.State == driver.FailedState || w.rec.State == driver.Uncertain) && w.people > 0 {
		soon(w.Now, w.operate)
	}
	if len(ready) == 0 {
		if next == 1<<62-1 {
			return false
		}
		w.Now = next
		return true
	}
	ready[w.IntN(len(ready))]()
	return true
}

// land lets a late request arrive.
func (w *Simulation) land(i int) {
	l := w.late[i]
	w.late = append(w.late[:i], w.late[i+1:]...)
	l.do()
}

// later makes a request arrive after its sender gave up.
func (w *Simulation) later(do func()) {
	w.stats.Late++
	w.late = append(w.late, landing{w.Now + time.Duration(w.Int64N(int64(4*lease))), do})
}

// claimable returns when the message can be claimed next.
func (w *Simulation) claimable() (time.Duration, bool) {
	switch w.rec.State {
	case driver.Absent:
		return w.Now, true
	case driver.Released:
		return w.rec.RetryAt.Sub(virtual.Epoch), true
	case driver.InProgress:
		return w.rec.LeaseUntil.Sub(virtual.Epoch) + 1, true
	}
	return 0, false
}

// attempt claims the key and begins a run.
func (w *Simulation) attempt() {
	w.drawn++
	c := driver.Claim{Key: theKey, Lease: lease}
	for i := range c.Nonce {
		c.Nonce[i] = byte(w.IntN(256))
	}
	after, g, changed := driver.DecideClaim(w.rec, c, w.Time(), w.drawn)
	if changed {
		w.rec = after
	}
	if g.Verdict != driver.Acquired {
		return
	}
	w.stats.Attempts++
	w.Log(-1, "attempt %d begins: token %d, epoch %d, %d failures", g.Attempt, g.Hold.Token, g.Hold.Epoch, g.Failures)
	w.runners = append(w.runners, newRunner(w, g))
}

// operate is an operator, who sends failed messages again and releases parked ones.
func (w *Simulation) operate() {
	w.people--
	op := driver.Operation{Kind: driver.Redrive, Key: theKey, Token: w.rec.Token, Generation: w.rec.Generation, Keep: keep}
	if w.rec.State == driver.Uncertain {
		op.Kind, op.As = driver.Resolve, driver.Released
	}
	if after, _, changed := driver.DecideOperate(w.rec, op, w.Time(), w.drawn+1); changed {
		w.rec = after
		w.Log(-1, "a person: %v", op.Kind)
	}
}

// ended records the end of an attempt, as the engine does.
func (w *Simulation) ended(r *runner) {
	for i, o := range w.runners {
		if o == r {
			w.runners = append(w.runners[:i], w.runners[i+1:]...)
			break
		}
	}
	f, ok := w.judge(r)
	if !ok {
		return
	}
	after, o, changed := driver.DecideFinish(w.rec, f, w.Time())
	w.Log(-1, "token %d: %v (%s): %v", r.hold.Token, f.Final, f.Reason, o)
	if !changed {
		return
	}
	w.rec = after
	w.checkFinish(&f)
}

// judge is what the engine makes of a run's end; false = it writes nothing.
func (w *Simulation) judge(r *runner) (driver.Finish, bool) {
	f := driver.Finish{Hold: r.hold, Final: driver.Complete, Keep: keep}
	if r.err == nil {
		return f, true
	}
	if r.fenced {
		return f, false
	}
	f.Reason = r.err.Error()
	m := semel.DispositionOf(r.err)
	switch {
	case m.Parked && w.mut != mutHalfFailed:
		f.Final = driver.Park
	case m.Parked, m.Permanent:
		f.Final, f.Compensated = driver.Fail, m.Compensated
	case m.Deferred:
		f.Final, f.Refund, f.Ran, f.RetryAfter = driver.Release, true, driver.NotApplied, m.After
	case r.failures+1 >= maxAttempts:
		f.Final, f.Ran = driver.Fail, driver.MaybeApplied
	default:
		f.Final, f.Ran, f.RetryAfter = driver.Release, driver.MaybeApplied, time.Second
	}
	return f, true
}
