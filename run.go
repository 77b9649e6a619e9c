package semel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// This file runs handlers: one goroutine a slot, started when first needed.

// order is one run or probe for a worker.
type order struct {
	item  *machine.Item
	items []*machine.Item // of a batch; item is the first
	job   machine.Job
}

// execution holds the context and attempt of one run, in one allocation. The handler may keep pointers into it.
type execution struct {
	ctx     runContext
	attempt Attempt
}

// handle gives the engine access to the context of an item's current run. It belongs to the item and serves all its runs.
type handle struct {
	mu      sync.Mutex
	ctx     *runContext
	cause   error
	renewed time.Duration // the end of the extended lease, or 0

	// delivery is the receipt of the delivery that the traces belong to: an item and its handle are used again.
	delivery      any
	trace, effect driver.Traceparent // of its run, and of the run that ended its key before
}

// handleOf returns the handle of an item. Only the loop calls it.
func handleOf(it *machine.Item) *handle {
	h, ok := it.Shell.(*handle)
	if !ok {
		h = &handle{}
		it.Shell = h
	}
	return h
}

// starts prepares a handle for a run.
func (h *handle) starts(it *machine.Item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause, h.renewed = nil, 0
	h.delivery, h.trace, h.effect = it.Receipt, "", ""
}

// cancel ends the current run. It may be called before the worker has started it.
func (h *handle) cancel(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = cause
	if h.ctx != nil {
		h.ctx.end(cause)
	}
}

func (h *handle) attach(ctx *runContext) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctx = ctx
	if ctx == nil {
		return
	}
	if h.cause != nil {
		ctx.end(h.cause)
	}
	if h.renewed > 0 {
		ctx.lease.set(h.renewed)
	}
}

// renew sets the end of the current run's lease. It may be called before the worker has started the run.
func (h *handle) renew(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = until
	if h.ctx != nil {
		h.ctx.lease.set(until)
	}
}

// execute gives a run to a worker. The machine never starts more than there are slots, so the send does not block.
func (r *runner) execute(a *machine.Action) {
	handleOf(a.Item).starts(a.Item)
	for _, it := range a.Items {
		handleOf(it).starts(it)
	}
	if r.workers < cap(r.jobs) && r.workers < r.m.Running() {
		r.workers++
		r.handlers.Add(1)
		go r.work()
	}
	r.jobs <- order{item: a.Item, items: a.Items, job: a.Job}
}

func (r *runner) work() {
	returned := false
	defer func() {
		if !returned {
			go r.work() // the handler ended this goroutine (runtime.Goexit, as FailNow of a test does): replace it
			return
		}
		r.handlers.Done()
	}()
	for o := range r.jobs {
		r.serve(&o)
	}
	returned = true
}

// errGoexit is the failure of a handler that never returned.
var errGoexit = errors.New("the handler ended its goroutine")

// serve runs one order and posts its result, whatever the handler does.
func (r *runner) serve(o *order) {
	h := o.item.Shell.(*handle)
	x := &execution{ctx: runContext{parent: r.io}}
	x.ctx.lease.began = r.began
	if !o.job.Unprotected && !o.job.InTx && !o.job.AtCommit {
		x.ctx.lease.set(o.job.Deadline)
	}
	h.attach(&x.ctx)
	result := machine.Result{Class: machine.Failed, NotApplied: r.tx != nil, Err: errGoexit}
	var each []machine.Result
	if o.job.Probe {
		result.Probe = machine.ProbeUnknown
	}
	defer func() {
		h.attach(nil)
		x.ctx.end(context.Canceled) // as a returned call's context is
		r.post(machine.Event{Kind: machine.Ran, Item: o.item, Items: o.items, Result: result, Results: each})
	}()
	if o.items != nil {
		result, each = r.runBatch(o, x)
	} else {
		result = r.runOne(o, x)
	}
}

func (r *runner) runOne(x *order, run *execution) machine.Result {
	ctx, a := &run.ctx, &run.attempt
	*a = Attempt{
		Message: messageFor(&x.item.Message), Key: x.item.Key, Number: x.job.Attempt, MaxAttempts: r.cfg.MaxAttempts,
		Token: x.job.Hold.Token, Deadline: r.began.Add(x.job.Deadline), Unknown: x.job.Unknown,
		Redelivered: x.item.Count > 1, hold: x.job.Hold, store: r.cfg.Store, failed: x.item.Failures(),
		lease: &ctx.lease, rules: &r.rules, handle: x.item.Shell.(*handle),
	}
	a.hold.NewKey = nil // only for the engine
	ctx.attempt = a
	if x.job.Unprotected {
		a.hold.Key = x.item.Message.StandIn(r.cfg.Consumer) // this run has no record
		a.Number, a.store = max(x.item.Count, 1), nil
	}
	if x.job.InTx || x.job.AtCommit {
		a.store = nil
	}
	if x.job.Probe {
		return r.probe(ctx, a)
	}
	if r.tx != nil {
		if a.tx = r.effectsFor(x); a.tx == nil {
			return machine.Result{Class: machine.Failed, NotApplied: true, Err: ErrNoTx}
		}
	}
	err := r.guarded(ctx, a, "the handler", r.handle)
	return r.resultOf(x, ctx, a, err)
}

// messageFor returns a copy of the message for a run, which may change body and headers. Retries and dead letters use the
// original, and a queue in memory shares it with its deliveries.
func messageFor(m *Message) Message {
	c := *m
	c.Body, c.Headers = bytes.Clone(m.Body), maps.Clone(m.Headers)
	return c
}

// effectsFor returns the T of an InTx handler: a buffer, or the lane's open transaction.
func (r *runner) effectsFor(x *order) any {
	if x.job.InTx {
		return r.tx.bind(r.open[x.job.Lane].tx)
	}
	return r.tx.buffer(r.committer)
}

// guarded calls a function of the program and turns its panic into an error.
func (r *runner) guarded(ctx context.Context, a *Attempt, name string, f func(context.Context, *Attempt) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.panicked(v, name, a)
		}
	}()
	return f(ctx, a)
}

// panicked turns a panic into an error. It logs the stack, because dead letters and records carry only the error.
func (r *runner) panicked(v any, name string, a *Attempt) error {
	e := &PanicError{Value: v, Stack: debug.Stack()}
	r.cfg.Logger.Error(name+" panicked", logKey, a.Key.Raw, logMessageID, a.ID, logAttempt, a.Number,
		"panic", fmt.Sprint(v), "stack", string(e.Stack))
	return e
}

// resultOf translates a handler's return value into the machine's terms.
func (r *runner) resultOf(x *order, ctx *runContext, a *Attempt, err error) machine.Result {
	if err != nil {
		return r.failure(x, ctx, err)
	}
	res := r.success(x, a)
	if r.mode != machine.Open && res.Class == machine.OK {
		res.Effects = a.tx
	}
	return res
}

// success returns the result of a run that returned nil.
func (r *runner) success(x *order, a *Attempt) machine.Result {
	if err := r.checkEmitted(x, a); err != nil {
		return machine.Result{Class: machine.Permanent, Err: err}
	}
	for i := range a.emit {
		if a.emit[i].ID == "" {
			// A repeated run emits the same ID, so that the receiver recognizes the duplicate (protocol section 8).
			a.emit[i].ID = a.EffectKey("semel-emit-" + strconv.Itoa(i))
		}
	}
	return machine.Result{Class: machine.OK, Value: a.result, Emit: a.emit}
}

// checkEmitted refuses messages that no write could send. A retry would not fix that, and would only repeat the handler's
// other effects.
func (r *runner) checkEmitted(x *order, a *Attempt) error {
	for i := range a.emit {
		switch {
		case x.job.Unprotected:
			return errors.New("the handler emitted messages, but a message without a key has no record to commit them with")
		case !r.emits():
			return fmt.Errorf("the handler emitted messages, but store %s keeps no outbox", r.store.Name)
		case a.emit[i].Queue == "":
			return fmt.Errorf("the handler emitted messages, but message %d names no queue", i)
		}
	}
	return nil
}

// probe calls Config.Probe, which reports whether the effect of an earlier run happened.
func (r *runner) probe(ctx context.Context, a *Attempt) machine.Result {
	found := ProbeUnknown
	err := r.guarded(ctx, a, "Config.Probe", func(ctx context.Context, a *Attempt) (err error) {
		found, err = r.cfg.Probe(ctx, a)
		return err
	})
	res := machine.Result{Value: a.result, Err: err, Probe: machine.ProbeUnknown}
	switch {
	case err != nil:
		if r.outage(&res, err); res.Class == machine.Unavailable {
			break // the probe is retried
		}
		r.cfg.Logger.Warn("probe failed: the key is parked", logKey, a.Key.Raw, logErr, err)
	case found == ProbeApplied:
		res.Probe = machine.ProbeApplied
	case found == ProbeNotApplied:
		res.Probe = machine.ProbeNotApplied
	}
	return res
}

// failure returns the result of a run that returned an error.
func (r *runner) failure(x *order, ctx *runContext, err error) machine.Result {
	res := machine.Result{Class: machine.Failed, Err: err}
	// The effects of an InTx handler were not sent, or are rolled back, so its failure certainly had none.
	res.NotApplied = r.tx != nil
	var o *outcomeError
	cause := ctx.ended()
	switch {
	case errors.As(err, &o):
		res.NotApplied = res.NotApplied || o.notApplied
		res.After, res.HasAfter, res.Compensated = o.after, o.hasAfter, o.compensated
		if res.Class = o.class(); res.Class == machine.Failed {
			r.rules.apply(&res, err, cause)
		}
	default:
		if refusal := r.transient(x, err); refusal != nil {
			res.Class, res.Err = machine.Transient, refusal
			break
		}
		if cause != nil && errors.Is(err, context.Canceled) {
			res.Err = fmt.Errorf("%w (%w)", cause, err) // name the cause, not only that the context ended
		}
		r.rules.apply(&res, res.Err, cause)
	}
	return res
}

// refused returns the result for effects that the store refused to write, or the zero Result if err is no refusal.
func (r *runner) refused(err error) (res machine.Result) {
	if culprit, ok := errors.AsType[*driver.ItemError](err); ok {
		err = culprit.Err
	} else if !errors.Is(err, driver.ErrNotCommitted) {
		return res // nil too
	}
	res = machine.Result{Class: machine.Failed, Err: fmt.Errorf("effects refused: %w", err)}
	r.rules.apply(&res, res.Err, nil)
	return res
}

// outage classes the error of a probe as Unavailable if the downstream cannot be reached.
func (r *runner) outage(res *machine.Result, err error) {
	var o *outcomeError
	if errors.As(err, &o) {
		if o.unavailable {
			res.Class, res.After, res.HasAfter = machine.Unavailable, o.after, o.hasAfter
		}
		return
	}
	judged := machine.Result{Class: machine.Failed}
	if r.rules.apply(&judged, err, nil); judged.Class == machine.Unavailable {
		res.Class, res.Rule = machine.Unavailable, judged.Rule
	}
}

// runBatch calls a batch handler (InTxBatch). It returns one result for each member, or one for all if it is unknown which
// member failed.
func (r *runner) runBatch(o *order, run *execution) (machine.Result, []machine.Result) {
	attempts := make([]Attempt, len(o.items))
	batch := make([]*Attempt, len(o.items))
	for i, it := range o.items {
		h := it.Hold()
		attempts[i] = Attempt{
			Message: messageFor(&it.Message), Key: it.Key, Number: it.Attempt(), MaxAttempts: r.cfg.MaxAttempts, Token: h.Token,
			Deadline: r.began.Add(o.job.Deadline), Unknown: it.Unknown(), Redelivered: it.Count > 1, hold: h,
			failed: it.Failures(), handle: it.Shell.(*handle),
		}
		batch[i] = &attempts[i]
	}
	handle, effects := r.batchEffects(o)
	if handle == nil {
		return machine.Result{Class: machine.Failed, NotApplied: true, Err: ErrNoTx}, nil
	}
	err := r.guardedBatch(&run.ctx, handle, batch)
	whole := machine.Result{Effects: effects}
	if err != nil {
		whole = r.failure(o, &run.ctx, err)
	}
	each := make([]machine.Result, len(batch))
	named, failed := false, false
	var transient error
	if whole.Class == machine.Transient {
		transient = whole.Err
	}
	namedItems(err, func(e *itemError) {
		if e.index < 0 || e.index >= len(each) {
			return
		}
		named = true
		each[e.index] = r.failure(o, &run.ctx, e.err)
		failed = failed || each[e.index].Class != machine.Dropped
		if each[e.index].Class == machine.Transient {
			transient = each[e.index].Err
		}
	})
	switch {
	case transient != nil:
		return machine.Result{Class: machine.Transient, Err: transient}, nil
	case err != nil && !named:
		return whole, nil
	}
	for i := range each {
		if each[i].Class == machine.OK && !failed {
			each[i] = r.success(o, batch[i])
		}
	}
	return machine.Result{Effects: effects}, each
}

// batchEffects returns the T of a batch handler: a handle of the open transaction, or a buffer that is sent with its commit.
func (r *runner) batchEffects(o *order) (handle, effects any) {
	if handle = r.tx.bind(r.open[o.job.Lane].tx); handle != nil {
		return handle, nil
	}
	effects = r.tx.buffer(r.committer)
	return effects, effects
}

// guardedBatch calls a batch handler and turns its panic into an error.
func (r *runner) guardedBatch(ctx context.Context, tx any, batch []*Attempt) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.panicked(v, "the handler", batch[0])
		}
	}()
	return r.batch.handleBatch(ctx, tx, batch)
}

// transient reports whether a handler's error is a failure of its open transaction, such as a serialization failure. It
// returns the error together with the store's classification, or nil if the failure is the handler's own.
func (r *runner) transient(o *order, err error) error {
	if !o.job.InTx {
		return nil
	}
	if errors.Is(err, driver.ErrNotCommitted) {
		return err
	}
	c, ok := driver.As[driver.TxClassifier](r.open[o.job.Lane].tx)
	if !ok {
		return nil
	}
	if cause := c.Transient(err); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return nil
}

// runContext is the context of a run, made when it is first used: most handlers do not wait for it, and a real one costs
// three allocations per message. It behaves as context.WithCancelCause(parent) does. context.Cause works, and derived
// contexts need no goroutine, because Value and Done come from a real context.
type runContext struct {
	parent  context.Context
	attempt *Attempt // of this run; nil for a batch
	lease   leaseClock

	mu    sync.Mutex
	inner context.Context
	stop  context.CancelCauseFunc
	cause error // the cause of its end
}

func (c *runContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.stop = context.WithCancelCause(c.parent)
		if c.cause != nil {
			c.stop(c.cause)
		}
	}
	return c.inner
}

// end cancels the context. The first cause remains. It may be called before the run began and after it ended.
func (c *runContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
	if c.stop != nil {
		c.stop(cause)
	}
}

// ended returns the cause of the cancellation, or nil.
func (c *runContext) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

func (c *runContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *runContext) Done() <-chan struct{}       { return c.made().Done() }
func (c *runContext) Err() error                  { return c.made().Err() }

func (c *runContext) Value(key any) any {
	if key == (attemptKey{}) {
		return c.attempt
	}
	return c.made().Value(key)
}
