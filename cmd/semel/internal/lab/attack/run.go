package attack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/semeltest/verify"
)

// runner is one run of all attacks.
type runner struct {
	Options
	semel, dir, nonce string // the own program, a folder, a mark
	trials            int
	svc               *service
	proxy             *proxy
	progress          func(string)
	judge             verify.Judge
	base              baseline
}

// baseline is what the handler does when nothing goes wrong.
type baseline struct {
	// seen: it has effects. requests is how many of those of one message are at the service.
	seen     bool
	requests int
	effects  []verify.Effect // of one message
	took     time.Duration
}

// Run attacks a handler. progress gets a short line before each attack; it may be nil. The error is about what could not
// be done; what the handler did wrong is in the report. When ctx ends everything that was started is killed, and the
// error is its cause.
func Run(ctx context.Context, o Options, progress func(string)) (rep Report, err error) {
	if o, err = o.withDefaults(); err != nil {
		return rep, err
	}
	if err := o.checkHandler(ctx); err != nil {
		return rep, err
	}
	if err := o.Journal.check(ctx); err != nil {
		return rep, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	return (&runner{Options: o, progress: progress}).run(ctx)
}

// checkHandler finds out early what would fail in every attack.
func (o Options) checkHandler(ctx context.Context) error {
	if o.HTTP == "" {
		if _, err := exec.LookPath(o.Argv[0]); err != nil {
			return output.Usage("the handler cannot be run: %w", err).WithHint("check the path and its permissions")
		}
		return nil
	}
	u, err := url.Parse(o.HTTP)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return output.Usage("--http %q is no http:// URL", open.Redact(o.HTTP)).WithHint("--http http://127.0.0.1:9000/orders")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return output.Unreachable("no response from %s: %w", open.Redact(o.HTTP), err).WithHint("start the handler first")
	}
	return c.Close()
}

func (j Journal) check(ctx context.Context) error {
	_, err := j.effects(ctx, nil)
	return err
}

func (r *runner) run(ctx context.Context) (rep Report, err error) {
	began := time.Now()
	r.nonce = strings.ToLower(rand.Text()[:8])
	if r.semel, err = os.Executable(); err != nil {
		return rep, fmt.Errorf("find the own program: %w", err)
	}
	if r.dir, err = os.MkdirTemp("", "semel-attack-"); err != nil {
		return rep, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(r.dir) }()
	if r.svc, err = listen(r.Listen, r.KeyHeader); err != nil {
		return rep, fmt.Errorf("--listen: %w", err)
	}
	defer func() { err = errors.Join(err, r.svc.Close()) }()
	if r.HTTP != "" {
		if r.proxy, err = newProxy(r.HTTP); err != nil {
			return rep, err
		}
		defer func() { err = errors.Join(err, r.proxy.Close()) }()
	}
	if r.Ready != nil {
		r.Ready(r.svc.url)
	}
	r.judge.KeyHeader, r.judge.Handles = r.KeyHeader, verify.ProgramHandler
	switch {
	case r.HTTP != "":
		r.judge.Handles = verify.EndpointHandler
	case r.Pipe:
		r.judge.Handles = verify.PipeHandler
	}
	if err := r.all(ctx); err != nil {
		return rep, err
	}
	rep = Report{Handler: r.Handler, Key: r.Key, Seed: r.Seed, Service: r.svc.url, Report: r.judge.Report}
	rep.Verdict, rep.Took = rep.verdict(), time.Since(began)
	return rep, nil
}

// all runs the attacks that were asked for.
func (r *runner) all(ctx context.Context) error {
	for i, a := range attacks {
		if i > 0 && len(r.Only) > 0 && !slices.Contains(r.Only, a.Name()) {
			continue
		}
		if why := r.cannot(a); why != "" {
			r.judge.Skip(a.Kind, why)
			continue
		}
		first, last := r.which(a)
		for n := first; n <= last; n++ {
			what := a.Name()
			if last > first {
				what += fmt.Sprintf(" (effect %d of %d)", n, r.base.requests)
			}
			r.progress(what)
			if err := r.one(ctx, a, n, last > first); err != nil {
				return fmt.Errorf("attack %s: %w", a.Name(), err)
			}
		}
		if f := r.judge.Report.Findings; i == 0 && len(f) > 0 && f[0].Cause != verify.NothingRecorded {
			r.judge.Report.Notes = append(r.judge.Report.Notes,
				"nothing else was tried: there is no good run to compare it with")
			return nil
		}
	}
	return nil
}

// which are the effects of a run that an attack strikes, one at a time. One that strikes a single effect takes the last:
// then all others have happened; or the first, when it is about what has not happened.
func (r *runner) which(a attack) (first, last int) {
	all := max(1, r.base.requests)
	switch {
	case a.each && !(a.Kind == verify.KillAfter && r.proxy != nil):
		return 1, min(all, mostEffects)
	case a.first:
		return 1, 1
	}
	return all, all
}

// cannot says why an attack makes no sense here; "" when it does.
func (r *runner) cannot(a attack) string {
	switch {
	case a.program && r.HTTP != "":
		return "an endpoint has no process that the attack could kill"
	case a.stops && !canFreeze:
		return "this system cannot stop processes"
	case a.service && r.base.requests == 0:
		return "the handler does not call the service: nothing can go wrong there"
	}
	return ""
}

// one runs one trial and has it judged. several: it is one of some that strike one effect each.
func (r *runner) one(ctx context.Context, a attack, n int, several bool) (err error) {
	s, err := r.newTrial(ctx, a, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := a.script(s); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	o, err := s.observe()
	if err != nil {
		return err
	}
	o.Took = time.Since(s.began)
	if a.Kind == verify.Plain {
		r.judge.Plain(o.Trial)
		r.base = s.baseline(o)
		err = s.cannotRun(o)
	} else {
		if several && n <= len(r.base.effects) {
			o.Effect, o.Place = r.base.effects[n-1].Name, n
		}
		r.judge.Judge(o.Trial)
	}
	r.judge.Report.Notes = append(r.judge.Report.Notes, s.notes(o)...)
	return err
}

// baseline takes what one message does from a plain run.
func (s *trial) baseline(o *observed) baseline {
	requests := len(s.svc.got(s.scope))
	return baseline{
		seen: len(o.Effects) > 0, effects: s.judge.Report.Effects[s.keys[0]], took: o.took,
		requests: (requests + len(s.keys) - 1) / len(s.keys),
	}
}

// cannotRun is an error when the handler, or its worker, could not even be started.
func (s *trial) cannotRun(o *observed) error {
	if p := s.procs[0]; o.Runs == 0 && p.failed() {
		return &output.Error{Code: p.class(), Err: fmt.Errorf("the worker ended at once: %s", p.lastLine())}
	}
	for i, code := range o.Exits {
		if code == 126 || code == 127 {
			return output.Usage("the handler cannot be run: %s", o.errs[i]).WithHint("check the command, its path and its permissions")
		}
	}
	return nil
}
