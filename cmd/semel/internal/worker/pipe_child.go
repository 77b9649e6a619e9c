package worker

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// longestLine is how long a line of a handler process may be.
const longestLine = EffectsKeep

// child is one handler process. Its fields are guarded by the lock of the pipe.
type child struct {
	p      *Pipe
	number int
	proc   *process.Process
	in     io.WriteCloser
	stderr *lineLog
	up     chan struct{} // closed when it is ready

	ready    bool
	err      error // what it did wrong: it is being killed
	ended    bool  // nothing more is given to it
	load     int   // lines without all their results
	alone    bool
	reserved *waiter
	lines    map[uint64]*pipeLine // by id of a message
	settled  int                  // results of this process

	wake chan struct{} // there is something in out
	out  []outgoing
}

// pipeLine is a line that was given to a process.
type pipeLine struct {
	left int // messages without a result
	run  map[uint64]*pipeRun
}

// outgoing is a line to be written.
type outgoing struct {
	b    []byte
	runs []*pipeRun // whose messages it has
}

// controlLine tells a process about a message in flight.
type controlLine struct {
	Cancel       uint64     `json:"cancel,omitempty"`
	Reason       string     `json:"reason,omitempty"`
	Extend       uint64     `json:"extend,omitempty"`
	LeaseExpires *time.Time `json:"lease_expires,omitempty"`
}

// launch starts a process.
func (p *Pipe) launch(number int) (c *child, run string, err error) {
	c = &child{p: p, number: number, up: make(chan struct{}), wake: make(chan struct{}, 1), lines: map[uint64]*pipeLine{}}
	c.stderr = &lineLog{emit: func(line string) { p.Log.Info(line, "source", "handler", "process", number) }}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	run = p.Guard.starting()
	cmd.Env = append(handlerEnviron(), "SEMEL_QUEUE="+noNUL(p.Queue), fmt.Sprintf("SEMEL_PROCESS=%d", number))
	if run != "" {
		cmd.Env = append(cmd.Env, runVariable+"="+run)
	}
	cmd.Stdout, cmd.Stderr = &resultLines{each: c.line, tooLong: c.tooLong}, c.stderr
	cmd.WaitDelay = 500 * time.Millisecond // what it leaves behind may hold stdout open
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, run, err
	}
	p.mu.Lock()
	c.proc, err = process.Start(cmd)
	p.mu.Unlock() // now its lines are read
	if err != nil {
		_ = c.in.Close()
		return nil, run, err
	}
	p.Guard.started(run, c.proc.Pid())
	return c, run, nil
}

// keepRunning runs one process after another under one number.
func (p *Pipe) keepRunning(number int) {
	for failed := 0; ; {
		useful, err := p.runChild(number)
		if useful {
			failed = 0
		} else {
			failed++
		}
		select {
		case <-p.closing:
			p.mu.Lock()
			p.refuse(errors.New("the worker stops"))
			p.mu.Unlock()
			return
		default:
		}
		pause := time.Duration(0)
		if failed > 0 {
			pause = min(p.pause<<min(failed-1, 10), 10*time.Second)
		}
		p.Log.Warn("a handler process ended and is started again", "process", number, "err", err, "after", pause.String())
		select {
		case <-p.closing:
		case <-time.After(pause):
		}
	}
}

// runChild runs one process to its end. useful: it wrote results.
func (p *Pipe) runChild(number int) (useful bool, err error) {
	select {
	case <-p.closing:
		return false, nil
	default:
	}
	c, run, err := p.launch(number)
	defer p.Guard.ended(run)
	if err != nil {
		code, detail, _ := startFailure(err)
		p.notStarted(code, withDetail(errors.New("the handler process cannot be started"), detail))
		return false, err
	}
	var writer sync.WaitGroup
	gone := make(chan struct{})
	writer.Go(func() { c.write(gone) })
	late := time.NewTimer(p.startLimit)
	select {
	case <-c.up:
	case <-c.proc.Done():
	case <-late.C:
		p.mu.Lock()
		c.fail(fmt.Errorf("it was not ready after %s: its first line must be %s", p.startLimit, readyLine))
		p.mu.Unlock()
	case <-p.closing:
	}
	late.Stop()
	select {
	case <-c.proc.Done():
	case <-p.closing:
		c.stop()
	}
	_ = process.SignalGroup(c.proc.Pid(), syscall.SIGKILL) // what it left behind
	_ = c.in.Close()
	close(gone)
	writer.Wait()
	return c.settled > 0, c.settleAll()
}

// stop ends a process in order: end of input, then SIGTERM, then SIGKILL.
func (c *child) stop() {
	c.p.mu.Lock()
	c.ended = true
	c.p.mu.Unlock()
	_ = c.in.Close()
	late := time.NewTimer(c.p.KillGrace)
	defer late.Stop()
	select {
	case <-c.proc.Done():
	case <-late.C:
		_ = c.proc.Stop(c.p.KillGrace) // runChild has the error
	}
}

// settleAll settles what a process left that has ended, and returns why it ended. Messages that it cannot have read wait for
// another process.
func (c *child) settleAll() error {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	c.ended = true
	p.children = slices.DeleteFunc(p.children, func(other *child) bool { return other == c })
	if c.reserved != nil {
		c.reserved.reserved = nil
	}
	state := c.proc.State()
	err := &failure{exit: max(0, state.ExitCode()), text: fmt.Sprintf("handler process %d ended (%s)", c.number, state)}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		err.signal = ws.Signal()
	}
	if c.err != nil {
		err.text = fmt.Sprintf("handler process %d was killed: %s", c.number, c.err)
	}
	if detail := c.stderr.flush(); detail != "" {
		err.text += ": " + detail
	}
	if !c.ready {
		p.notReady(err)
		p.giveUp(c.stderr.tail)
	}
	for _, l := range c.lines {
		var again []*pipeRun
		for id, r := range l.run {
			delete(l.run, id)
			switch {
			case r.sent:
				r.died = true
				r.finish(nil, err)
			case r.cancelled:
				r.finish(nil, notTaken(errors.New("no process read it")))
			default:
				r.child = nil
				again = append(again, r)
			}
		}
		if len(again) > 0 {
			slices.SortFunc(again, func(a, b *pipeRun) int { return int(a.id) - int(b.id) })
			p.waiters = append(p.waiters, &waiter{runs: again, whole: len(again) > 1})
		}
	}
	p.place()
	return err
}

// notStarted is a process that could not be started.
func (p *Pipe) notStarted(code int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &failure{text: err.Error(), err: err}
	if code == exitCannotRun || code == exitNotFound {
		f.exit = code
	}
	p.notReady(f)
}

// notReady is a process that ended before it was ready. No message was given to it. Where no other process takes messages, those
// that wait are refused: the breaker opens, and no attempt is spent. A program that cannot be run at all ends the worker.
func (p *Pipe) notReady(err *failure) {
	select {
	case <-p.closing:
		return
	default:
	}
	p.Log.Error("a handler process was not ready", "err", err)
	if err.exit == exitCannotRun || err.exit == exitNotFound {
		if p.broken++; p.broken == brokenLimit && p.Broken != nil {
			p.Broken(fmt.Errorf("%w: %d times in a row: %w", ErrHandlerBroken, brokenLimit, err))
		}
	}
	if len(p.children) == 0 {
		p.refuse(err)
	}
}

// giveUp ends the worker when no process was ever ready in a number of starts. stderr is what the last one wrote.
func (p *Pipe) giveUp(stderr []string) {
	if p.unready++; p.ready || p.unready != startsLimit*p.Processes || p.Broken == nil {
		return
	}
	if len(stderr) == 0 {
		stderr = []string{"(nothing on stderr)"}
	}
	p.Broken(fmt.Errorf("%w: %d were started; the last one wrote:\n  %s", ErrNeverReady, p.unready, strings.Join(stderr, "\n  ")))
}

// give has a process handle messages. The caller holds the lock of the pipe.
func (c *child) give(runs []*pipeRun, alone bool) {
	l := &pipeLine{left: len(runs), run: make(map[uint64]*pipeRun, len(runs))}
	all := make([]*messageLine, len(runs))
	for i, r := range runs {
		r.child = c
		l.run[r.id], c.lines[r.id] = r, l
		all[i] = lineOf(r.id, c.p.Queue, r.a)
	}
	c.load++
	c.alone = alone
	var b []byte
	var err error
	if c.p.Batch > 0 {
		b, err = encodeLine(all)
	} else {
		b, err = encodeLine(all[0])
	}
	if err != nil { // strings, numbers and checked JSON always encode
		c.fail(err)
		return
	}
	c.send(outgoing{b: b, runs: runs})
}

// tell sends a line about a message.
func (c *child) tell(l controlLine) {
	if b, err := encodeLine(l); err == nil {
		c.send(outgoing{b: b})
	}
}

func (c *child) cancel(r *pipeRun, cause error) {
	c.tell(controlLine{Cancel: r.id, Reason: cause.Error()})
}

// extend tells a process of leases that are longer now.
func (c *child) extend() {
	for id, l := range c.lines {
		r := l.run[id]
		if until := r.a.LeaseUntil(); until.After(r.lease) {
			r.lease = until
			until = until.UTC()
			c.tell(controlLine{Extend: id, LeaseExpires: &until})
		}
	}
}

func (c *child) send(o outgoing) {
	c.out = append(c.out, o)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes lines until the process is gone.
func (c *child) write(gone <-chan struct{}) {
	for {
		select {
		case <-gone:
			return
		case <-c.wake:
		}
		for {
			c.p.mu.Lock()
			if len(c.out) == 0 || c.ended || c.err != nil {
				c.p.mu.Unlock()
				break
			}
			var b []byte
			for _, o := range c.out { // as one write
				b = append(b, o.b...)
				for _, r := range o.runs {
					r.sent = true
				}
			}
			c.out = c.out[:0]
			c.p.mu.Unlock()
			if _, err := c.in.Write(b); err != nil {
				break // the process has ended, or will: it closed its stdin
			}
		}
	}
}

// fail kills a process that cannot be trusted any more. The caller holds the lock of the pipe.
func (c *child) fail(why error) {
	if c.err != nil || c.ended {
		return
	}
	c.err, c.ended = why, true
	c.p.children = slices.DeleteFunc(c.p.children, func(other *child) bool { return other == c })
	c.p.Log.Error("killing a handler process", "process", c.number, "pid", c.proc.Pid(), "why", why)
	go func() { _ = c.proc.Stop(c.p.KillGrace) }() // runChild waits for the end
}
