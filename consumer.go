package semel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Consumer takes deliveries from a queue and makes each key take effect once. It is the goroutine shell around the
// engine: every decision is made by internal/machine, which one goroutine owns; this shell only performs its actions.
// A delivery's way: receive (io.go) → the machine (internal/machine) → the handler (run.go) → the machine → finish and
// settle (io.go).
type Consumer struct {
	cfg   Config
	mode  machine.Mode
	queue driver.QueueFeatures
	store driver.StoreFeatures
	// records is what the engine claims by: the configured store, or what claims two keys in it.
	records driver.Store
	// committer, transactor and tx are the optional sides of records and handler, asserted once; nil when absent.
	committer  driver.Committer
	transactor driver.Transactor
	meter      driver.Meter  // nil unless the store is paid by use
	cached     driver.Cached // nil unless the store has a front
	tx         transactional
	batch      batched
	joins      bool
	handle     func(ctx context.Context, a *Attempt) error
	rules      ruleSet
	// keepsDuplicates: the store has a driver.DuplicateLog.
	keepsDuplicates bool

	mu      sync.Mutex
	running bool
	summary Summary
	load    Load
	speed   speedometer
}

// New checks a configuration and makes a consumer of it. It does no I/O. Errors are *ConfigError, or wrap ErrNoTx when
// the handler's transaction is none that the store offers.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, queue: cfg.Queue.Features(), store: cfg.Store.Features(), rules: newRuleSet(&cfg)}
	if !c.queue.DeadLetters {
		return nil, &ConfigError{"Queue", fmt.Sprintf("(%s) keeps no dead letters, so a message that fails for good could only be lost or "+
			"come forever", c.queue.Name), "keep them in a store (PostgreSQL, SQLite: package deadletter), or give an SQS queue a dead-letter queue"}
	}
	c.meter, _ = driver.As[driver.Meter](cfg.Store)
	c.cached, _ = driver.As[driver.Cached](cfg.Store)
	_, c.keepsDuplicates = driver.As[driver.DuplicateLog](cfg.Store)
	if err := c.claiming(); err != nil {
		return nil, err
	}
	c.tx, _ = cfg.Handler.(transactional)
	c.batch, _ = cfg.Handler.(batched)
	if c.batch != nil && len(cfg.Middleware) > 0 {
		return nil, &ConfigError{"Middleware", "is set, and it is called around the run of one message, which an InTxBatch " +
			"handler has not", "wrap the function that is given to InTxBatch"}
	}
	if c.tx != nil && cfg.AllowUnkeyed {
		return nil, &ConfigError{"AllowUnkeyed", "is set, and the effects of an InTx handler commit with a record, which a " +
			"message without a key has not", "use a HandlerFunc, or let such messages become dead letters"}
	}
	switch {
	case c.tx != nil && c.committer != nil && c.tx.queued(c.committer):
	case c.tx != nil && c.transactor != nil && c.tx.open(c.committer, c.transactor):
		c.mode = machine.Open
	case c.tx != nil:
		return nil, fmt.Errorf("handler wants a transaction of type %s, store %s: %w", c.tx.kind(), c.store.Name, ErrNoTx)
	}
	if c.mode != machine.Open && c.joins {
		c.mode = machine.Joined
	}
	if check, ok := cfg.Handler.(StoreChecker); ok {
		if err := check.CheckStore(cfg.Store); err != nil {
			return nil, err
		}
	}
	c.handle = cfg.Handler.Handle
	if len(cfg.Middleware) > 0 {
		c.handle = chain(cfg.Middleware, c.innermost)
	}
	return c, nil
}

// chain wraps a handler in its middleware, the first outermost.
func chain(mw []Middleware, next func(context.Context, *Attempt) error) func(context.Context, *Attempt) error {
	for i := len(mw) - 1; i >= 0; i-- {
		around, inner := mw[i], next
		next = func(ctx context.Context, a *Attempt) error {
			return around(ctx, a, func(ctx context.Context) error { return inner(ctx, a) })
		}
	}
	return next
}

// innermost calls the handler for a middleware, which may call it again (to retry at once, say) or make a success of its
// failure. Only what a successful call queued counts, and of several the last.
func (c *Consumer) innermost(ctx context.Context, a *Attempt) error {
	ok, from := false, len(a.emit)
	fresh := func() {
		if c.tx != nil && c.mode != machine.Open {
			a.tx = c.tx.buffer(c.committer)
		}
	}
	if a.called {
		fresh()
		a.emit = slices.Delete(a.emit, a.emitFrom, a.emitTo)
		from = len(a.emit)
	}
	defer func() {
		if !ok {
			a.emit = a.emit[:from]
			fresh()
		}
		a.called, a.emitFrom, a.emitTo = true, from, len(a.emit)
	}()
	err := c.cfg.Handler.Handle(ctx, a)
	ok = err == nil
	return err
}

// Summary counts what this consumer did so far. It may be called at any time.
func (c *Consumer) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.summary
}

// Run consumes until ctx is done, then drains: what has not started is returned at once, what runs may take
// Config.Grace and is cancelled after it. It returns nil after a clean stop or when Config.Limit is reached, and a
// *HandlerStuckError when handlers ignored their cancellation. Outages of queue and store do not end it: polling
// pauses, deliveries in flight are kept, and it resumes by itself. A consumer runs once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errors.New("semel: consumer is running already")
	}
	c.running = true
	c.speed.start(time.Now(), handled(&c.summary))
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running, c.load = false, Load{Slots: c.load.Slots, Breaker: c.load.Breaker}
		c.mu.Unlock()
	}()
	level := slog.LevelInfo
	if !c.cfg.Until.IsZero() {
		level = slog.LevelDebug // one of many invocations of a function
	}
	c.cfg.Logger.Log(ctx, level, "consumer started", "store", c.store.Name, "concurrency", c.cfg.Concurrency)
	return newRunner(ctx, c).loop(ctx)
}

// runner is one Run: the owner of the machine and the goroutines that perform its actions.
type runner struct {
	*Consumer
	m     *machine.Machine
	began time.Time

	// io outlives the caller's ctx, so that finishing and settling work while draining; receiving ends with the drain.
	io, receiving context.Context
	stopIO        context.CancelCauseFunc
	stopReceiving context.CancelFunc

	inboxMu sync.Mutex
	inbox   []machine.Event
	signal  chan struct{}

	wg       sync.WaitGroup // everything but handlers
	handlers sync.WaitGroup
	jobs     chan order
	workers  int
	open     []openTx
	arrivals []machine.Arrival // of the latest receive
	first    driver.Units      // of the store's meter when this run began
	metered  driver.Units      // when it was read last
	hits     int64             // of the store's front when this run began
	sweeps   sweepTally        // guarded by mu
	copies   *duplicateLog     // nil where the store keeps none
	seed     [64 * 16]byte
	seeded   int
}

func newRunner(ctx context.Context, c *Consumer) *runner {
	r := &runner{Consumer: c, began: time.Now(), signal: make(chan struct{}, 1)}
	r.io, r.stopIO = context.WithCancelCause(context.WithoutCancel(ctx))
	r.receiving, r.stopReceiving = context.WithCancel(ctx)
	r.jobs = make(chan order, c.cfg.Concurrency+c.cfg.Committers)
	r.open = make([]openTx, c.cfg.Committers)
	r.m = machine.New(c.machineConfig(r.nonce))
	r.copies = newDuplicateLog(c.cfg.Store, c.queue.Name)
	if c.meter != nil {
		r.first = c.meter.Consumed()
		r.metered = r.first
	}
	if c.cached != nil {
		r.hits = c.cached.CacheStats().Hits
	}
	return r
}

// nonce draws 128 random bits; the generator is asked for many at once.
func (r *runner) nonce() (n driver.Nonce) {
	if r.seeded == 0 {
		_, _ = rand.Read(r.seed[:]) // never fails: crypto/rand
		r.seeded = len(r.seed)
	}
	r.seeded -= len(n)
	copy(n[:], r.seed[r.seeded:])
	return n
}

func (r *runner) now() time.Duration { return time.Since(r.began) }

// post hands an answer to the owner. It never blocks.
func (r *runner) post(ev machine.Event) {
	r.inboxMu.Lock()
	r.inbox = append(r.inbox, ev)
	r.inboxMu.Unlock()
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// collect takes what arrived, and leaves the slice of the events before for what comes.
func (r *runner) collect(done []machine.Event) []machine.Event {
	r.inboxMu.Lock()
	defer r.inboxMu.Unlock()
	arrived := r.inbox
	r.inbox = done[:0]
	return arrived
}

// loop is the owner: it steps the machine with everything that arrived since the last step, performs what it says, and
// sleeps until something happens.
func (r *runner) loop(ctx context.Context) error {
	defer r.stopIO(ErrDraining)
	var (
		events  []machine.Event
		actions []machine.Action
		timer   = time.NewTimer(0)
		done    = ctx.Done()
	)
	defer timer.Stop()
	r.wg.Go(func() { r.sweep(r.receiving) })
	for {
		actions = r.m.Steps(r.now(), events, actions[:0])
		for i := range actions {
			if actions[i].Kind == machine.ActionStop {
				return r.stop(actions[i].Stuck)
			}
			r.perform(&actions[i])
		}
		clear(actions)
		r.tellCalls(events)
		clear(events)
		r.publish()
		if events = r.collect(events); len(events) > 0 {
			continue
		}
		timer.Reset(max(r.m.Next()-r.now(), 0))
		select {
		case <-r.signal:
		case <-timer.C:
		case <-done:
			done = nil
			r.stopReceiving()
			r.post(machine.Event{Kind: machine.Drain})
		}
		events = r.collect(events)
	}
}

// stop ends the goroutines. Handlers that ignored their cancellation are left behind, and counted.
func (r *runner) stop(stuck int) error {
	r.copies.close()
	r.publish()
	r.stopReceiving()
	close(r.jobs) // a stuck worker ends when its handler does
	if r.m.InFlight() > 0 {
		r.stopIO(ErrDraining) // the time is up, and an end is still being written: its record tells the next one
	}
	if stuck == 0 {
		r.handlers.Wait()
		r.wg.Wait()
		return nil
	}
	// What is under way must not outlive Run, but for the stuck handlers themselves.
	r.stopIO(ErrDraining)
	r.wg.Wait()
	return &HandlerStuckError{N: stuck}
}

// publish makes the machine's counts visible to Summary.
func (r *runner) publish() {
	n := r.m.Counts()
	s := Summary{
		Received: n.Received, Executed: n.Executed, Effects: n.Effects, Retried: n.Retried, Dead: n.Dead,
		Uncertain: n.Uncertain, Fenced: n.Fenced, Dropped: n.Dropped, Replayed: n.Replayed, OtherPayload: n.OtherPayload, Busy: n.Busy,
		Mismatched: n.Mismatched, Stale: n.Stale, TakenOver: n.TakenOver, Unprotected: n.Unprotected, SettleErrors: n.SettleFails,
		Rejected: n.Rejected, Late: n.Late, Returned: n.Returned, ElapsedMS: r.now().Milliseconds(),
	}
	r.meterStore(&s)
	r.tellSweeps(&s)
	if r.cached != nil {
		st := r.cached.CacheStats()
		s.CacheHits, s.CacheEntries = st.Hits-r.hits, int64(st.Entries)
	}
	s.DuplicatesUnrecorded = r.copies.lost()
	load := r.m.Load()
	l, now := r.loadOf(&load), r.began.Add(r.now())
	r.mu.Lock()
	r.summary, r.load = s, l
	r.speed.note(now, handled(&s))
	r.mu.Unlock()
}

// meterStore tells what the store consumed since the last time.
func (r *runner) meterStore(s *Summary) {
	if r.meter == nil {
		return
	}
	u := r.meter.Consumed()
	all := u.Since(r.first)
	s.StoreCalls, s.ReadUnits, s.WriteUnits = all.Calls, all.Reads, all.Writes
	if cost := r.cfg.Events.Cost; cost != nil && u != r.metered {
		cost(Event{Kind: EventConsumed, At: time.Now(), Units: u.Since(r.metered)})
	}
	r.metered = u
}

// perform starts one action. Everything that can block happens in a goroutine of its own, which answers with post.
func (r *runner) perform(a *machine.Action) {
	switch a.Kind {
	case machine.ActionReceive:
		r.async(*a, r.receive)
	case machine.ActionClaim:
		r.async(*a, r.claim)
	case machine.ActionFinish:
		r.async(*a, r.finish)
	case machine.ActionSettle:
		r.async(*a, r.settle)
	case machine.ActionExtend:
		r.async(*a, r.extend)
	case machine.ActionProlong:
		r.async(*a, r.prolong)
	case machine.ActionBegin:
		r.async(*a, r.begin)
	case machine.ActionCommit:
		r.async(*a, r.commit)
	case machine.ActionRollback:
		r.async(*a, r.rollback)
	case machine.ActionRun:
		r.execute(a)
	case machine.ActionCancel:
		a.Item.Shell.(*handle).cancel(causes[a.Cause])
	case machine.ActionRenewed:
		a.Item.Shell.(*handle).renew(a.Until)
	case machine.ActionTrace:
		r.note(&a.TraceEvent)
	}
}

func (r *runner) async(a machine.Action, f func(machine.Action)) {
	r.wg.Go(func() { f(a) })
}

var causes = [...]error{machine.CauseFenced: ErrFenced, machine.CauseTimeout: ErrTimeout, machine.CauseDraining: ErrDraining}
