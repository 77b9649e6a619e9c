package crew

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
	"github.com/semel-dev/semel/internal/process"
)

// fleet starts, kills and restarts the worker processes of one run. It belongs to one goroutine.
type fleet struct {
	command []string // program and arguments of a worker process
	env     []string // in addition to the parent's
	spec    func(worker, life int) worker.Spec
	restart time.Duration
	log     *eventlog.Log
	// drains: a process that is to be replaced is asked to, and ends what it has in flight.
	drains bool

	slots []*slot
	// wanted workers run, those after them do not.
	wanted int
	exits  chan *slot
	stderr process.Output
	// kills counts the processes that ended by SIGKILL.
	kills int
}

type slot struct {
	worker, life int
	*process.Process
	stdin     io.Closer
	running   bool
	stopping  bool
	replacing bool
	started   time.Time
	startAt   time.Time // when to start again
}

func newFleet(n int, command []string) *fleet {
	f := &fleet{command: command, exits: make(chan *slot, n), wanted: n, stderr: process.Output{Keep: 2048}}
	for i := range n {
		f.slots = append(f.slots, &slot{worker: i + 1})
	}
	return f
}

// start starts every worker that is due.
func (f *fleet) start(now time.Time) error {
	for _, s := range f.slots {
		if s.running || s.stopping || s.worker > f.wanted || now.Before(s.startAt) {
			continue
		}
		if err := f.spawn(s); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) spawn(s *slot) error {
	s.life++
	spec, err := json.Marshal(f.spec(s.worker, s.life))
	if err != nil {
		return fmt.Errorf("encode the spec of worker %d: %w", s.worker, err)
	}
	cmd := exec.Command(f.command[0], f.command[1:]...) //nolint:noctx // the fleet ends its processes, and waits for them
	cmd.Env = append(os.Environ(), f.env...)
	cmd.Stderr = &f.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start worker %d: %w", s.worker, err)
	}
	if s.Process, err = process.Start(cmd); err != nil {
		return fmt.Errorf("start worker %d: %w", s.worker, err)
	}
	s.stdin, s.running, s.started = stdin, true, time.Now()
	f.log.Add(eventlog.Entry{Kind: eventlog.Spawn, Worker: s.worker, Life: s.life, PID: s.Pid()})
	// A worker that dies at once breaks the pipe; its exit reports that.
	_, _ = stdin.Write(append(spec, '\n'))
	go func() {
		<-s.Done()
		f.exits <- s
	}()
	return nil
}

// warmUp is how long a process lives before it is killed from outside: one that has not begun to work proves nothing.
const warmUp = 250 * time.Millisecond

// ready finds a process that can be struck: nil when there is none yet.
func (f *fleet) ready(worker int, now time.Time) *slot {
	s := f.slots[worker-1]
	if !s.running || s.replacing || now.Sub(s.started) < warmUp {
		return nil
	}
	return s
}

func (f *fleet) note(s *slot, do plan.Action) {
	f.log.Add(eventlog.Entry{
		Kind: eventlog.Strike, Action: string(do), Worker: s.worker, Life: s.life, PID: s.Pid(), Step: plan.Outside,
	})
}

// kill sends SIGKILL from outside. It returns false if there is no process to kill yet.
func (f *fleet) kill(worker int, now time.Time) bool {
	s := f.ready(worker, now)
	if s == nil {
		return false
	}
	f.note(s, plan.Kill)
	return s.Signal(syscall.SIGKILL) == nil
}

// replace ends a process as a deployment does, to be started again.
func (f *fleet) replace(worker int, now time.Time) bool {
	s := f.ready(worker, now)
	if s == nil {
		return false
	}
	f.note(s, plan.Deploy)
	s.replacing = true
	if f.drains {
		return s.stdin.Close() == nil
	}
	return s.Terminate() == nil
}

// scale changes the number of workers. Those that are too many drain.
func (f *fleet) scale(n int) {
	f.wanted = n
	for _, s := range f.slots[n:] {
		if s.running && !s.replacing {
			s.replacing = true
			_ = s.stdin.Close()
		}
	}
}

// freeze stops a process, and returns its id; 0 if there is none yet.
func (f *fleet) freeze(worker int, now time.Time) int {
	s := f.ready(worker, now)
	if s == nil || s.Freeze() != nil {
		return 0
	}
	f.note(s, plan.Freeze)
	return s.Pid()
}

// hold freezes the process with an ID, which waits at a step; [os.ErrProcessDone] if there is none.
func (f *fleet) hold(pid int) error {
	if s := f.byID(pid); s != nil {
		return s.Freeze()
	}
	return os.ErrProcessDone
}

// thaw lets a stopped process go on, if it still lives.
func (f *fleet) thaw(pid int) {
	if s := f.byID(pid); s != nil {
		_ = s.Thaw()
		f.log.Add(eventlog.Entry{Kind: eventlog.Thaw, Worker: s.worker, Life: s.life, PID: pid})
	}
}

func (f *fleet) byID(pid int) *slot {
	for _, s := range f.slots {
		if s.running && s.Pid() == pid {
			return s
		}
	}
	return nil
}

// gone handles an exit. A killed or replaced worker is to be started again; any other end before the stop is an
// error.
func (f *fleet) gone(s *slot, now time.Time) error {
	replaced := s.replacing
	s.running, s.replacing = false, false
	how := "exited"
	switch {
	case s.Killed():
		how = "killed"
		f.kills++
	case replaced:
		how = "replaced"
	}
	f.log.Add(eventlog.Entry{Kind: eventlog.Exit, Worker: s.worker, Life: s.life, PID: s.Pid(), Reason: how})
	switch {
	case how != "exited":
		s.startAt = now.Add(f.restart)
		return nil
	case s.Wait() != nil:
		return fmt.Errorf("worker %d ended by itself: %w: %s", s.worker, s.Wait(), f.errors())
	case !s.stopping:
		return fmt.Errorf("worker %d ended although it was not asked to: %s", s.worker, f.errors())
	}
	return nil
}

// stop asks every worker to drain, waits up to grace, and returns the first error of a worker.
func (f *fleet) stop(grace time.Duration) error {
	for _, s := range f.slots {
		s.stopping = true
		if s.running {
			_ = s.stdin.Close()
		}
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	var first error
	for f.alive() > 0 {
		select {
		case e := <-f.exits:
			if err := f.gone(e, time.Now()); err != nil && first == nil {
				first = err
			}
		case <-late.C:
			n := f.alive()
			f.abandon()
			return fmt.Errorf("%d workers did not drain within %s", n, grace)
		}
	}
	return first
}

// abandon kills what still runs and waits for it: after it no worker process is left.
func (f *fleet) abandon() {
	for _, s := range f.slots {
		s.stopping = true
		if s.running {
			_ = s.Signal(syscall.SIGKILL)
		}
	}
	for f.alive() > 0 {
		(<-f.exits).running = false
	}
}

func (f *fleet) alive() (n int) {
	for _, s := range f.slots {
		if s.running {
			n++
		}
	}
	return n
}

// errors is the end of what the workers wrote to standard error.
func (f *fleet) errors() string { return strings.TrimSpace(f.stderr.String()) }

// scaler lets the number of workers follow the backlog, as target tracking does: the backlog divided by what one worker
// may have, one worker more or less at a time.
type scaler struct {
	plan.Scale
	max  int
	next time.Time
}

// look samples, and decides when it is time. sending reports whether the load is still coming in.
func (s *scaler) look(backlog int, sending bool, f *fleet, log *eventlog.Log, now time.Time) {
	if s.Backlog == 0 || now.Before(s.next) {
		return
	}
	s.next = now.Add(s.Every)
	n := f.wanted
	if sending {
		log.Add(eventlog.Entry{Kind: eventlog.Depth, Count: backlog, Workers: n})
	}
	want := min(max((backlog+s.Backlog-1)/s.Backlog, s.From), s.max)
	switch {
	case want > n:
		f.scale(n + 1)
	case want < n-1: // one to spare, or it would come and go
		f.scale(n - 1)
	}
}
