package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/process"
)

// The exit codes of handlers (docs/worker.md).
const (
	exitOK          = 0
	exitData        = 65 // EX_DATAERR
	exitUnavailable = 69 // EX_UNAVAILABLE: the downstream is not there; the engine's breaker counts it
	exitTempFail    = 75 // EX_TEMPFAIL
	exitCannotRun   = 126
	exitNotFound    = 127
)

// exits are what exit codes say; all others say retry. 64 is EX_USAGE.
var exits = map[int]verdict{
	exitOK: verdictDone, 64: verdictDead, exitData: verdictDead, exitUnavailable: verdictUnavailable, exitTempFail: verdictLater, 99: verdictDrop,
}

// brokenLimit is how many configuration errors in a row end the worker.
const brokenLimit = 3

// ErrHandlerBroken is why a worker stops by itself: its handler cannot be run at all.
var ErrHandlerBroken = errors.New("the handler cannot be run")

// errNoRoom: the system has no room for another process or file just now. Nothing was run, and it is nobody's attempt.
var errNoRoom = errors.New("the handler cannot be started now")

// noRoomPause is after how long a message is tried again that there was no room for.
const noRoomPause = 2 * time.Second

// Exec runs a program for each message. Its methods may be called concurrently.
type Exec struct {
	// Argv is the program with its arguments; for a shell command: /bin/sh -c CMD.
	Argv  []string
	Queue string
	// Keep is how many bytes of stdout are kept.
	Keep int
	// KillGrace is between SIGTERM and SIGKILL when a run is cancelled.
	KillGrace time.Duration
	Log       *slog.Logger
	// Broken is called once when the handler could not be run brokenLimit times in a row.
	Broken func(error)
	// Guard kills running process groups if this worker dies; nil: none does.
	Guard *Guard

	// Retry are the user's rules: where one matches, the exit status has no meaning of its own but that of the rule.
	Retry []semel.RetryRule

	once   sync.Once
	broken atomic.Int32
	base   []string
}

// Shell is the argv of a shell command.
func Shell(cmd string) []string { return []string{"/bin/sh", "-c", cmd} }

func (e *Exec) init() { e.once.Do(func() { e.base = handlerEnviron() }) }

// handlerEnviron is the worker's environment as handlers get it. What semel tells handlers is set per attempt; anything of
// that name in the worker's own environment, its settings included, is not the handler's business. Nor is the trace in which
// the worker itself was started.
func handlerEnviron() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "SEMEL_") && !traceContext(name) {
			env = append(env, kv)
		}
	}
	return env
}

// Run implements Runner.
func (e *Exec) Run(ctx context.Context, a *semel.Attempt) ([]byte, bool, error) {
	e.init()
	out := &capture{max: e.Keep}
	code, detail, err := e.spawn(ctx, a, out)
	result, cut := out.got()
	return result, cut, e.outcome(ctx, code, detail, err)
}

// outcome translates the end of a process into the vocabulary of handlers.
func (e *Exec) outcome(ctx context.Context, code int, detail string, err error) error {
	if errors.Is(err, errNoRoom) {
		return semel.Deferred(err, noRoomPause)
	}
	said, known := exits[code]
	if !known {
		said = verdictRetry
	}
	if cause := context.Cause(ctx); cause != nil && !said.declared() {
		return fmt.Errorf("handler stopped: %w", cause)
	}
	text := fmt.Sprintf("handler exited %d", code)
	if code == exitCannotRun || code == exitNotFound {
		return e.cannotRun(code, withDetail(errors.New(text), detailOf(detail, err)))
	}
	e.broken.Store(0)
	if f := (*failure)(nil); code < 0 && errors.As(err, &f) {
		return withDetail(err, detail)
	}
	fail := error(&failure{exit: code, text: withDetail(errors.New(text), detail).Error()})
	switch {
	case code > 0 && ruled(e.Retry, fail) != nil:
		if said == verdictDead || said == verdictLater {
			return semel.NotApplied(fail)
		}
		return fail
	case !known && err != nil:
		return withDetail(err, detail)
	}
	return said.outcome(fail, cmp.Or(detail, text), nil)
}

func detailOf(detail string, err error) string {
	if detail == "" && err != nil {
		return err.Error()
	}
	return detail
}

// cannotRun is a mistake in the configuration and no attempt. The message is redelivered. After some such errors in a row the
// worker stops, because every message would fail.
func (e *Exec) cannotRun(code int, err error) error {
	n := e.broken.Add(1)
	e.Log.Error("the handler cannot be run", "code", code, "in_a_row", n, "err", err)
	if n == brokenLimit && e.Broken != nil {
		e.Broken(fmt.Errorf("%w: %d times in a row: %w", ErrHandlerBroken, n, err))
	}
	return semel.Deferred(err, min(100*time.Millisecond<<min(n, 8), 10*time.Second))
}

// spawn runs the process to its end. The code is its exit code, or -1 when a signal ended it (err says which) or a temporary
// shortage kept it from starting.
func (e *Exec) spawn(ctx context.Context, a *semel.Attempt, out *capture) (code int, detail string, err error) {
	stderr := &lineLog{emit: func(line string) {
		e.Log.Info(line, "source", "handler", "key", a.Key.Raw, "attempt", a.Number)
	}}
	cmd := exec.Command(e.Argv[0], e.Argv[1:]...)
	run := e.Guard.starting()
	defer e.Guard.ended(run)
	cmd.Env = e.environ(a)
	if run != "" {
		cmd.Env = append(cmd.Env, runVariable+"="+run)
	}
	cmd.Stdin = bytes.NewReader(a.Body)
	cmd.Stdout, cmd.Stderr = out, stderr
	// A process that the handler left behind may hold stdout open; it is not waited for.
	cmd.WaitDelay = 500 * time.Millisecond

	p, err := process.Start(cmd)
	if err != nil {
		return startFailure(err)
	}
	e.Guard.started(run, p.Pid())
	stop := e.superviseCancel(ctx, p.Pid())
	err = p.Wait()
	stop()
	detail = stderr.flush()
	if cmd.ProcessState == nil {
		return -1, detail, fmt.Errorf("wait for handler: %w", err)
	}
	if code = cmd.ProcessState.ExitCode(); code >= 0 {
		return code, detail, nil
	}
	ended := &failure{text: fmt.Sprintf("handler ended by %s", cmd.ProcessState)}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		ended.signal = ws.Signal()
	}
	return -1, detail, ended
}

// superviseCancel ends the process group when ctx does: SIGTERM, grace, SIGKILL. The function it returns ends the
// supervision; after a cancelled run it also kills what is left of the group.
func (e *Exec) superviseCancel(ctx context.Context, pid int) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		e.Log.Warn("stopping the handler", "pid", pid, "why", context.Cause(ctx))
		_ = process.SignalGroup(pid, syscall.SIGTERM)
		t := time.NewTimer(e.KillGrace)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
		}
		_ = process.SignalGroup(pid, syscall.SIGKILL)
	}()
	return func() {
		close(done)
		<-gone
	}
}

// startFailure classes what exec says when it cannot start a program.
func startFailure(err error) (int, string, error) {
	switch {
	case errors.Is(err, syscall.E2BIG):
		return exitData, "the message's headers are too large for the environment of a process (SEMEL_HEADERS)", err
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return exitNotFound, err.Error(), err
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE),
		errors.Is(err, syscall.ENFILE):
		// No code of a handler: a probe's 75 would say that the effect did not happen.
		return -1, "", fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return exitCannotRun, err.Error(), err
}

// environ is the environment of one attempt.
func (e *Exec) environ(a *semel.Attempt) []string {
	env := e.base[:len(e.base):len(e.base)]
	for _, id := range identities(e.Queue, a) {
		env = append(env, "SEMEL_"+id.name+"="+noNUL(id.value))
	}
	for _, name := range traceHeaders {
		if v := a.Header(name); v != "" {
			env = append(env, strings.ToUpper(name)+"="+noNUL(v))
		}
	}
	return append(env, "SEMEL_HEADERS="+noNUL(headersJSON(a.Headers)))
}

// traceHeaders carry the sender's trace context (W3C Trace Context and Baggage). In an environment their names are in upper
// case (OpenTelemetry, "Environment Variables as Context Propagation Carriers").
var traceHeaders = [...]string{"traceparent", "tracestate", "baggage"}

func traceContext(name string) bool {
	return slices.ContainsFunc(traceHeaders[:], func(h string) bool { return strings.EqualFold(h, name) })
}

// noNUL replaces what no environment can hold.
func noNUL(s string) string { return strings.ReplaceAll(s, "\x00", "\uFFFD") }

// Ask makes a probe of a program, for a consumer: see Probe.
func (e *Exec) Ask(ctx context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
	return ask(ctx, e, a)
}

// Probe implements Prober: exit 0 says that the effect happened (stdout is the result), 75 that it did not, and anything
// else that it is unknown.
func (e *Exec) Probe(ctx context.Context, a *semel.Attempt) (semel.ProbeResult, []byte, error) {
	e.init()
	out := &capture{max: e.Keep}
	code, detail, err := e.spawn(ctx, a, out)
	switch code {
	case exitOK:
		result, _ := out.got()
		return semel.ProbeApplied, result, nil
	case exitTempFail:
		return semel.ProbeNotApplied, nil, nil
	}
	if err == nil {
		err = fmt.Errorf("probe exited %d", code)
	}
	if err = withDetail(err, detail); code == exitUnavailable {
		err = semel.Unavailable(err) // it can be asked later: that is no doubt
	}
	return semel.ProbeUnknown, nil, err
}
