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

// Consumer takes deliveries from a queue and makes each key take effect once. Make one with [New]. Its methods may be called
// from any goroutine.
type Consumer struct {
	cfg   Config
	mode  machine.Mode
	queue driver.QueueFeatures
	store driver.StoreFeatures
	// records is the store that the engine uses: the configured one, or a wrapper that claims two keys in it.
	records driver.Store
	// committer, transactor and tx are optional interfaces of records and handler, looked up once. They are nil when absent.
	committer  driver.Committer
	transactor driver.Transactor
	meter      driver.Meter  // nil unless the store is paid by use
	cached     driver.Cached // nil unless the store has a cache
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

// New checks a configuration and makes a consumer. It does no I/O. It returns a *ConfigError, an error that wraps ErrNoTx if
// the store does not offer the handler's transaction, or the error of the handler's [StoreChecker].
func New(cfg Config) (*Consumer, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, queue: cfg.Queue.Features(), store: cfg.Store.Features(), rules: newRuleSet(&cfg)}
	if !c.queue.DeadLetters {
		return nil, &ConfigError{"Queue", fmt.Sprintf("(%s) keeps no dead letters, so a message that fails permanently could only be lost "+
			"or redelivered forever", c.queue.Name),
			"keep them with the records (package deadletter; a DynamoDB table needs a sort key), or give an SQS queue a dead-letter queue"}
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
		return nil, &ConfigError{"Middleware", "is set, but it wraps the run of one message, and an InTxBatch handler " +
			"runs many at once", "wrap the function that is given to InTxBatch"}
	}
	if c.tx != nil && cfg.AllowUnkeyed {
		return nil, &ConfigError{"AllowUnkeyed", "is set, but the effects of an InTx handler commit with a record, and a " +
			"message without a key has none", "use a HandlerFunc, or let such messages become dead letters"}
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
	if err := c.checkAtCommit(); err != nil {
		return nil, err
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

// innermost calls the handler for a middleware, which may call it again (for example, to retry at once) or turn its failure
// into a success. Only the effects and messages of the last successful call count.
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

// Summary returns what this consumer has done so far. It may be called at any time and does no I/O.
func (c *Consumer) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.summary
}

// Run consumes until ctx is done, then drains: deliveries that have not started are returned at once, and running handlers
// have Config.Grace to finish before they are cancelled. Run blocks until the drain has ended. It returns nil after a clean
// stop or when Config.Limit is reached, and a *HandlerStuckError if handlers ignored their cancellation.
//
// Outages of the queue or the store do not end Run: it pauses polling, keeps the deliveries in flight, retries, and resumes
// on its own. A second call during Run returns an error.
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errors.New("semel: consumer is running already")
	}
	c.running = true
	c.summary = Summary{}
	c.speed.start(time.Now())
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

// Load describes how busy a consumer is, as a basis for scaling, and why it is paused.
type Load struct {
	// Slots is Config.Concurrency, or with open transactions Config.Committers. Busy is how many of them are taken.
	Slots int `json:"slots"`
	Busy  int `json:"busy"`
	// Utilisation is Busy divided by Slots, 0 to 1.
	Utilisation float64 `json:"utilisation"`
	// Running counts handlers, InFlight counts deliveries in flight, and Waiting those of them that wait for PerGroup.
	Running  int `json:"running"`
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	// Paused: nothing is started or fetched for now, for the Reason given. StoreDown: the cause is a store that does not
	// respond; otherwise it is the breaker.
	Paused    bool   `json:"paused"`
	StoreDown bool   `json:"store_down,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Breaker is "closed", "open" or "half-open". OpenUntil is set while it is open.
	Breaker   string    `json:"breaker"`
	OpenUntil time.Time `json:"open_until,omitzero"`
	// PerSecond is how many deliveries ended per second over the last five to ten seconds: effects, dead letters and replays,
	// but not deliveries that will be redelivered.
	PerSecond float64 `json:"per_second"`
}

// Load reports how busy this consumer is. It may be called at any time, takes a lock, and does no I/O. The result is zero
// before Run.
func (c *Consumer) Load() Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.load
	if c.running {
		l.PerSecond = c.speed.perSecond(time.Now(), handled(&c.summary))
	}
	return l
}

// handled counts the deliveries that are not redelivered.
func handled(s *Summary) int64 {
	return s.Effects + s.Dropped + s.Dead + s.Uncertain + s.Replayed + s.Stale + s.Mismatched + s.Rejected + s.Unprotected
}

// loadOf translates the machine's figures.
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

func (s *speedometer) start(now time.Time) { s.from, s.to = sample{at: now}, sample{at: now} }

func (s *speedometer) note(now time.Time, n int64) {
	if now.Sub(s.to.at) >= speedSpan {
		if s.from = s.to; now.Sub(s.from.at) >= 2*speedSpan {
			s.from.at = now.Add(-speedSpan) // no sample for so long: nothing arrived
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
