package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// timeout is how long the verifier waits for something that may never happen: a zombie keeps a lock that the other
// process needs, a dead handler waits for a goroutine that died with it.
const timeout = 3 * time.Second

// execution is one schedule: the processes, and what they did.
type execution struct {
	opts           *Options
	ctx            context.Context
	fault          fault
	msg, duplicate semel.Message
	mem            *memory.DB // for processes without a queue or store of their own

	mu                                      sync.Mutex
	changed                                 chan struct{} // closed when anything below changes
	procs                                   []*Process
	turn                                    *Process
	struck, stalled, released, over         bool
	completed, parked, failed, deadLettered bool
	ended                                   map[string]string // by message id
	returned                                map[string]int
	effects                                 []Effect
	keys                                    map[driver.Key]bool
	committed                               map[driver.Hold]bool
	journalled                              map[string]bool
	how                                     traits
}

func newExecution(ctx context.Context, o *Options, m semel.Message, f fault) *execution {
	w := &execution{
		opts: o, ctx: ctx, fault: f, msg: m, duplicate: m, mem: memory.Open(), changed: make(chan struct{}),
		ended: map[string]string{}, returned: map[string]int{}, keys: map[driver.Key]bool{},
		committed: map[driver.Hold]bool{}, journalled: map[string]bool{},
	}
	w.duplicate.ID += "-again"
	w.duplicate.Group = "" // it must not wait for the other one
	return w
}

// update changes the execution and wakes those who wait for a change.
func (w *execution) update(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits for a condition, which is evaluated under the lock.
func (w *execution) await(limit time.Duration, cond func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-w.ctx.Done():
			return false
		}
	}
}

// errHangs means that the schedule did not come to an end.
var errHangs = errors.New("did not come to an end")

// run runs the schedule. Its error is errHangs, or the reason why the schedule could not run at all.
func (w *execution) run() (err error) {
	w.opts.Reset()
	defer func() { w.finish(err != nil) }()
	p1, err := w.start()
	if err != nil {
		return err
	}
	first := w.msg
	if w.fault.kind == DuplicateBefore {
		first = w.duplicate
	}
	if err := w.send(p1, first); err != nil {
		return err
	}
	w.setTurn(p1)
	switch k := w.fault.kind; {
	case k == DuplicateMeanwhile:
		return w.meanwhile(p1)
	case k.stalls():
		return w.zombie(p1)
	case k == DuplicateBefore, k == DuplicateAfter:
		return w.twice(p1)
	}
	if !w.await(w.opts.Limit, func() bool { return p1.dead || w.hasEnded(w.msg) }) {
		return errHangs
	}
	if w.isDead(p1) {
		return w.takeOver(p1)
	}
	if w.fault.kind == Plain {
		time.Sleep(w.opts.straggle) // for what the handler left running
	}
	return nil
}

// takeOver has another process finish what a dead one left.
func (w *execution) takeOver(p1 *Process) error {
	p1.expireLeases()
	p2, err := w.start()
	if err != nil {
		return err
	}
	if w.fault.kind == DuplicateTakesOver { // while the first delivery is still invisible
		if err := w.send(p2, w.duplicate); err != nil {
			return err
		}
		w.setTurn(p2)
		if err := w.until(w.duplicate); err != nil {
			return err
		}
	}
	p1.expireDeliveries()
	w.setTurn(p2)
	return w.until(w.msg)
}

// zombie has another process take over while the first run is stalled, and then lets the first go on.
func (w *execution) zombie(p1 *Process) error {
	if !w.await(w.opts.Limit, func() bool { return w.stalled || w.hasEnded(w.msg) }) {
		return errHangs
	}
	p1.expireLeases()
	p1.expireDeliveries()
	p2, err := w.start()
	if err != nil {
		return err
	}
	w.setTurn(p2)
	w.await(timeout, func() bool { return w.hasEnded(w.msg) }) // unless it waits for a lock of the first
	if w.fault.kind == LeaseLost {
		p1.fence()
	}
	w.update(func() { w.released = true })
	if !w.await(w.opts.Limit, func() bool { return p1.running == 0 && (p1.around || p1.holding == 0) }) {
		return errHangs
	}
	return w.until(w.msg)
}

// meanwhile delivers a duplicate to another process while the first run is under way.
func (w *execution) meanwhile(p1 *Process) error {
	if !w.await(w.opts.Limit, func() bool { return w.stalled || w.hasEnded(w.msg) }) {
		return errHangs
	}
	p2, err := w.start()
	if err != nil {
		return err
	}
	if err := w.send(p2, w.duplicate); err != nil {
		return err
	}
	w.setTurn(p2)
	w.await(timeout, func() bool { return w.returned[w.duplicate.ID] > 0 || w.hasEnded(w.duplicate) })
	w.setTurn(nil)
	w.update(func() { w.released = true })
	w.setTurn(p1)
	if err := w.until(w.msg); err != nil {
		return err
	}
	w.setTurn(p2)
	return w.until(w.msg, w.duplicate)
}

// twice sends the second message when the first has ended.
func (w *execution) twice(p1 *Process) error {
	first, second := w.msg, w.duplicate
	if w.fault.kind == DuplicateBefore {
		first, second = second, first
	}
	if err := w.until(first); err != nil {
		return err
	}
	if err := w.send(p1, second); err != nil {
		return err
	}
	w.update(func() { w.struck = true })
	return w.until(second)
}

func (w *execution) until(ms ...semel.Message) error {
	over := func() bool {
		for _, m := range ms {
			if !w.hasEnded(m) {
				return false
			}
		}
		return true
	}
	if !w.await(w.opts.Limit, over) {
		return errHangs
	}
	return nil
}

func (w *execution) hasEnded(m semel.Message) bool { _, ok := w.ended[m.ID]; return ok }

func (w *execution) isDead(p *Process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.dead
}

func (w *execution) setTurn(p *Process) { w.update(func() { w.turn = p }) }

// start starts a process.
func (w *execution) start() (*Process, error) {
	p := &Process{w: w, seen: map[string]int{}, conns: map[*conn]bool{}, done: make(chan struct{}), phase: starting}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	w.update(func() { w.procs = append(w.procs, p); p.number = len(w.procs) })
	run, err := p.boot()
	p.in("")
	if err == nil {
		err = p.err
	}
	if err != nil {
		close(p.done)
		return nil, fmt.Errorf("start process: %w", err)
	}
	go func() {
		defer close(p.done)
		run()
	}()
	return p, nil
}

func (w *execution) send(p *Process, m semel.Message) error {
	s, ok := driver.As[driver.Sender](p.queue.inner)
	if !ok {
		return fieldError("Worker", fmt.Sprintf("gives a queue of type %T, to which nothing can be sent", p.queue.inner),
			"leave Config.Queue nil: the queue is in memory then")
	}
	if err := s.Send(w.ctx, m); err != nil {
		return fmt.Errorf("send message %q: %w", m.ID, err)
	}
	return nil
}

// finish ends the schedule and all its processes.
func (w *execution) finish(stuck bool) {
	w.update(func() { w.over = true })
	for _, p := range w.procs {
		p.cancel()
	}
	for _, p := range w.procs {
		wait := timeout
		if stuck || w.isDead(p) {
			wait = soon // it may wait for a goroutine that died with it
		}
		select {
		case <-p.done:
		case <-time.After(wait):
		}
	}
	for _, p := range slices.Backward(w.procs) {
		p.cleanUp()
	}
}

// keyCount is how many keys were claimed.
func (w *execution) keyCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(slices.Collect(maps.Keys(w.keys)))
}
