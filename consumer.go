package semel

import (
	"context"
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

// Load tells how busy a consumer is: what to scale by, and why it stands still.
type Load struct {
	// Slots are those of Concurrency, in open transactions the Committers; Busy of them are taken.
	Slots int `json:"slots"`
	Busy  int `json:"busy"`
	// Utilisation is Busy in Slots, 0 to 1.
	Utilisation float64 `json:"utilisation"`
	// Running counts handlers, InFlight the deliveries in flight, Waiting those of them that wait for PerGroup.
	Running  int `json:"running"`
	InFlight int `json:"in_hand"`
	Waiting  int `json:"waiting"`
	// Paused: nothing is started or fetched for now. Reason says why; StoreDown tells that the store does not answer, else it
	// is the breaker.
	Paused    bool   `json:"paused"`
	StoreDown bool   `json:"store_down,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Breaker is closed, open or half-open; OpenUntil is set when it is open.
	Breaker   string    `json:"breaker"`
	OpenUntil time.Time `json:"open_until,omitzero"`
	// PerSecond is how many deliveries reached their end in a second, over the last five to ten seconds: effects, dead letters,
	// replays, not those that come again.
	PerSecond float64 `json:"per_second"`
}

// Load tells how busy this consumer is. It may be called at any time, costs a lock and no I/O, and is zero before Run.
func (c *Consumer) Load() Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.load
	if c.running {
		l.PerSecond = c.speed.perSecond(time.Now(), handled(&c.summary))
	}
	return l
}

// handled counts the deliveries that do not come again.
func handled(s *Summary) int64 {
	return s.Effects + s.Dropped + s.Dead + s.Uncertain + s.Replayed + s.Stale + s.Mismatched + s.Rejected + s.Unprotected
}

// loadOf gives the machine's figures their public names.
func (r *runner) loadOf(m *machine.Load) Load {
	l := Load{
		Slots: m.Slots, Busy: m.Busy, Utilisation: min(float64(m.Busy)/float64(m.Slots), 1), Running: m.Running,
		InFlight: m.InFlight, Waiting: m.Waiting, Breaker: m.Breaker, Paused: m.Down || m.Open, StoreDown: m.Down,
		Reason: m.Reason,
	}
	if m.Open {
		l.OpenUntil = r.began.Add(m.Until)
	}
	return l
}

// speedometer measures over a window that is between one and two spans long.
type speedometer struct{ from, to sample }

type sample struct {
	at time.Time
	n  int64
}

const speedSpan = 5 * time.Second

func (s *speedometer) start(now time.Time, n int64) { s.from, s.to = sample{now, n}, sample{now, n} }

func (s *speedometer) note(now time.Time, n int64) {
	if now.Sub(s.to.at) >= speedSpan {
		if s.from = s.to; now.Sub(s.from.at) >= 2*speedSpan {
			s.from.at = now.Add(-speedSpan) // nobody looked for so long because nothing came
		}
		s.to = sample{now, n}
	}
}

func (s *speedometer) perSecond(now time.Time, n int64) float64 {
	s.note(now, n)
	took := now.Sub(s.from.at).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(n-s.from.n) / max(took, 0.1)
}
