package semel

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// The defaults of a Config.
const (
	DefaultConcurrency = 16
	DefaultBatch       = 100
	DefaultVisibility  = 30 * time.Second
	DefaultMaxRuntime  = 15 * time.Minute
	DefaultGrace       = 25 * time.Second
	DefaultMaxAttempts = 5
	DefaultRetention   = 14 * 24 * time.Hour
	DefaultResultMax   = 64 << 10
	DefaultBackoffMin  = time.Second
	DefaultBackoffMax  = 5 * time.Minute
)

// maxInFlight bounds Concurrency and Batch: memory for what they allow is set aside when Run begins.
const maxInFlight = 100_000

// hardStop is how long Run waits for handlers that ignore their cancellation at the end of the grace period.
const hardStop = 5 * time.Second

// resolve fills in the defaults and refuses configurations that cannot work.
func (c *Config) resolve() error {
	switch {
	case c.Queue == nil:
		return &ConfigError{"Queue", "is nil", "give the queue to consume"}
	case c.Store == nil:
		return &ConfigError{"Store", "is nil", "give the store that keeps the records"}
	case c.Handler == nil:
		return &ConfigError{"Handler", "is nil", "give a HandlerFunc, or InTx"}
	}
	q, s := c.Queue.Features(), c.Store.Features()
	if c.Consumer == "" {
		c.Consumer = q.Name
	}
	if c.Consumer == "" {
		return &ConfigError{"Consumer", "is empty, but the queue has no name", "name the consumer"}
	}
	if c.Versions != nil {
		if err := c.resolveVersions(); err != nil {
			return err
		}
	}
	if err := c.resolveLongTerm(); err != nil {
		return err
	}
	if c.Key == nil {
		c.Key = key.ByID
	}
	if err := c.resolvePrevious(); err != nil {
		return err
	}
	fill(&c.Batch, DefaultBatch)
	fill(&c.Committers, 1)
	fill(&c.Concurrency, c.concurrency())
	fill(&c.Visibility, q.Visible)
	fill(&c.Visibility, DefaultVisibility)
	fill(&c.MaxRuntime, DefaultMaxRuntime)
	fill(&c.Grace, DefaultGrace)
	fill(&c.MaxAttempts, DefaultMaxAttempts)
	c.resolveRetention(q)
	fill(&c.ResultMax, DefaultResultMax)
	fill(&c.Backoff.Min, DefaultBackoffMin)
	fill(&c.Backoff.Max, max(DefaultBackoffMax, c.Backoff.Min))
	c.Breaker.resolve()
	if s.MaxResult > 0 {
		c.ResultMax = min(c.ResultMax, s.MaxResult)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With("worker", workerName(), "queue", q.Name, "consumer", c.Consumer)
	return c.check(q)
}

// concurrency returns the default of Concurrency. Only free slots claim keys, so fewer slots than a batch has items keep
// batches small. Handlers that queue their effects return quickly, so they get a slot for each item.
func (c *Config) concurrency() int {
	h, tx := c.Handler.(transactional)
	s, commits := driver.As[driver.Committer](c.Store)
	if tx && commits && h.queued(s) {
		return max(DefaultConcurrency, min(c.Batch*c.Committers, maxInFlight))
	}
	return DefaultConcurrency
}

// workerName distinguishes processes in logs: host and process id.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return host + ":" + strconv.Itoa(os.Getpid())
}

func fill[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

const rateHint = "use 0 for none, or 0.0001 to 1000000 in a second, and a burst of 0 to 100000"

func (c *Config) check(q driver.QueueFeatures) error {
	for _, f := range []struct {
		name string
		bad  bool
		hint string
	}{
		{"Concurrency", c.Concurrency < 1 || c.Concurrency > maxInFlight, "use 1 to 100000"},
		{"Batch", c.Batch < 1 || c.Batch > maxInFlight, "use 1 to 100000"},
		{"Committers", c.Committers < 1 || c.Committers > 64, "use 1 to 64"},
		{"Visibility", c.Visibility < 100*time.Millisecond, "use 100 ms or more"},
		{"Timeout", c.Timeout < 0, "use 0 for none"},
		{"MaxRuntime", c.MaxRuntime < 0, "use a positive duration"},
		{"Grace", c.Grace < 0, "use a positive duration"},
		{"MaxAttempts", c.MaxAttempts < 1, "use 1 or more"},
		{"MaxAge", c.MaxAge < 0, "use 0 for any age"},
		{"ProducerRetries", c.ProducerRetries < 0, "use 0 for none"},
		{"ResultMax", c.ResultMax < 0, "use a positive number of bytes"},
		{"Limit", c.Limit < 0, "use 0 for none"},
		{"Backoff", c.Backoff.Min < 0 || c.Backoff.Max < c.Backoff.Min, "use 0 < Min ≤ Max"},
		{"Rate", c.Rate.bad(), rateHint},
		{"PerGroup.Rate", c.PerGroup.Rate.bad(), rateHint},
		{"PerGroup.Concurrency", c.PerGroup.Concurrency < 0, "use 0 for no limit"},
		{"PerGroup", c.PerGroup.By != nil && !c.PerGroup.on(), "set Concurrency or Rate beside By"},
		{"Breaker.Ratio", !(c.Breaker.Ratio >= 0 && c.Breaker.Ratio <= 1), "use 0 to 1"},
		{"Breaker.Window", c.Breaker.Window < 0, "use a positive duration"},
		{"Breaker.MinRuns", c.Breaker.MinRuns < 0, "use a positive number"},
		{"Breaker.Open", c.Breaker.Open.Min < 0 || c.Breaker.Open.Max < c.Breaker.Open.Min, "use 0 < Min ≤ Max"},
		{"Takeover", c.Takeover > Once, "use Resume, Probe or Once"},
		{"Busy", c.Busy > BusyFail, "use BusyDefer or BusyFail"},
	} {
		if f.bad {
			return &ConfigError{f.name, "is out of range", f.hint}
		}
	}
	for i := range c.Retry {
		if field, hint := c.Retry[i].check(); hint != "" {
			return &ConfigError{fmt.Sprintf("Retry[%d]%s", i, field), "cannot be used", hint}
		}
	}
	if c.Busy == BusyFail && c.Versions != nil {
		return &ConfigError{"Busy", "is BusyFail, but with Versions a message also waits for other versions of its key, in order",
			"leave it BusyDefer, or drop Versions"}
	}
	if c.Takeover == Probe && c.Probe == nil {
		return &ConfigError{"Probe", "is nil, but Takeover is Probe", "set the function that reports whether an effect happened"}
	}
	if c.Timeout > c.MaxRuntime {
		return &ConfigError{"Timeout", "is longer than MaxRuntime", "raise MaxRuntime"}
	}
	if c.AllowUnkeyed && !q.Counts {
		return &ConfigError{"AllowUnkeyed", fmt.Sprintf("is set, but queue %s does not count deliveries: a message without a key "+
			"that always fails would be retried forever", q.Name),
			"give every message a key (Config.Key), or leave AllowUnkeyed out: such messages become dead letters"}
	}
	if q.Visible > 0 && c.Visibility != q.Visible {
		return &ConfigError{"Visibility", fmt.Sprintf("is %s, but queue %s keeps every delivery for %s", c.Visibility, q.Name, q.Visible),
			"leave it out, or change the queue's"}
	}
	if q.MaxVisible > 0 && c.MaxRuntime > q.MaxVisible {
		return &ConfigError{"MaxRuntime", fmt.Sprintf("is longer than queue %s can keep a delivery (%s)", q.Name, q.MaxVisible),
			"lower MaxRuntime"}
	}
	return c.checkRetention(q)
}

// checkAtCommit refuses what ClaimAtCommit cannot be combined with.
func (c *Consumer) checkAtCommit() error {
	if !c.cfg.ClaimAtCommit {
		return nil
	}
	const field, leave = "ClaimAtCommit", "leave ClaimAtCommit out"
	for _, f := range []struct {
		bad           bool
		problem, hint string
	}{
		{
			c.tx == nil || c.mode == machine.Open,
			"is set, but the handler queues no effects that could commit with its claim",
			"use InTx with *Statements, or " + leave,
		},
		{
			!c.store.ClaimsAtCommit, fmt.Sprintf("is set, but store %s cannot claim with a commit", c.store.Name),
			"keep the records in an SQL database, or " + leave,
		},
		{
			!c.queue.Counts, fmt.Sprintf("is set, but queue %s does not count deliveries: a message that kills its process would "+
				"never be counted", c.queue.Name), leave,
		},
		{
			c.cfg.Takeover != Resume || c.cfg.Probe != nil, "is set together with Probe or Once, but a run without a claim leaves no doubt that " +
				"they could act on", "use Takeover Resume without a Probe, or " + leave,
		},
		{
			c.cfg.Versions != nil, "is set together with Versions, but versions of an entity wait for each other's claims",
			"drop Versions, or " + leave,
		},
		{
			c.cfg.PreviousKey != nil, "is set together with PreviousKey, but a message is then claimed under two keys",
			leave + " until PreviousKey is removed",
		},
	} {
		if f.bad {
			return &ConfigError{field, f.problem, f.hint}
		}
	}
	return nil
}

// lease returns how long a claim lasts without a heartbeat: a little less than the visibility, so that the broker does not
// redeliver a message while its claim still holds (law 3).
func (c *Config) lease() time.Duration { return c.Visibility / 10 * 9 }

// until returns the time until Config.Until, or 0 if it is not set.
func (c *Config) until() time.Duration {
	if c.Until.IsZero() {
		return 0
	}
	return max(time.Until(c.Until), 1)
}

// timeout returns Config.Timeout, limited in an open transaction (modes B and C) to a little less than the store's limit for
// it. A run that takes longer then counts as a failure. Without this limit its transaction would be repeated forever.
func (c *Consumer) timeout() time.Duration {
	most := c.store.MaxTx / 10 * 9
	if c.mode != machine.Open || most <= 0 || (c.cfg.Timeout > 0 && c.cfg.Timeout < most) {
		return c.cfg.Timeout
	}
	return most
}

func (c *Consumer) machineConfig(nonce func() driver.Nonce) machine.Config {
	lease := c.cfg.lease()
	// Twice the size of the next claims may wait while a batch is claimed, so that a fetch runs at the same time.
	flight := c.cfg.Batch * c.cfg.Committers
	inFlight := c.cfg.Concurrency + 2*min(flight, c.cfg.Concurrency)
	switch {
	case c.mode == machine.Open:
		inFlight = 3 * flight // one part in transactions, two that wait
	case c.cfg.Batch == 1:
		inFlight = c.cfg.Concurrency // nothing is fetched ahead
	}
	return machine.Config{
		Concurrency: c.cfg.Concurrency, Batch: c.cfg.Batch, Lanes: c.cfg.Committers, InFlight: inFlight,
		Lease: lease, Visibility: c.cfg.Visibility, Guard: min(lease/10, time.Second),
		Timeout: c.timeout(), MaxRuntime: c.cfg.MaxRuntime, Grace: c.cfg.Grace, HardStop: hardStop,
		MaxAttempts: c.cfg.MaxAttempts, BackoffMin: c.cfg.Backoff.Min, BackoffMax: c.cfg.Backoff.Max,
		Keep: c.cfg.Retention, Keeps: c.cfg.Retain.machine(), ResultMax: c.cfg.ResultMax, Limit: c.cfg.Limit, Breaker: c.cfg.Breaker.machine(),
		Every: c.cfg.Rate.every(), Burst: c.cfg.Rate.burst(),
		PoolEvery: c.cfg.PerGroup.Rate.every(), PoolBurst: c.cfg.PerGroup.Rate.burst(),
		PoolConcurrency: c.cfg.PerGroup.Concurrency,
		Takeover:        c.cfg.Takeover, Probes: c.cfg.Probe != nil,
		Extends: c.queue.Extends, Orders: c.queue.Orders, Counts: c.queue.Counts, Redrives: c.queue.Redrives, FailBusy: c.cfg.Busy == BusyFail,
		Park: c.cfg.park(), MaxAge: c.cfg.MaxAge, Until: c.cfg.until(), AtCommit: c.cfg.ClaimAtCommit,
		Mode: c.mode, JoinedAck: c.joins, Batched: c.batch != nil, Nonce: nonce,
		Trace: c.wantsTrace,
	}
}
