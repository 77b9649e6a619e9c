package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Store keeps records in a table. Make it with [Open]. It has nothing to close.
type Store struct {
	client Client
	table  string
	o      Options
	shape  *shape
	slots  chan struct{} // one for each concurrent request
	meter  meter
	floor  floor
	rows   rowCache
	seen   observations

	runs    runLocks
	audits  auditSequence
	sweeper sweeper
}

// Open opens a table of records: one that [Create] created, or an existing one that Options.Layout describes. It reads one
// item, the floor of the tokens (see the package documentation), and fails if the table cannot be read.
func Open(ctx context.Context, client Client, table string, o Options) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("dynamodb: Open needs a client (dynamodb.NewFromConfig)")
	case table == "":
		return nil, errors.New("dynamodb: Open needs the name of a table")
	case o.Gate == table:
		return nil, fmt.Errorf("dynamodb: Options.Gate is %q, the table of the records: name another table", o.Gate)
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("dynamodb: %w", err)
	}
	sh, err := o.shape()
	if err != nil {
		return nil, fmt.Errorf("dynamodb: Options.%w", err)
	}
	s := &Store{client: client, table: table, o: o, shape: sh, slots: make(chan struct{}, o.Parallel)}
	s.rows.limit, s.seen.limit = o.MaxCached, o.MaxCached
	if err := s.readFloor(ctx); err != nil {
		return nil, fmt.Errorf("open table %q: %w", table, explain(err, "GetItem", table))
	}
	return s, nil
}

// maxResult leaves room in an item of 400 KB for the other attributes of a record: its key, reason and deliveries, and a
// journal of moderate size.
const maxResult = 256 << 10

// Features describes the store.
func (s *Store) Features() driver.StoreFeatures {
	f := driver.StoreFeatures{
		Name: "dynamodb table " + s.table, Kind: "dynamodb", Durable: true, MaxResult: maxResult,
	}
	if s.o.Observe {
		f.Caveats = append(f.Caveats, "DynamoDB has no clock of its own: the lease of another worker has ended when this "+
			"process has seen its record unchanged for the whole lease, so a key whose worker died is taken over a lease later")
	} else {
		f.Caveats = append(f.Caveats, fmt.Sprintf("DynamoDB has no clock of its own: the workers' clocks must agree within "+
			"%s; otherwise a live run may be taken for dead, and its key is run twice, with the older run fenced",
			driver.DurationText(s.o.skew())))
	}
	return f
}

// now is the time to the microsecond, as records keep it.
func (s *Store) now() time.Time { return s.o.Clock().Truncate(time.Microsecond) }

// Consumed returns what all calls of this store consumed: see [driver.Meter]. DynamoDB does not report what a failed
// condition cost, so it is counted by the size of the item that it returned.
func (s *Store) Consumed() driver.Units { return s.meter.units() }

// each calls f for 0 to n-1, as many at once as there are slots, and waits for all of them. f gets the error of ctx if ctx
// was done before a slot was free.
func (s *Store) each(ctx context.Context, n int, f func(i int, err error)) {
	if n == 1 {
		err := s.acquire(ctx)
		f(0, err)
		s.release(err)
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range n {
		err := s.acquire(ctx)
		if err != nil {
			f(i, err)
			continue
		}
		wg.Go(func() {
			f(i, nil)
			s.release(nil)
		})
	}
}

func (s *Store) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrNotCommitted, err)
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrNotCommitted, ctx.Err())
	}
}

func (s *Store) release(err error) {
	if err == nil {
		<-s.slots
	}
}

// rowCache keeps the rows of running attempts, as this process last saw them. It only saves reads: every write is
// conditional on the row, and no result is returned from the cache.
type rowCache struct {
	mu    sync.Mutex
	rows  map[driver.Key]row
	limit int
}

// of returns the row of an attempt.
func (c *rowCache) of(h driver.Hold) (r row, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok = c.rows[h.Key]
	return r, ok && r.Token == h.Token && r.Nonce == h.Nonce
}

// claimed returns the row of a key that an earlier claim with the same nonce made.
func (c *rowCache) claimed(k driver.Key, n driver.Nonce) (r row, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok = c.rows[k]
	return r, ok && r.Nonce == n
}

// put keeps the row of a running attempt, and forgets any other.
func (c *rowCache) put(r row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.State != driver.InProgress || r.Nonce == (driver.Nonce{}) {
		delete(c.rows, r.Key)
		return
	}
	if c.rows == nil {
		c.rows = map[driver.Key]row{}
	}
	if _, there := c.rows[r.Key]; !there && len(c.rows) >= c.limit {
		for k := range c.rows { // any will do
			delete(c.rows, k)
			break
		}
	}
	c.rows[r.Key] = r
}

func (c *rowCache) forget(k driver.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rows, k)
}
