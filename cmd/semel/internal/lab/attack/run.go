package attack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// runner is one run of all attacks.
type runner struct {
	Options
	dir, nonce string
	trials     int
	svc        *service
	proxy      *proxy
	progress   func(string)
	base       map[string]baseline
}

// baseline is what the handler does when nothing goes wrong.
type baseline struct {
	ok bool
	// kinds is how often each kind of effect happens for one message; requests how many of them are at the service.
	kinds    map[string]int
	requests int
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A child's parent-death signal comes when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		rep, err = (&runner{Options: o, progress: progress, base: map[string]baseline{}}).run(ctx)
	}()
	<-done
	return rep, err
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
	_, err := j.count(ctx, nil)
	return err
}

func (r *runner) run(ctx context.Context) (rep Report, err error) {
	began := time.Now()
	r.nonce = strings.ToLower(rand.Text()[:8])
	if r.dir, err = os.MkdirTemp("", "semel-attack-"); err != nil {
		return rep, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(r.dir) }()
	if r.svc, err = listen(r.Listen, r.KeyHeader); err != nil {
		return rep, output.Usage("--listen: %w", err).WithHint("leave it away for a free port")
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
	rep = Report{Handler: r.Handler, Key: r.Key, Seed: r.Seed, Service: r.svc.url}
	for _, g := range r.Guards {
		if err := r.all(ctx, g, &rep); err != nil {
			return rep, err
		}
	}
	rep.sum()
	rep.ElapsedMS = time.Since(began).Milliseconds()
	return rep, nil
}

// all runs the attacks that were asked for, with one guard.
func (r *runner) all(ctx context.Context, guard string, rep *Report) error {
	for _, a := range attacks {
		if a.name != plain && len(r.Only) > 0 && !slices.Contains(r.Only, a.name) {
			continue
		}
		res, err := r.repeated(ctx, a, guard)
		if err != nil {
			return err
		}
		rep.Attacks = append(rep.Attacks, res...)
		if a.name == plain && !r.base[guard].ok {
			last := &rep.Attacks[len(rep.Attacks)-1]
			last.Notes = append(last.Notes, "nothing else was tried: there is no good run to compare it with")
			return nil
		}
	}
	return nil
}

// repeated runs an attack, for several effects where it is about each of them.
func (r *runner) repeated(ctx context.Context, a attack, guard string) ([]Result, error) {
	b := r.base[guard]
	if why := r.cannot(a, guard); why != "" {
		w := a.words(r.HTTP != "")
		return []Result{{Attack: a.name, Guard: guard, Title: w.title, Did: w.did, Exits: []int{}, Verdict: Skipped, Why: why}},
			nil
	}
	first, last := r.which(a, b.requests)
	var out []Result
	for n := first; n <= last; n++ {
		what := guardWord(guard) + a.name
		if last > first {
			what += fmt.Sprintf(" (effect %d of %d)", n, b.requests)
		}
		r.progress(what)
		res, err := r.one(ctx, a, guard, n)
		if err != nil {
			return nil, fmt.Errorf("attack %s: %w", a.name, err)
		}
		if last > first {
			res.Effect = n // of several
		}
		out = append(out, res)
	}
	return out, nil
}

// which are the effects of a run that an attack strikes, one at a time. One that strikes a single effect takes the last:
// then all others have happened; or the first, when it is about what has not happened.
func (r *runner) which(a attack, requests int) (first, last int) {
	switch {
	case a.each && !(a.name == "kill-after" && r.proxy != nil):
		return 1, max(1, min(requests, mostEffects))
	case a.first:
		return 1, 1
	}
	return max(1, requests), max(1, requests)
}

func guardWord(guard string) string {
	if guard == guardOff {
		return "guard off: "
	}
	return ""
}

// cannot says why an attack makes no sense here; "" when it does.
func (r *runner) cannot(a attack, guard string) string {
	switch {
	case a.program && r.HTTP != "":
		return "an endpoint has no process that the attack could kill"
	case a.stops && !canFreeze:
		return "this system cannot stop processes"
	case a.service && r.base[guard].requests == 0:
		return "the handler does not call the service: nothing can go wrong there"
	}
	return ""
}

// one runs one trial and judges it.
func (r *runner) one(ctx context.Context, a attack, guard string, n int) (res Result, err error) {
	s, err := r.newTrial(ctx, a, guard, n)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	began := time.Now()
	if err := a.script(s); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return res, err
	}
	o, err := s.observe()
	if err != nil {
		return res, err
	}
	if a.name == plain {
		r.base[guard] = o.baseline()
		if err := s.cannotRun(o); err != nil {
			return res, err
		}
	}
	res = s.judge(o)
	if b := r.base[guard]; a.name == plain && len(b.kinds) > 0 && res.Verdict != Held {
		b.ok = false
		r.base[guard] = b
	}
	res.ElapsedMS = time.Since(began).Milliseconds()
	return res, nil
}

// cannotRun is an error when the handler, or its worker, could not even be started.
func (s *trial) cannotRun(o *observed) error {
	if p := s.procs[0]; o.runs == 0 && p.ended != 0 {
		return &output.Error{Code: p.class(), Err: fmt.Errorf("the worker ended at once: %s", p.errs.lastLine())}
	}
	for _, e := range o.exits {
		if e.code == 126 || e.code == 127 {
			return output.Usage("the handler cannot be run: %s", e.text).WithHint("check the command, its path and its permissions")
		}
	}
	return nil
}

// share is n for each of keys, rounded up.
func share(n, keys int) int { return int(math.Ceil(float64(n) / float64(keys))) }
