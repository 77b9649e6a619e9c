package saga

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/steps"
)

// fate is what happens to one call.
type fate uint8

const (
	fine         fate = iota
	crashBefore       // the attempt is gone, nothing was asked
	crashAfter        // the attempt is gone, the call was carried out
	lostRequest       // not carried out, no response
	lostResponse      // carried out, no response
	lateRequest       // no response, carried out later
	stallBefore       // the attempt stops past its lease, then asks
	stallAfter        // it asks, then stops past its lease
	fateKinds
)

var faultNames = []string{
	"a crash before", "a crash after", "a request lost", "a response lost", "a late request", "a stall before", "a stall after",
}

var errNoResponse = errors.New("no response")

// runner is an attempt: the function under test as a coroutine.
type runner struct {
	w        *Simulation
	hold     driver.Hold
	failures int
	wakes    time.Duration
	next     func() (*call, bool)
	yield    func(*call) bool
	pending  *call // that it waits for
	ghost    bool  // its process is gone
	lost     bool  // a write returned Lost
	fenced   bool
	timedOut bool // the run's time is up: its context has ended
	cancel   context.CancelCauseFunc
	held     []driver.StepWrite // that a mutant keeps back
	err      error
}

// call is one call of an attempt to what is outside of it.
type call struct {
	what    string
	apply   func()           // carries it out, and returns
	refuse  func(late error) // returns that the outcome is unknown
	waits   time.Duration    // a wait, and nothing else
	decided bool             // its fate is: it goes on now
}

func newRunner(w *Simulation, g driver.Grant) *runner {
	r := &runner{w: w, hold: g.Hold, failures: g.Failures, wakes: w.Now}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	a := semel.NewAttempt(semel.Message{ID: "m"}, g, &store{r: r})
	a.MaxAttempts = maxAttempts
	r.next, _ = iter.Pull(func(yield func(*call) bool) {
		r.yield = yield
		r.err = steps.With(ctx, a, w.function(r), steps.Retry(2, 100*time.Millisecond, 5), steps.WithSleep(r.sleep),
			steps.Logger(slog.New(slog.DiscardHandler)))
	})
	return r
}

// do passes a call to the world, and returns when it has a result.
func (r *runner) do(c *call) {
	if !r.ghost {
		r.yield(c)
	}
	if r.ghost && c.refuse != nil {
		c.refuse(errNoResponse)
	}
}

func (r *runner) sleep(ctx context.Context, d time.Duration) bool {
	r.do(&call{what: "wait", waits: d})
	if r.timedOut && !r.ghost && r.w.Chance(300) {
		return false // the grace for the last writes has ended too
	}
	return !r.ghost && ctx.Err() == nil
}

// kill ends the process of the attempt: the coroutine runs to its end without touching anything.
func (r *runner) kill() {
	r.ghost = true
	r.cancel(semel.ErrFenced)
	for {
		if _, ok := r.next(); !ok {
			return
		}
	}
}

// holds reports that the attempt has the key.
func (r *runner) holds() bool { return r.w.rec.State == driver.InProgress && r.w.rec.Hold() == r.hold }

// resume lets the attempt go on to its next call, or its present call happen.
func (r *runner) resume() {
	w := r.w
	if r.holds() {
		w.rec, _ = driver.DecideExtend(w.rec, r.hold, lease, w.Time()) // the heartbeat
	}
	if r.pending == nil {
		c, ok := r.next()
		if !ok {
			w.ended(r)
			return
		}
		r.pending = c
	}
	c := r.pending
	if c.waits > 0 && !c.decided {
		c.decided = true
		r.wakes = w.Now + c.waits
		return
	}
	f := fine
	if !c.decided {
		f = w.drawFate(c)
	}
	c.decided = true
	if f == lostRequest && w.Chance(300) {
		w.Log(-1, "token %d: its time is up", r.hold.Token)
		r.timedOut = true
		r.cancel(semel.ErrTimeout)
	}
	switch f {
	case crashBefore, crashAfter:
		w.stats.Crashes++
		if f == crashAfter {
			c.apply()
		}
		w.Log(-1, "token %d crashes at: %s (carried out: %v)", r.hold.Token, c.what, f == crashAfter)
		r.gone()
		return
	case stallBefore:
		w.stats.Stalls++
		w.Log(-1, "token %d stalls before: %s", r.hold.Token, c.what)
		r.stall()
		return
	case lostRequest, lostResponse, lateRequest:
		w.stats.Lost++
		w.Log(-1, "token %d gets no response: %s", r.hold.Token, c.what)
		switch f {
		case lostResponse:
			c.apply()
		case lateRequest:
			w.later(c.apply)
		}
		c.refuse(errNoResponse)
	default:
		if c.apply != nil {
			c.apply()
		}
		if f == stallAfter {
			w.stats.Stalls++
			r.stall()
		}
	}
	r.pending = nil
}

// stall stops the attempt past its lease. Its own deadline may have cancelled it by then.
func (r *runner) stall() {
	r.wakes = r.w.Now + lease + time.Duration(r.w.Int64N(int64(4*lease)))
	if r.w.Chance(300) {
		r.fenced = true
		r.cancel(semel.ErrFenced)
	}
}

// gone is a crash of an attempt.
func (r *runner) gone() {
	r.kill()
	w := r.w
	w.runners = slices.DeleteFunc(w.runners, func(o *runner) bool { return o == r })
}

// drawFate draws what happens to a call.
func (w *Simulation) drawFate(c *call) fate {
	_, planted := w.Operation()
	f := fine
	switch {
	case planted:
		f = fate(w.Fault + 1)
	case !w.Faultless && w.faults > 0 && w.Chance(120):
		w.faults--
		f = 1 + fate(w.IntN(int(fateKinds)-1))
	}
	if c.apply == nil && f != crashBefore && f != stallBefore {
		return fine // a wait can only be interrupted
	}
	return f
}

// store is the modelled store, as one attempt sees it.
type store struct {
	driver.Store
	r *runner
}

func (s *store) Features() driver.StoreFeatures {
	return driver.StoreFeatures{Name: "model", Durable: true}
}

// Steps reads the journal.
func (s *store) Steps(_ context.Context, h driver.Hold) (rows []driver.Step, err error) {
	w := s.r.w
	c := &call{what: "read the journal"}
	c.refuse = func(late error) { rows, err = nil, late }
	c.apply = func() { rows, err = w.readMutated(slices.Clone(w.journals[h.Epoch])), nil }
	s.r.do(c)
	return rows, err
}

// WriteSteps writes it, as the table decides.
func (s *store) WriteSteps(_ context.Context, h driver.Hold, ws ...driver.StepWrite) (o driver.Outcome, err error) {
	r := s.r
	ws = slices.Clone(ws)
	c := &call{what: "write " + textOf(ws)}
	c.refuse = func(late error) { o, err = driver.Unknown, late }
	c.apply = func() { o, err = r.w.write(r, h, ws), nil }
	r.do(c)
	if err == nil && o == driver.Lost {
		r.lost, r.fenced = true, true
	}
	if r.w.mut == mutLoserGoesOn && o == driver.Lost && !r.ghost {
		r.fenced = false
		return driver.Applied, nil
	}
	return o, err
}

// write decides and carries out writes.
func (w *Simulation) write(r *runner, h driver.Hold, ws []driver.StepWrite) driver.Outcome {
	ws, skip := w.writesMutated(r, ws)
	if skip {
		return driver.Applied
	}
	rows := w.journals[h.Epoch]
	decided, as := rows, h
	switch w.mut {
	case mutForwardAgain:
		decided = slices.DeleteFunc(slices.Clone(rows), func(s driver.Step) bool {
			return s.State == driver.RunCompensating && ws[0].Kind < driver.CompensateRun
		})
	case mutWriteBlind:
		as = w.rec.Hold()
	}
	put, effects, o := driver.DecideSteps(w.rec, decided, as, ws, w.Time())
	w.Log(-1, "token %d: %s: %v", h.Token, textOf(ws), o)
	if o == driver.Applied && w.rec.Hold() != h {
		w.Fail("I7", -1, "a write of token %d was accepted while token %d holds the key", h.Token, w.rec.Token)
	}
	for _, p := range put {
		i := slices.IndexFunc(rows, func(s driver.Step) bool { return s.Name == p.Name })
		if i < 0 {
			p.Seq = len(rows) + 1
			rows = append(rows, p)
		} else {
			rows[i] = p
		}
	}
	w.journals[h.Epoch] = rows
	for _, i := range effects {
		w.out.commit(w, h.Epoch, ws[i].Effects.(*buffer))
	}
	return o
}
