package cache

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// The defaults of [Options].
const (
	DefaultMaxAge = time.Minute
	DefaultBytes  = 32 << 20
)

// Options are the limits of a cache.
type Options struct {
	// Size is the maximum number of entries. 0 or less turns the cache off.
	Size int
	// Bytes is the approximate maximum of memory: keys, results and the overhead of entries. Defaults to DefaultBytes, or to
	// 1 KiB per entry if that is more.
	Bytes int64
	// MaxAge is how long a verdict of the store is kept, counted from before the call that returned it. Hits do not extend it.
	// Defaults to DefaultMaxAge, because a message whose ack was lost is redelivered after its visibility.
	MaxAge time.Duration
	// Strangers lets deliveries hit whose IDs the cache has not seen: messages that producers sent twice. See the package's
	// documentation for the costs.
	Strangers bool
	// Now is a monotonic clock. Defaults to time.Now.
	Now func() time.Time
}

// New puts a cache in front of a store. The result is a [driver.Wrapper]: [driver.As] finds the optional interfaces of the
// store, and [driver.Cached]. With Options.Size 0 New returns the store itself. All methods may be called concurrently.
func New(store driver.Store, o Options) driver.Store {
	if o.Size <= 0 {
		return store
	}
	if o.Bytes <= 0 {
		o.Bytes = max(DefaultBytes, int64(o.Size)<<10)
	}
	if o.MaxAge <= 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &cache{store: store, o: o, mostRuns: max(o.Size, 1024)}
	c.empty()
	c.historian, _ = driver.As[driver.Historian](store)
	c.committer, _ = driver.As[driver.Committer](store)
	c.transactor, _ = driver.As[driver.Transactor](store)
	c.operator, _ = driver.As[driver.Operator](store)
	c.sweeper, _ = driver.As[driver.Sweeper](store)
	return c
}

// cache wraps a store. driver.As finds its optional interfaces only if the store has them.
type cache struct {
	store driver.Store
	// nil if the store lacks the interface.
	historian  driver.Historian
	committer  driver.Committer
	transactor driver.Transactor
	operator   driver.Operator
	sweeper    driver.Sweeper
	o          Options

	mu           sync.Mutex
	kept         *lru
	runs         map[driver.Key]run // attempts that this process was granted and has not ended
	order        []started          // the same, the oldest first, and some that have ended
	mostRuns     int
	history      uint64 // the store's history to which all of this belongs
	down         bool   // the latest call of the store failed: no claim hits until one succeeds
	changes      uint64 // operations, purges and changes of the history so far: the result of a call in flight at one is not kept
	hits, misses int64
}

// CacheStats returns what the cache holds and did.
func (c *cache) CacheStats() driver.CacheStats {
	c.lock()
	defer c.mu.Unlock()
	return driver.CacheStats{
		Entries: len(c.kept.nodes), Size: c.o.Size, Bytes: c.kept.bytes, Hits: c.hits, Misses: c.misses,
	}
}

// lock locks the cache. It empties the cache if the store's history changed.
func (c *cache) lock() {
	c.mu.Lock()
	if c.historian == nil {
		return
	}
	if now := c.historian.History(); now != c.history {
		c.history = now
		c.changes++
		c.empty()
	}
}

// empty forgets everything.
func (c *cache) empty() {
	c.kept, c.runs, c.order = newLRU(c.o.Size, c.o.Bytes), map[driver.Key]run{}, nil
}

// Features returns the store's features.
func (c *cache) Features() driver.StoreFeatures { return c.store.Features() }

// Unwrap returns the store behind the cache.
func (c *cache) Unwrap() any { return c.store }

// Passes lists interfaces that do not change the verdict of a claim: journals of runs, the duplicate log, long-term periods.
func (c *cache) Passes() []driver.Interface {
	return []driver.Interface{
		driver.InterfaceOf[driver.StepStore](), driver.InterfaceOf[driver.DuplicateLog](), driver.InterfaceOf[driver.WorkerLog](),
		driver.InterfaceOf[driver.LongTerm](),
	}
}

// Adds lists the interface that stores without a cache lack.
func (c *cache) Adds() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Cached]()}
}

// Claim decides the claims that hit, and sends the others to the store in one call. It blocks and fails as the store does. If
// the store fails, no claim is decided.
func (c *cache) Claim(ctx context.Context, claims ...driver.Claim) ([]driver.Grant, error) {
	out, rest, a := c.lookup(claims)
	if out != nil && len(rest) == 0 {
		return out, nil
	}
	sent := claims
	if out != nil {
		sent = pick(claims, rest)
	}
	grants, err := c.store.Claim(ctx, sent...)
	c.claimed(a, sent, grants, err)
	if err != nil || out == nil {
		return grants, err
	}
	return merge(out, rest, grants), nil
}

// pick returns the claims at the given indexes.
func pick(claims []driver.Claim, places []int) []driver.Claim {
	some := make([]driver.Claim, len(places))
	for i, at := range places {
		some[i] = claims[at]
	}
	return some
}

// merge adds the store's grants to the cache's. If the store returned too few, merge returns those unchanged, so that the
// caller notices.
func merge(out []driver.Grant, places []int, grants []driver.Grant) []driver.Grant {
	if len(grants) != len(places) {
		return grants
	}
	for i, at := range places {
		out[at] = grants[i]
	}
	return out
}

// Extend calls the store.
func (c *cache) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	out, err := c.store.Extend(ctx, lease, h...)
	c.responded(err)
	return out, err
}

// Finish calls the store, and keeps completions that were Applied.
func (c *cache) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	a := c.begin()
	out, err := c.store.Finish(ctx, f...)
	c.responded(err)
	if err == nil && len(out) == len(f) {
		c.lock()
		defer c.mu.Unlock()
		for i := range f {
			c.finished(a, &f[i], out[i])
		}
	}
	return out, err
}

// Offers calls the store.
func (c *cache) Offers(effects any) bool { return c.committer.Offers(effects) }

// Joins calls the store.
func (c *cache) Joins(q driver.Queue) bool { return c.committer.Joins(q) }

// Commit calls the store, and keeps completions that were Applied.
func (c *cache) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	a := c.begin()
	out, err := c.committer.Commit(ctx, w...)
	c.responded(err)
	if err == nil && len(out) == len(w) {
		c.worked(a, w, func(i int) driver.Outcome { return out[i] })
	}
	return out, err
}

// OffersTx calls the store.
func (c *cache) OffersTx(handle any) bool { return c.transactor.OffersTx(handle) }

// Begin decides the claims that hit. The transaction holds the others. It is nil if all claims hit.
func (c *cache) Begin(ctx context.Context, claims ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	out, rest, a := c.lookup(claims)
	if out != nil && len(rest) == 0 {
		return nil, out, nil
	}
	sent := claims
	if out != nil {
		sent = pick(claims, rest)
	}
	tx, grants, err := c.transactor.Begin(ctx, sent...)
	c.claimed(a, sent, grants, err)
	if tx != nil {
		tx = &cacheTx{Tx: tx, c: c}
	}
	if err != nil || out == nil {
		return tx, grants, err
	}
	return tx, merge(out, rest, grants), nil
}

// cacheTx is an open transaction of the store.
type cacheTx struct {
	driver.Tx
	c *cache
}

// Unwrap returns the transaction of the store.
func (t *cacheTx) Unwrap() any { return t.Tx }

// Commit commits the transaction, and keeps the completions if that certainly happened.
func (t *cacheTx) Commit(ctx context.Context, w ...driver.Work) error {
	a := t.c.begin()
	err := t.Tx.Commit(ctx, w...)
	t.c.responded(err)
	if err == nil {
		t.c.worked(a, w, func(int) driver.Outcome { return driver.Applied })
	}
	return err
}

// Operate calls the store. Whatever the outcome, it forgets the key, and results of calls in flight are not kept.
func (c *cache) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	defer func() {
		c.lock()
		defer c.mu.Unlock()
		c.changes++
		c.forget(op.Key)
	}()
	return c.operator.Operate(ctx, op)
}

// Sweep calls the store. If anything was purged or expired, it forgets the entries with an unknown retention.
func (c *cache) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (swept driver.Swept, more bool, err error) {
	swept, more, err = c.sweeper.Sweep(ctx, horizon, limit, consumers...)
	if swept.Purged+swept.Expired > 0 || err != nil {
		c.lock()
		defer c.mu.Unlock()
		c.changes++
		for _, n := range c.kept.nodes {
			if !n.retained {
				c.kept.remove(n)
			}
		}
	}
	return swept, more, err
}

// knows reports whether a delivery ended with this verdict before, and whether it was a redelivery according to the store.
func (e *entry) knows(id string) (redelivery, ok bool) {
	i := slices.IndexFunc(e.deliveries, func(d delivery) bool { return d.id == id })
	if i < 0 {
		return false, false
	}
	return e.deliveries[i].redelivery, true
}
