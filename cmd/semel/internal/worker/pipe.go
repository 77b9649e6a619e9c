package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel"
)

// Pipe calls long-lived handler processes, which read messages and write results as lines of JSON (docs/pipe.md). Its
// handlers may be called concurrently.
type Pipe struct {
	// Argv is the program with its arguments; for a shell command: /bin/sh -c CMD.
	Argv  []string
	Queue string
	// Processes is how many run, InFlight how many lines each of them may have without a result.
	Processes, InFlight int
	// Batch is how many messages one line has at most, as an array. 0: lines are single messages.
	Batch int
	// Keep is how many bytes of a result are kept.
	Keep int
	// KillGrace is how long a process may take to write the result of a cancelled run, and to end after SIGTERM.
	KillGrace time.Duration
	// Look is how often leases are looked at, to tell the processes of longer ones.
	Look time.Duration
	Log  *slog.Logger
	// Broken is called once when the processes could not be run brokenLimit times in a row, or were never ready.
	Broken func(error)
	// Guard kills running process groups if this worker dies; nil: none does.
	Guard *Guard

	startLimit time.Duration // how long a process may take until it is ready
	pause      time.Duration // before a process that was of no use is started again; it doubles
	slots      sync.WaitGroup
	closing    chan struct{}
	close      sync.Once

	mu       sync.Mutex
	last     uint64 // id of the latest message
	waiters  []*waiter
	children []*child // that are ready
	broken   int      // processes in a row that could not be run
	ready    bool     // a process was ready once
	unready  int      // processes that ended before any was ready
}

// pipeRun is one message on its way through a process. But for id and a, it is guarded by the lock of the pipe until done is
// closed.
type pipeRun struct {
	lineRun
	child     *child // nil while it waits for one
	sent      bool   // the process may have read it
	cancelled bool
	lease     time.Time
	died      bool // the process ended
}

// waiter is messages that wait for a process, which one line brings to it.
type waiter struct {
	runs []*pipeRun
	// alone: nothing else is given to the process meanwhile. That is for messages whose earlier run has an unknown outcome:
	// if they kill the process again, nobody else suffers.
	alone bool
	// whole: no other message joins the line.
	whole    bool
	reserved *child // that is to become idle for it
}

// startLimit is how long a process may take until it is ready.
const startLimit = time.Minute

// startsLimit is how often each process is started while none has ever been ready.
const startsLimit = 7

// ErrNeverReady is why a worker stops by itself: every start of its handler processes failed.
var ErrNeverReady = errors.New("no handler process was ever ready")

// Start starts the processes. It does not wait until they are ready.
func (p *Pipe) Start() {
	p.closing = make(chan struct{})
	if p.startLimit == 0 {
		p.startLimit = startLimit
	}
	if p.pause == 0 {
		p.pause = 100 * time.Millisecond
	}
	for n := range p.Processes {
		p.slots.Go(func() { p.keepRunning(n + 1) })
	}
	p.slots.Go(p.watchLeases)
}

// Close closes the processes' stdin and waits until they have ended; after KillGrace they get SIGTERM, then SIGKILL.
func (p *Pipe) Close() error {
	p.close.Do(func() { close(p.closing) })
	p.slots.Wait()
	return nil
}

// Handler is a handler whose results become the stored results.
func (p *Pipe) Handler() semel.Handler {
	return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error { return p.one(ctx, a, nil) })
}

// Statements is a handler whose effects commit with the record (mode A2).
func (p *Pipe) Statements() semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error { return p.one(ctx, a, tx) })
}

// BatchStatements is a handler that gets a batch as one line, and whose effects commit in one transaction with the records.
func (p *Pipe) BatchStatements() semel.Handler {
	return semel.InTxBatch(func(ctx context.Context, tx *semel.Statements, batch []*semel.Attempt) error {
		return takeAll(p.call(ctx, batch, true), tx, p.Keep, p.Log)
	})
}

func (p *Pipe) one(ctx context.Context, a *semel.Attempt, tx *semel.Statements) error {
	return p.call(ctx, []*semel.Attempt{a}, false)[0].take(tx, p.Keep, p.Log)
}

// call has messages handled and returns when each has a result or an error.
func (p *Pipe) call(ctx context.Context, batch []*semel.Attempt, whole bool) []*lineRun {
	runs, ended := make([]*pipeRun, len(batch)), make([]*lineRun, len(batch))
	w := &waiter{runs: runs, whole: whole}
	p.mu.Lock()
	for i, a := range batch {
		p.last++
		runs[i] = &pipeRun{lineRun: newLineRun(p.last, a), lease: a.Deadline}
		w.alone = w.alone || a.Unknown
	}
	p.waiters = append(p.waiters, w)
	p.place()
	p.mu.Unlock()
	for i, r := range runs {
		p.await(ctx, r)
		ended[i] = &r.lineRun
	}
	return ended
}

// await waits for the result of a run. When ctx ends the process gets a cancel line, and is killed if it writes no result.
func (p *Pipe) await(ctx context.Context, r *pipeRun) {
	select {
	case <-r.done:
		return
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	p.mu.Lock()
	if r.child == nil {
		p.forget(r)
		p.mu.Unlock()
		r.err = notTaken(cause)
		return
	}
	r.cancelled = true
	r.child.cancel(r, cause)
	p.mu.Unlock()
	late := time.NewTimer(p.KillGrace)
	defer late.Stop()
	select {
	case <-r.done:
	case <-late.C:
		p.mu.Lock()
		if r.child != nil {
			r.child.fail(fmt.Errorf("message %d (key %q) had no result %s after it was cancelled", r.id, r.a.Key.Raw, p.KillGrace))
		}
		p.mu.Unlock()
		<-r.done
	}
	if r.err != nil && r.died || r.err == nil && !r.reply.Outcome.declared() {
		r.err = fmt.Errorf("handler stopped: %w", cause)
	}
}

// notTaken is the error of a message that no process has read: that is no attempt.
func notTaken(why error) error {
	return semel.Deferred(fmt.Errorf("handler stopped before a process was free: %w", why), time.Second)
}

// forget takes a run back that waits for a process.
func (p *Pipe) forget(r *pipeRun) {
	for i, w := range p.waiters {
		at := slices.Index(w.runs, r)
		if at < 0 {
			continue
		}
		if len(w.runs) > 1 {
			w.runs = slices.Delete(slices.Clone(w.runs), at, at+1) // the caller has the slice, too
			return
		}
		if w.reserved != nil {
			w.reserved.reserved = nil
		}
		p.waiters = slices.Delete(p.waiters, i, i+1)
		p.place()
		return
	}
}

// place gives waiting messages to processes, as far as they take more.
func (p *Pipe) place() {
	for i := 0; i < len(p.waiters); {
		w := p.waiters[i]
		c := p.pick(w)
		if c == nil {
			i++
			continue
		}
		p.waiters = slices.Delete(p.waiters, i, i+1)
		if w.reserved != nil {
			w.reserved.reserved, w.reserved = nil, nil
		}
		line := w.runs
		for p.Batch > 1 && !w.whole && !w.alone && i < len(p.waiters) && len(line) < p.Batch {
			next := p.waiters[i]
			if next.whole || next.alone {
				break
			}
			line = append(line, next.runs...)
			p.waiters = slices.Delete(p.waiters, i, i+1)
		}
		c.give(line, w.alone)
	}
}

// pick is the process for a waiter; nil: none takes it now.
func (p *Pipe) pick(w *waiter) *child {
	if w.alone && w.reserved != nil {
		if w.reserved.load > 0 {
			return nil
		}
		return w.reserved
	}
	var best *child
	for _, c := range p.children {
		if c.reserved == nil && !c.alone && (best == nil || c.load < best.load) {
			best = c
		}
	}
	switch {
	case best == nil:
		return nil
	case w.alone && best.load > 0:
		best.reserved, w.reserved = w, best
		return nil
	case best.load >= p.InFlight:
		return nil
	}
	return best
}

// refuse fails everything that waits, because no process can be started.
func (p *Pipe) refuse(err error) {
	for _, w := range p.waiters {
		for _, r := range w.runs {
			r.finish(nil, semel.Unavailable(semel.NotApplied(err)))
		}
	}
	p.waiters = nil
}

// finish gives a run its end. The caller holds the lock of the pipe.
func (r *pipeRun) finish(reply *resultLine, err error) {
	r.child = nil
	r.end(reply, err)
}

// watchLeases tells the processes when leases are extended.
func (p *Pipe) watchLeases() {
	tick := time.NewTicker(p.Look)
	defer tick.Stop()
	for {
		select {
		case <-p.closing:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		for _, c := range p.children {
			c.extend()
		}
		p.mu.Unlock()
	}
}
