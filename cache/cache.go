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

// Options say how much a cache keeps, for how long, and whom it answers.
type Options struct {
	// Size is the most entries. 0 or less turns the cache off.
	Size int
	// Bytes is the most memory, about: keys, results and what an entry costs by itself. Defaults to DefaultBytes, or 1 KiB an
	// entry where that is more.
	Bytes int64
	// MaxAge is for how long an answer of the store may be given again, counted from before the call that got it; a hit does
	// not renew it. Defaults to DefaultMaxAge: a copy of a message whose ack was lost comes back after its visibility.
	MaxAge time.Duration
	// Strangers also answers deliveries whose ids the cache has not seen: what producers send twice. See the law in the
	// package's documentation for what that gives up.
	Strangers bool
	// Now is the clock; a monotonic one. Defaults to time.Now.
	Now func() time.Time
}

// New puts a cache before a store: a [driver.Wrapper]. [driver.As] finds the optional interfaces that the store has, and
// [driver.Cached]. With Options.Size 0 New returns the store itself.
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

// cache is the cache of a store. driver.As finds its optional interfaces only where the store has them.
type cache struct {
	store driver.Store
	// nil where the store has none.
	historian  driver.Historian
	committer  driver.Committer
	transactor driver.Transactor
	operator   driver.Operator
	sweeper    driver.Sweeper
	o          Options

	mu           sync.Mutex
	kept         *lru
	runs         map[driver.Key]run // attempts that this process was granted and has not ended
	order        []started          // the same, the oldest first; may name some that ended
	mostRuns     int
	history      uint64 // of the store, in which all of this was learned
	down         bool   // the latest call of the store failed: it is asked until one succeeds
	acts         uint64 // operators' acts, purges and changes of the history so far: an answer that was under way meanwhile is not kept
	hits, misses int64
}

// CacheStats tells what the cache holds and did.
func (c *cache) CacheStats() driver.CacheStats {
	c.lock()
	defer c.mu.Unlock()
	return driver.CacheStats{
		Entries: len(c.kept.nodes), Size: c.o.Size, Bytes: c.kept.bytes, Hits: c.hits, Misses: c.misses,
	}
}

// lock locks the cache. All that it knows goes when the store's history changed.
func (c *cache) lock() {
	c.mu.Lock()
	if c.historian == nil {
		return
	}
	if now := c.historian.History(); now != c.history {
		c.history = now
		c.acts++
		c.empty()
	}
}

// empty forgets everything.
func (c *cache) empty() {
	c.kept, c.runs, c.order = newLRU(c.o.Size, c.o.Bytes), map[driver.Key]run{}, nil
}

// Features are the store's.
func (c *cache) Features() driver.StoreFeatures { return c.store.Features() }

// Unwrap returns the store behind the cache.
func (c *cache) Unwrap() any { return c.store }

// Passes lists what changes no answer to a claim: journals of runs, the duplicate log, long-term periods.
func (c *cache) Passes() []driver.Interface {
	return []driver.Interface{
		driver.InterfaceOf[driver.StepStore](), driver.InterfaceOf[driver.DuplicateLog](),
		driver.InterfaceOf[driver.LongTerm](),
	}
}

// Adds lists what stores without a cache do not have.
func (c *cache) Adds() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Cached]()}
}

// Claim answers what the cache may answer, and asks the store for the rest, in one call. It blocks and fails as the store
// does; when the store fails nothing is answered.
func (c *cache) Claim(ctx context.Context, claims ...driver.Claim) ([]driver.Grant, error) {
	out, rest, a := c.lookup(claims)
	if out != nil && len(rest) == 0 {
		return out, nil
	}
	asked := claims
	if out != nil {
		asked = pick(claims, rest)
	}
	grants, err := c.store.Claim(ctx, asked...)
	c.claimed(a, asked, grants, err)
	if err != nil || out == nil {
		return grants, err
	}
	return merge(out, rest, grants), nil
}

// pick takes the items at the places.
func pick(claims []driver.Claim, places []int) []driver.Claim {
	some := make([]driver.Claim, len(places))
	for i, at := range places {
		some[i] = claims[at]
	}
	return some
}

// merge puts the store's grants to the cache's. A short answer stays one: whoever asked has to see it.
func merge(out []driver.Grant, places []int, grants []driver.Grant) []driver.Grant {
	if len(grants) != len(places) {
		return grants
	}
	for i, at := range places {
		out[at] = grants[i]
	}
	return out
}

// Extend is the store's.
func (c *cache) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	out, err := c.store.Extend(ctx, lease, h...)
	c.asked(err)
	return out, err
}

// Finish is the store's. Completions that it answers Applied are kept.
func (c *cache) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	a := c.begin()
	out, err := c.store.Finish(ctx, f...)
	c.asked(err)
	if err == nil && len(out) == len(f) {
		c.lock()
		defer c.mu.Unlock()
		for i := range f {
			c.finished(a, &f[i], out[i])
		}
	}
	return out, err
}

// Offers is the store's.
func (c *cache) Offers(effects any) bool { return c.committer.Offers(effects) }

// Joins is the store's.
func (c *cache) Joins(q driver.Queue) bool { return c.committer.Joins(q) }

// Commit is the store's. Completions that it answers Applied are kept.
func (c *cache) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	a := c.begin()
	out, err := c.committer.Commit(ctx, w...)
	c.asked(err)
	if err == nil && len(out) == len(w) {
		c.worked(a, w, func(i int) driver.Outcome { return out[i] })
	}
	return out, err
}

// OffersTx is the store's.
func (c *cache) OffersTx(handle any) bool { return c.transactor.OffersTx(handle) }

// Begin answers what the cache may answer; the transaction holds the rest. When nothing is left there is none.
func (c *cache) Begin(ctx context.Context, claims ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	out, rest, a := c.lookup(claims)
	if out != nil && len(rest) == 0 {
		return nil, out, nil
	}
	asked := claims
	if out != nil {
		asked = pick(claims, rest)
	}
	tx, grants, err := c.transactor.Begin(ctx, asked...)
	c.claimed(a, asked, grants, err)
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

// Commit is the transaction's. What it certainly committed is kept.
func (t *cacheTx) Commit(ctx context.Context, w ...driver.Work) error {
	a := t.c.begin()
	err := t.Tx.Commit(ctx, w...)
	t.c.asked(err)
	if err == nil {
		t.c.worked(a, w, func(int) driver.Outcome { return driver.Applied })
	}
	return err
}

// Operate is the store's. Whatever it answers, the key is asked for again: by the cache, and by answers under way.
func (c *cache) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	defer func() {
		c.lock()
		defer c.mu.Unlock()
		c.acts++
		c.forget(op.Key)
	}()
	return c.operator.Operate(ctx, op)
}

// Sweep is the store's. When it purged or expired anything, entries go whose retention
// nobody told the cache.
func (c *cache) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (swept driver.Swept, more bool, err error) {
	swept, more, err = c.sweeper.Sweep(ctx, horizon, limit, consumers...)
	if swept.Purged+swept.Expired > 0 || err != nil {
		c.lock()
		defer c.mu.Unlock()
		c.acts++
		for _, n := range c.kept.nodes {
			if !n.retained {
				c.kept.remove(n)
			}
		}
	}
	return swept, more, err
}

// knows tells whether the cache has seen a delivery end at this entry, and what the store said of it then.
func (e *entry) knows(id string) (redelivery, ok bool) {
	i := slices.IndexFunc(e.deliveries, func(d delivery) bool { return d.id == id })
	if i < 0 {
		return false, false
	}
	return e.deliveries[i].redelivery, true
}
