package verify

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// Process is one process of the program in one schedule: it records what the process does to the world, and makes it
// fail. Its methods may be called from several goroutines.
//
// A process that dies does so for good: the goroutine that is doing an effect ends there (deferred functions run),
// every other one ends at its next effect, its SQL transactions are rolled back, and none of its writes reaches queue
// or store any more.
type Process struct {
	w      *execution
	number int
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of its start

	// Guarded by execution.mu.
	dead    bool
	phase   string // what it does outside of a run
	around  bool   // a middleware records when a run begins and ends
	running int
	runs    int
	holding int
	seen    map[string]int
	begun   int // SQL transactions
	stop    context.CancelCauseFunc
	cause   error
	conns   map[*conn]bool

	queue *shellQueue
	store *shell

	// Guarded by execution.mu.
	ends    []func()
	cleaned bool
}

// Effect does one effect that is neither HTTP nor SQL: it calls do, or not, and may lose its result. name identifies the
// effect and is the same in every run; key is what the other side deduplicates by, "" when it does not. An error of do
// means that the effect did not happen.
func (p *Process) Effect(name, key string, do func() error) error {
	return p.effect(Effect{Name: name, Key: key}, func() (bool, error) {
		err := do()
		return err == nil, err
	})
}

// OnEnd has f called when the schedule ends, the last first: to close what the process opened. If the schedule has
// already ended, f is called at once.
func (p *Process) OnEnd(f func()) {
	p.w.mu.Lock()
	late := p.cleaned
	if !late {
		p.ends = append(p.ends, f)
	}
	p.w.mu.Unlock()
	if late {
		f()
	}
}

// cleanUp calls what OnEnd was given.
func (p *Process) cleanUp() {
	p.w.mu.Lock()
	ends := p.ends
	p.ends, p.cleaned = nil, true
	p.w.mu.Unlock()
	for _, end := range slices.Backward(ends) {
		end()
	}
}

// die ends the process. It does not return when the caller is one of the process's own goroutines.
func (p *Process) die() {
	p.kill()
	runtime.Goexit()
}

// kill is die for the goroutines of the engine.
func (p *Process) kill() {
	var stop context.CancelCauseFunc
	var conns []*conn
	p.w.update(func() {
		p.dead = true
		stop = p.stop
		for c := range p.conns {
			conns = append(conns, c)
		}
	})
	p.cancel()
	if stop != nil {
		stop(semel.ErrDraining) // for calls that wait for this context
	}
	p.store.abandon()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(c.cut)
	}
	closed := make(chan struct{})
	go func() { wg.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(time.Second): // a call that does not return keeps its connection
	}
}

// ended reports whether the context of the present run has ended.
func (p *Process) ended() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.running > 0 && p.cause != nil
}

// in marks what the process does outside of a run.
func (p *Process) in(phase string) (out func()) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	before := p.phase
	p.phase = phase
	return func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.phase = before
	}
}

// middleware records when runs begin and end, and ends their context when the schedule wants it.
func (p *Process) middleware(ctx context.Context, _ *semel.Attempt, next func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.w.update(func() { p.running, p.runs, p.stop, p.cause = p.running+1, p.runs+1, stop, nil })
	defer p.w.update(func() { p.running, p.stop = p.running-1, nil })
	err := next(ctx)
	if err == nil && p.strikes(RunFails) {
		return errNoReply
	}
	return err
}

// fence ends the context of the present run, as the engine does when it finds the lease lost.
func (p *Process) fence() {
	var stop context.CancelCauseFunc
	p.w.update(func() { stop, p.cause = p.stop, semel.ErrFenced })
	if stop != nil {
		stop(semel.ErrFenced)
	}
}

// strikes reports whether a fault that aims at no effect strikes now; it strikes once.
func (p *Process) strikes(k Kind) (hit bool) {
	p.w.update(func() {
		if p.number == 1 && p.w.fault.kind == k && !p.w.struck && !p.dead {
			p.w.struck, hit = true, true
		}
	})
	return hit
}

// configure makes the program's Config one of this process.
func (p *Process) configure(cfg semel.Config) semel.Config {
	if cfg.Queue == nil && cfg.Store == nil {
		cfg.Queue, cfg.Store = p.w.mem.Queue("verify"), p.w.mem.Store()
	}
	if cfg.Queue == nil {
		cfg.Queue = p.w.mem.Queue("verify")
	}
	if cfg.Store == nil {
		cfg.Store = p.w.mem.Store()
	}
	p.queue = newShellQueue(p, cfg.Queue)
	cfg.Queue, cfg.Store = p.queue, p.Store(cfg.Store)
	// One message at a time, and no timer of the engine disturbs a schedule.
	cfg.Concurrency, cfg.Batch, cfg.Committers, cfg.Limit = 1, 1, 1, 0
	cfg.Visibility, cfg.Grace = time.Minute, time.Millisecond
	cfg.Backoff = semel.Backoff{Min: time.Millisecond, Max: time.Millisecond}
	if cfg.Key == nil {
		cfg.Key = key.ByID
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler) // schedules fail on purpose: the report has the failures that matter
	}
	key, tenant, fingerprint, probe := cfg.Key, cfg.Tenant, cfg.Fingerprint, cfg.Probe
	cfg.Key = func(m *semel.Message) (string, error) {
		defer p.in("Config.Key")()
		return key(m)
	}
	if tenant != nil {
		cfg.Tenant = func(m *semel.Message) string {
			defer p.in("Config.Tenant")()
			return tenant(m)
		}
	}
	if fingerprint != nil {
		cfg.Fingerprint = func(m *semel.Message) (semel.Fingerprint, error) {
			defer p.in("Config.Fingerprint")()
			return fingerprint(m)
		}
	}
	if probe != nil {
		cfg.Probe = func(ctx context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
			defer p.in(inProbe)()
			return probe(ctx, a)
		}
	}
	return cfg
}

const inProbe = "Config.Probe"

// Store makes a store one of this process, for [Options.Serve]; nil is one in memory that the processes of a schedule
// share.
func (p *Process) Store(s semel.Store) semel.Store {
	if s == nil {
		s = p.w.mem.Store()
	}
	p.store = newShell(p, s)
	return p.store
}

// expireLeases ends the leases of the process now, as time would: by extending them to the present.
func (p *Process) expireLeases() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.store.expire(ctx)
}

// expireDeliveries does the same to what it received.
func (p *Process) expireDeliveries() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.queue.expire(ctx)
}

// soon is the rest of a lease or delay that the schedule lets pass.
const soon = time.Millisecond

func allLost(n int) []driver.Outcome {
	out := make([]driver.Outcome, n)
	for i := range out {
		out[i] = driver.Lost
	}
	return out
}
