package semel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// The way of a message: receive (here) → internal/machine/delivery.go (received, claimed, running) → run.go (the handler) →
// internal/machine/finish.go (finished, settled) → finish and settle (here). internal/machine makes every decision. One
// goroutine (runner.loop) owns it and starts its actions, each in a goroutine of its own, which posts one event at its end.

// runner is one call of Run: it owns the machine and the goroutines that perform its actions.
type runner struct {
	*Consumer
	m     *machine.Machine
	began time.Time

	// io outlives the caller's ctx, so that finishing and settling work during a drain. receiving ends when the drain begins.
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
	metered  driver.Units      // of the store's meter when it was last read
	hits     int64             // of the store's cache when this run began
	sweeps   sweepTally        // guarded by mu
	copies   *duplicateLog     // nil if the store keeps no duplicates
	reports  *workerReports    // nil if the store keeps no reports
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
	r.reports = newWorkerReports(c, r.began)
	if c.meter != nil {
		r.first = c.meter.Consumed()
		r.metered = r.first
	}
	if c.cached != nil {
		r.hits = c.cached.CacheStats().Hits
	}
	return r
}

// nonce returns 128 random bits. It reads the generator for many nonces at once.
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

// post sends an event to the loop. It does not block.
func (r *runner) post(ev machine.Event) {
	r.inboxMu.Lock()
	r.inbox = append(r.inbox, ev)
	r.inboxMu.Unlock()
	r.wake()
}

// wake makes the loop go round once.
func (r *runner) wake() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// collect returns the events in the inbox, and reuses the slice of handled events as the next inbox.
func (r *runner) collect(done []machine.Event) []machine.Event {
	r.inboxMu.Lock()
	defer r.inboxMu.Unlock()
	arrived := r.inbox
	r.inbox = done[:0]
	return arrived
}

// loop owns the machine: it steps it with all events since the last step, performs the resulting actions, and sleeps until
// the next event or timer.
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
	r.reports.start(r.io, &r.wg, r.wake)
	for {
		replays(events)
		actions = r.m.Steps(r.now(), events, actions[:0])
		for i := range actions {
			if actions[i].Kind == machine.ActionStop {
				return r.stop(actions[i].Stuck)
			}
			r.perform(&actions[i])
		}
		clear(actions)
		r.reportCalls(events)
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

// stop ends the goroutines. Handlers that ignored their cancellation keep running and are counted in the error.
func (r *runner) stop(stuck int) error {
	r.copies.close()
	r.reports.close()
	r.publish()
	r.stopReceiving()
	close(r.jobs) // a stuck worker ends when its handler does
	if r.m.InFlight() > 0 {
		r.stopIO(ErrDraining) // the time is up while an outcome is being written: its record informs the next worker
	}
	if stuck == 0 {
		r.handlers.Wait()
		r.wg.Wait()
		return nil
	}
	// Nothing but the stuck handlers may outlive Run.
	r.stopIO(ErrDraining)
	r.wg.Wait()
	return &HandlerStuckError{N: stuck}
}

// publish makes the machine's counts visible to Summary and Load.
func (r *runner) publish() {
	n := r.m.Counts()
	s := Summary{
		Received: n.Received, Executed: n.Executed, Effects: n.Effects, Retried: n.Retried, Dead: n.Dead,
		Uncertain: n.Uncertain, Fenced: n.Fenced, Dropped: n.Dropped, Replayed: n.Replayed, OtherPayload: n.OtherPayload, Busy: n.Busy,
		Mismatched: n.Mismatched, Stale: n.Stale, TakenOver: n.TakenOver, Unprotected: n.Unprotected, SettleErrors: n.SettleFails,
		Rejected: n.Rejected, Late: n.Late, Returned: n.Returned, ElapsedMS: r.now().Milliseconds(),
	}
	r.meterStore(&s)
	r.reportSweeps(&s)
	if r.cached != nil {
		st := r.cached.CacheStats()
		s.CacheHits, s.CacheEntries = st.Hits-r.hits, int64(st.Entries)
	}
	s.DuplicatesUnrecorded = r.copies.lost()
	load := r.m.Load()
	r.reports.offer(r, &load)
	l, now := r.loadOf(&load), r.began.Add(r.now())
	r.mu.Lock()
	r.summary, r.load = s, l
	r.speed.note(now, handled(&s))
	r.mu.Unlock()
}

// meterStore adds to s what the store consumed, and calls the observer if that changed.
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

// perform starts one action. Each action that can block runs in a goroutine of its own, which posts its result.
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
		r.trace(&a.TraceEvent)
	}
}

func (r *runner) async(a machine.Action, f func(machine.Action)) {
	r.wg.Go(func() { f(a) })
}

var causes = [...]error{machine.CauseFenced: ErrFenced, machine.CauseTimeout: ErrTimeout, machine.CauseDraining: ErrDraining}

var errShort = errors.New("adapter returned fewer results than items in the call")

// receive fetches deliveries and extracts what the machine needs: keys, fingerprints, versions and groups.
func (r *runner) receive(a machine.Action) {
	n := a.Max
	if r.queue.MaxBatch > 0 {
		n = min(n, r.queue.MaxBatch)
	}
	ds, err := r.cfg.Queue.Receive(r.receiving, n)
	returned := r.now()
	if err != nil {
		if r.receiving.Err() != nil {
			err = nil // the drain ended it
		} else {
			err = fmt.Errorf("receive from %s: %w", r.queue.Name, err)
		}
	}
	// Reusing the slice is safe: the machine has one receive in flight at a time, and has copied its arrivals.
	clear(r.arrivals)
	arrivals := slices.Grow(r.arrivals[:0], len(ds))[:len(ds)]
	r.arrivals = arrivals
	for i := range ds {
		arrivals[i].Delivery = ds[i]
		r.identify(&arrivals[i])
		if r.cfg.PerGroup.on() {
			arrivals[i].Pool = r.pool(&arrivals[i].Message)
		}
	}
	r.post(machine.Event{Kind: machine.Received, Arrivals: arrivals, Sent: returned, Err: err})
}

// identify extracts key, tenant, fingerprint and version from a message. If one of the program's functions panics, the
// message has no usable key, and the process goes on.
func (r *runner) identify(a *machine.Arrival) {
	a.Key.Consumer = r.cfg.Consumer
	called := "" // the function that is being called
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{Value: v, Stack: debug.Stack()}
			a.KeyErr, a.BadVersion = fmt.Errorf("semel: %s of message %q: %w", called, a.ID, p), called == "Config.Versions.Of"
			r.cfg.Logger.Error(called+" panicked", logMessageID, a.ID, "panic", fmt.Sprint(v), "stack", string(p.Stack))
		}
	}()
	if r.cfg.Tenant != nil {
		called = "Config.Tenant"
		a.Key.Tenant = r.cfg.Tenant(&a.Message)
	}
	called = "Config.Key"
	raw, err := r.cfg.Key(&a.Message)
	if err == nil {
		err = key.Check(raw)
	}
	if a.Key.Raw = raw; r.cfg.PreviousKey != nil {
		called = "Config.PreviousKey.Key"
		err = r.cfg.PreviousKey.identify(a, err)
	}
	a.Age = r.age(&a.Message)
	if err != nil {
		a.Key.Raw, a.KeyErr = "", err
		a.Unkeyed = r.cfg.AllowUnkeyed && errors.Is(err, key.ErrMissing)
		return
	}
	if r.cfg.Fingerprint != nil {
		called = "Config.Fingerprint"
		if a.Fingerprint, err = r.cfg.Fingerprint(&a.Message); err != nil {
			a.KeyErr = fmt.Errorf("fingerprint: %w", err)
		}
	}
	a.BodyDigest, a.WholeBody = key.BodyDigest(a.Fingerprint, a.Body)
	if v := r.cfg.Versions; v != nil {
		called = "Config.Versions.Of"
		if a.Version, a.After, err = v.Take(&a.Message); err != nil {
			a.KeyErr, a.BadVersion = err, true
		}
	}
}

// timed limits one round trip, so that a write without a response can be repeated while the lease is still ours.
func (r *runner) timed() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.io, max(r.cfg.lease()/3, 100*time.Millisecond))
}

func (r *runner) claim(a machine.Action) {
	ctx, cancel := r.timed()
	defer cancel()
	sent := r.now()
	grants, err := r.records.Claim(ctx, a.Claims...)
	if err == nil && len(grants) != len(a.Claims) {
		err = errShort
	}
	r.post(machine.Event{Kind: machine.Claimed, Lane: a.Lane, Items: a.Items, Claims: a.Claims, Grants: grants, Sent: sent, Err: err})
}

// finish records the outcomes of attempts, with effects, emitted messages and acks in one write if the store can do that.
func (r *runner) finish(a machine.Action) {
	ctx, cancel := r.timed()
	defer cancel()
	var out []driver.Outcome
	var err error
	traced(a.Items, a.Works)
	sent := r.now()
	if r.committer != nil && (r.mode != machine.Separate || r.tx != nil || r.store.Emits) {
		out, err = r.committer.Commit(ctx, a.Works...)
	} else {
		fs := make([]driver.Finish, len(a.Works))
		for i := range a.Works {
			fs[i] = a.Works[i].Finish
		}
		out, err = r.records.Finish(ctx, fs...)
	}
	if err == nil && len(out) != len(a.Works) {
		err = errShort
	}
	r.post(machine.Event{
		Kind: machine.Finished, Lane: a.Lane, Items: a.Items, Works: a.Works, Outcomes: out, Sent: sent, Err: err, Result: r.refused(err),
	})
}

func (r *runner) settle(a machine.Action) {
	out, err := r.chunked(len(a.Settlements), func(ctx context.Context, from, to int) ([]driver.Outcome, error) {
		return r.cfg.Queue.Settle(ctx, a.Settlements[from:to]...)
	})
	r.post(machine.Event{Kind: machine.Settled, Items: a.Items, Settlements: a.Settlements, Outcomes: out, Err: err})
}

func (r *runner) prolong(a machine.Action) {
	sent := r.now()
	out, err := r.chunked(len(a.Receipts), func(ctx context.Context, from, to int) ([]driver.Outcome, error) {
		return r.cfg.Queue.Extend(ctx, r.cfg.Visibility, a.Receipts[from:to]...)
	})
	r.post(machine.Event{Kind: machine.Prolonged, Items: a.Items, Outcomes: out, Sent: sent, Err: err})
}

// chunked splits a call into batches that the queue accepts. The outcomes of a failed batch are Unknown. Those of the others
// count.
func (r *runner) chunked(n int, call func(ctx context.Context, from, to int) ([]driver.Outcome, error)) ([]driver.Outcome, error) {
	size := n
	if r.queue.MaxBatch > 0 {
		size = r.queue.MaxBatch
	}
	var first error
	out := make([]driver.Outcome, n)
	for from := 0; from < n; from += size {
		to := min(from+size, n)
		ctx, cancel := r.timed()
		got, err := call(ctx, from, to)
		cancel()
		copy(out[from:to], got)
		if err == nil && len(got) != to-from {
			err = errShort
		}
		if first == nil {
			first = err
		}
	}
	return out, first
}

func (r *runner) extend(a machine.Action) {
	ctx, cancel := r.timed()
	defer cancel()
	sent := r.now()
	out, err := r.records.Extend(ctx, a.Lease, a.Holds...)
	if err != nil {
		err = fmt.Errorf("extend %d leases: %w", len(a.Holds), err)
	}
	r.post(machine.Event{Kind: machine.Extended, Items: a.Items, Outcomes: out, Sent: sent, Err: err})
}

// openTx is a lane's open transaction (modes B and C). The machine makes sure that one goroutine at a time uses it.
type openTx struct {
	tx     driver.Tx
	cancel context.CancelFunc
}

func (r *runner) begin(a machine.Action) {
	limit := r.cfg.lease()
	if r.store.MaxTx > 0 {
		limit = min(limit, r.store.MaxTx)
	}
	ctx, cancel := context.WithTimeout(r.io, limit)
	sent := r.now()
	tx, grants, err := r.transactor.Begin(ctx, a.Claims...)
	if err == nil && len(grants) != len(a.Claims) {
		err = errShort
	}
	acquired := false
	for i := range grants {
		acquired = acquired || (grants[i].Err == nil && grants[i].Verdict == driver.Acquired)
	}
	if err != nil || !acquired {
		if tx != nil {
			_ = tx.Rollback(ctx) // nothing was written in it
		}
		cancel()
	} else {
		r.open[a.Lane] = openTx{tx: tx, cancel: cancel}
	}
	r.post(machine.Event{Kind: machine.Begun, Lane: a.Lane, Items: a.Items, Claims: a.Claims, Grants: grants, Sent: sent, Err: err})
}

func (r *runner) commit(a machine.Action) {
	ctx, cancel := r.timed()
	defer cancel()
	o := r.open[a.Lane]
	traced(a.Items, a.Works)
	sent := r.now()
	err := o.tx.Commit(ctx, a.Works...)
	if err != nil {
		// A transaction that is still open must not keep locks. After a commit this is a no-op.
		_ = o.tx.Rollback(ctx)
	}
	o.cancel()
	r.post(machine.Event{
		Kind: machine.Committed, Lane: a.Lane, Items: a.Items, Works: a.Works, Sent: sent, Err: err, Result: r.refused(err),
	})
}

func (r *runner) rollback(a machine.Action) {
	ctx, cancel := r.timed()
	defer cancel()
	o := r.open[a.Lane]
	if err := o.tx.Rollback(ctx); err != nil {
		r.cfg.Logger.Warn("roll back failed: the database rolls back when the connection ends", logErr, err)
	}
	o.cancel()
	r.post(machine.Event{Kind: machine.RolledBack, Lane: a.Lane})
}
