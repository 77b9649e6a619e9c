package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
	osprocess "github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/ops"
)

const (
	// tick is how often a trial looks.
	tick = 10 * time.Millisecond
	// longVisibility is that of trials that wait for no takeover: nothing may come again by itself.
	longVisibility = 60 * time.Second
	// attempts is how many runs a message has.
	attempts = 4
	// drainTime is how long a worker may take to stop.
	drainTime = 15 * time.Second
	// lateTime is how long processes that a handler left behind are waited for: they may still have an effect.
	lateTime = time.Second
)

// trial is one attack on fresh keys: a queue, worker processes, and what they leave.
type trial struct {
	*runner
	attack attack
	// nth is the effect of a run that the attack is about, from 1.
	nth int
	dir string

	db    *sqlite.DB
	queue *sqlite.Queue
	store *sqlite.Store
	scope *scope
	texts map[string]string
	ctx   context.Context //nolint:containedctx // the trial's deadline, which all of its steps share
	began time.Time
	until time.Time
	keys  []string
	sent  []driver.Message
	procs []*process

	visibility, timeout, grace time.Duration
	maxAttempts                int

	// struck: the fault came to pass. unsettled: messages were left at the deadline.
	struck, unsettled bool
	left              []leftover
}

func (r *runner) newTrial(ctx context.Context, a attack, nth int) (*trial, error) {
	r.trials++
	s := &trial{
		runner: r, attack: a, nth: nth, dir: filepath.Join(r.dir, fmt.Sprintf("%02d-%s", r.trials, a.Name())),
		texts: map[string]string{}, visibility: longVisibility, timeout: r.Timeout, grace: drainTime / 2,
		maxAttempts: attempts, ctx: ctx, began: time.Now(),
	}
	if a.takeover {
		s.visibility = r.Lease
	}
	s.until = time.Now().Add(time.Duration(attempts)*(s.timeout+2*time.Second) + 4*r.Lease + 20*time.Second)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the attack: %w", err)
	}
	var err error
	if s.db, err = sqlite.Open(ctx, s.path("queue.db"), sqlite.Options{Create: true, Visibility: s.visibility}); err != nil {
		return nil, err
	}
	s.queue, s.store = s.db.Queue(queueName), s.db.Store()
	for i := range max(a.keys, 1) {
		s.keys = append(s.keys, fmt.Sprintf("%s-%s-%d", a.Name(), r.nonce+fmt.Sprint(r.trials), i+1))
	}
	for _, k := range s.keys {
		for _, id := range []string{k, copyOf(k)} {
			s.texts[id] = k
			if raw, err := r.rawKey(r.message(k, id)); err == nil {
				s.texts[raw], s.texts[effectKey(raw)] = k, k
			}
		}
	}
	s.scope = r.svc.open(fmt.Sprintf("attack-%d", r.trials), s.texts)
	if r.proxy != nil {
		r.proxy.begin()
	}
	return s, nil
}

// copyOf is the message id of a producer's second copy.
func copyOf(key string) string { return "again-" + key }

func (s *trial) path(name string) string { return filepath.Join(s.dir, name) }

// close ends everything that the trial started, and whatever the handler left. Handlers that run die with their worker.
func (s *trial) close() error {
	for _, p := range s.procs {
		p.Kill()
	}
	s.sweep()
	return s.db.Close()
}

// sweep kills what carries the mark of this attack, until nothing does.
func (s *trial) sweep() {
	for quiet := 0; quiet < 2; time.Sleep(2 * time.Millisecond) {
		all := leftovers(s.nonce, nil)
		if quiet++; len(all) > 0 {
			quiet = 0
		}
		for _, l := range all {
			if p, err := os.FindProcess(l.pid); err == nil {
				_ = p.Kill()
			}
		}
	}
}

// wait looks until ok, or until the trial's deadline (false).
func (s *trial) wait(ok func() (bool, error)) (bool, error) {
	for {
		if err := s.ctx.Err(); err != nil {
			return false, context.Cause(s.ctx)
		}
		done, err := ok()
		if done || err != nil {
			return done, err
		}
		if time.Now().After(s.until) {
			return false, nil
		}
		time.Sleep(tick)
	}
}

// send puts messages into the queue.
func (s *trial) send(m ...driver.Message) error {
	s.sent = append(s.sent, m...)
	if err := s.queue.Send(s.ctx, m...); err != nil {
		return fmt.Errorf("send %d messages: %w", len(m), err)
	}
	return nil
}

// first is the first copy of every key's message.
func (s *trial) first() (out []driver.Message) {
	for _, k := range s.keys {
		out = append(out, s.message(k, k))
	}
	return out
}

// begin sends the first copies and starts a worker.
func (s *trial) begin() error {
	if err := s.send(s.first()...); err != nil {
		return err
	}
	_, err := s.worker()
	return err
}

// worker starts a worker process.
func (s *trial) worker() (*process, error) {
	p, err := s.start(s.workArgs())
	if err != nil {
		return nil, err
	}
	s.procs = append(s.procs, p)
	return p, nil
}

var inURL = strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23")

func (s *trial) workArgs() []string {
	args := []string{
		"work", "--queue", "sqlite:" + inURL.Replace(s.path("queue.db")) + "?queue=" + queueName, "--consumer", queueName, "--key",
		s.Key,
		"--visibility", s.visibility.String(), "--timeout", s.timeout.String(), "--kill-grace", killGrace(s.visibility).String(),
		"--grace", s.grace.String(), "--max-attempts", fmt.Sprint(s.maxAttempts), "--backoff", "100ms..500ms",
		"--breaker-open", "200ms..1s", "--events", s.path("events.jsonl"), "--idle-timeout", "0", "--limit", "0",
		"--batch", "20", "--concurrency", "8", "--log-level", "warn", "--log-format", "json", "-o", "none",
	}
	args = append(args, s.Work...)
	if s.HTTP != "" {
		return append(args, "--http", s.proxy.url)
	}
	argv := s.shimmed(s.path("runs"), s.handlerArgv())
	if s.Pipe { // one process, one message at a time: a kill is of one run
		return append(args, "--pipe", "exec "+shellQuoted(argv), "--processes", "1", "--in-flight", "1")
	}
	return append(append(args, "--"), argv...)
}

// shellQuoted is a command line for /bin/sh.
func shellQuoted(argv []string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// killGrace leaves a cancelled handler a moment, and ends well before the lease does.
func killGrace(visibility time.Duration) time.Duration { return min(time.Second, visibility/4) }

// handlerArgv is the handler's program, with its own variables before it.
func (s *trial) handlerArgv() []string {
	url := s.svc.url + "/" + s.scope.name
	argv := []string{"env", URLVariable + "=" + url}
	for _, kv := range s.Env {
		argv = append(argv, strings.ReplaceAll(kv, "{url}", url))
	}
	return append(argv, s.Argv...)
}

// settled waits until the queue is empty, then for what the handler left behind, and stops the workers.
func (s *trial) settled() error {
	var last int64
	ok, err := s.wait(func() (bool, error) {
		st, err := s.queue.Stats(s.ctx)
		if err != nil {
			return false, fmt.Errorf("look at the queue: %w", err)
		}
		last = st.Visible + st.InFlight + st.Delayed
		return st.Empty() || !s.anyWorker(), nil
	})
	if err != nil {
		return err
	}
	s.unsettled = !ok || last > 0
	s.lateEffects()
	for _, p := range s.procs {
		if p.Running() {
			p.drain(drainTime)
		}
	}
	return nil
}

func (s *trial) anyWorker() bool {
	for _, p := range s.procs {
		if p.Running() {
			return true
		}
	}
	return false
}

// lateEffects gives processes that the handler left behind the time to have their effects.
func (s *trial) lateEffects() {
	end := time.Now().Add(lateTime)
	for first := true; ; first = false {
		left := leftovers(s.nonce, s.workersTree())
		if first || len(s.left) == 0 {
			s.left = left
		}
		if len(left) == 0 || time.Now().After(end) || s.ctx.Err() != nil {
			return
		}
		time.Sleep(5 * tick)
	}
}

// workersTree are the workers that run, with their handlers: one may be about to end, one that keeps running is not left behind.
func (s *trial) workersTree() map[int]bool {
	all := map[int]bool{}
	var add func(pid int)
	add = func(pid int) {
		all[pid] = true
		children, _ := osprocess.Children(pid) // none: it has ended
		for _, c := range children {
			add(c)
		}
	}
	for _, p := range s.procs {
		if p.Running() {
			add(p.Pid())
		}
	}
	return all
}

// events reads what the workers wrote.
func (s *trial) events() (out []ops.EventLine, err error) {
	err = ops.ReadEvents(s.path("events.jsonl"), func(l ops.EventLine) { out = append(out, l) })
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	return out, nil
}
