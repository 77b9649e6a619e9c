package semeltest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// clock is a clock that moves only by advance.
type clock struct {
	mu sync.Mutex
	at time.Time
	db *memory.DB
}

func openFake() (*memory.DB, *clock) {
	c := &clock{at: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
	c.db = memory.Open(memory.WithClock(func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.at
	}))
	return c.db, c
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	c.at = c.at.Add(d)
	c.mu.Unlock()
	c.db.Wake()
}

// planted is memory's store with a bug. Its fields are the places of bugs; nil is correct.
type planted struct {
	*memory.Store
	claim  func(s *planted, ctx context.Context, c []driver.Claim) ([]driver.Grant, error)
	extend func(s *planted, ctx context.Context, d time.Duration, h []driver.Hold) ([]driver.Outcome, error)
	finish func(s *planted, ctx context.Context, f []driver.Finish) ([]driver.Outcome, error)
	commit func(s *planted, ctx context.Context, w []driver.Work) ([]driver.Outcome, error)
	begin  func(s *planted, ctx context.Context, c []driver.Claim) (driver.Tx, []driver.Grant, error)
	grant  func(s *planted, c driver.Claim, g *driver.Grant)
	sweep  func(s *planted, ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error)
	list   func(s *planted, rs []driver.Record) []driver.Record
	left   func(rs []driver.Record, err error) ([]driver.Record, error) // of lists that leave out records
	clock  *clock

	swap    sync.RWMutex // guards Store
	mu      sync.Mutex
	seen    map[driver.Key]driver.Hold
	damaged map[driver.Key]bool // records that cannot be read
	locked  map[any]bool        // effects that wait for a lock
	parked  []driver.Record     // by list
}

// ledger is memory's, with a lock.
func (s *planted) ledger() *semeltest.Ledger {
	l := memledger.Of(s.store())
	l.Lock = func(testing.TB) (func(any), func()) {
		return func(e any) { s.locked[e] = true }, func() { clear(s.locked) }
	}
	return l
}

// readable splits claims by whether their records can be read, and fails those that cannot.
func (s *planted) readable(c []driver.Claim) (rest []driver.Claim, put func(gs []driver.Grant) []driver.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bad []int
	for i := range c {
		if s.damaged[c[i].Key] {
			bad = append(bad, i)
		} else {
			rest = append(rest, c[i])
		}
	}
	return rest, func(gs []driver.Grant) []driver.Grant {
		for _, i := range bad {
			gs = slices.Insert(gs, min(i, len(gs)), driver.Grant{Err: fmt.Errorf("planted: %w", driver.ErrUnreadable)})
		}
		return gs
	}
}

func (s *planted) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if s.claim != nil {
		return s.claim(s, ctx, c)
	}
	all := c
	c, put := s.readable(c)
	g, err := s.store().Claim(ctx, c...)
	if err == nil {
		g, c = put(g), all
	}
	if s.grant != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range g {
			s.grant(s, c[i], &g[i])
		}
	}
	return g, err
}

func (s *planted) Extend(ctx context.Context, d time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	if s.extend != nil {
		return s.extend(s, ctx, d, h)
	}
	return s.store().Extend(ctx, d, h...)
}

func (s *planted) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if s.finish != nil {
		return s.finish(s, ctx, f)
	}
	if len(s.damaged) == 0 {
		return s.store().Finish(ctx, f...)
	}
	out := make([]driver.Outcome, len(f))
	for i := range f {
		if s.damaged[f[i].Hold.Key] {
			continue
		}
		o, err := s.store().Finish(ctx, f[i])
		if err != nil {
			return nil, err
		}
		out[i] = o[0]
	}
	return out, nil
}

func (s *planted) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if s.commit != nil {
		return s.commit(s, ctx, w)
	}
	return s.locking(ctx, w)
}

func (s *planted) locking(ctx context.Context, w []driver.Work) ([]driver.Outcome, error) {
	for i := range w {
		if len(s.locked) > 0 && s.locked[w[i].Effects] {
			return nil, &driver.ItemError{Index: i, Err: fmt.Errorf("%w: planted", driver.ErrBlocked)}
		}
	}
	return s.store().Commit(ctx, w...)
}

func (s *planted) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if s.begin != nil {
		return s.begin(s, ctx, c)
	}
	c, put := s.readable(c)
	tx, gs, err := s.store().Begin(ctx, c...)
	if err == nil {
		gs = put(gs)
	}
	return tx, gs, err
}

func (s *planted) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	if s.sweep != nil {
		return s.sweep(s, ctx, horizon, limit, consumers...)
	}
	return s.store().Sweep(ctx, horizon, limit, consumers...)
}

// Cases leaves out records that cannot be read.
func (s *planted) Cases(ctx context.Context, f driver.CaseFilter) ([]driver.Record, driver.Cursor, error) {
	rs, next, err := s.store().Cases(ctx, f)
	return slices.DeleteFunc(rs, func(r driver.Record) bool { return s.damaged[r.Key] }), next, err
}

func (s *planted) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	rs, err := s.store().Records(ctx, f)
	if s.list != nil && f.State == driver.Uncertain {
		rs = s.list(s, rs)
	}
	var out driver.LeftOut
	rs = slices.DeleteFunc(rs, func(r driver.Record) bool {
		return s.damaged[r.Key] && out.Add(driver.ErrUnreadable) == nil
	})
	if err == nil {
		err = out.Err()
	}
	if s.left != nil {
		return s.left(rs, err)
	}
	return rs, err
}

func (s *planted) ScanRecords(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	rs, err := s.Records(ctx, f)
	for _, r := range rs {
		if err := each(r); err != nil {
			return err
		}
	}
	return err
}

func (s *planted) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	return s.store().Operate(ctx, op)
}

func (s *planted) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	return s.store().Record(ctx, k)
}

// store returns the present store: a sweep may replace it while others use it.
func (s *planted) store() *memory.Store {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return s.Store
}

// forget loses everything that is stored.
func (s *planted) forget() {
	s.swap.Lock()
	defer s.swap.Unlock()
	s.Store = s.clock.fresh()
}

// current is the hold that the record of k has now.
func (s *planted) current(ctx context.Context, k driver.Key) driver.Hold {
	r, _, _ := s.Record(ctx, k)
	return r.Hold()
}

// forged carries out writes with the record's own hold where use is true: a store that does not compare.
func (s *planted) forged(ctx context.Context, f []driver.Finish, use func(mine, theirs driver.Hold) bool) ([]driver.Outcome, error) {
	g := make([]driver.Finish, len(f))
	for i := range f {
		g[i] = f[i]
		if cur := s.current(ctx, f[i].Hold.Key); use(f[i].Hold, cur) {
			g[i].Hold = cur
		}
	}
	return s.store().Finish(ctx, g...)
}

// leakyTx commits an unfinished record for every claim that it holds.
type leakyTx struct {
	driver.Tx
	s      *planted
	claims []driver.Claim
}

func (t *leakyTx) Rollback(ctx context.Context) error {
	if err := t.Tx.Rollback(ctx); err != nil {
		return err
	}
	_, err := t.s.store().Claim(ctx, t.claims...)
	return err
}

// deafTx forgets the queued effects of a batch.
type deafTx struct{ driver.Tx }

func (t deafTx) Commit(ctx context.Context, w ...driver.Work) error {
	deaf := append([]driver.Work(nil), w...)
	for i := range deaf {
		deaf[i].Effects = nil
	}
	return t.Tx.Commit(ctx, deaf...)
}

// hastyTx writes the queued effects of a batch on their own, before it knows whether every hold is still valid.
type hastyTx struct {
	driver.Tx
	s *planted
}

func (t hastyTx) Commit(ctx context.Context, w ...driver.Work) error {
	if len(w) > 0 && w[0].Effects != nil {
		early := driver.Work{Effects: w[0].Effects}
		g, err := t.s.store().Claim(ctx, driver.Claim{
			Key: driver.Key{Consumer: "effects", Raw: w[0].Finish.Hold.Key.Raw}, Nonce: driver.Nonce{1}, Lease: time.Minute,
		})
		if err != nil {
			return err
		}
		early.Finish = driver.Finish{Hold: g[0].Hold, Final: driver.Complete}
		if _, err := t.s.store().Commit(ctx, early); err != nil {
			return err
		}
	}
	return deafTx{t.Tx}.Commit(ctx, w...)
}

// each commits works one by one, after a change.
func (s *planted) each(ctx context.Context, w []driver.Work, change func(*driver.Work)) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(w))
	for i := range w {
		x := w[i]
		change(&x)
		o, err := s.store().Commit(ctx, x)
		if err != nil {
			return nil, &driver.ItemError{Index: i, Err: err}
		}
		out[i] = o[0]
	}
	return out, nil
}

// fresh is a store on the same clock that has forgotten everything.
func (c *clock) fresh() *memory.Store {
	return memory.Open(memory.WithClock(func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.at
	})).Store()
}

// TestPlantedBugs plants one bug at a time into a correct store: the case that each names has to find it.
func TestPlantedBugs(t *testing.T) {
	for _, b := range append(append([]bug{{name: "none", make: func(*planted) {}}}, bugs()...), sweepBugs()...) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			open := func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := &planted{
					Store: db.Store(), clock: clock, seen: map[driver.Key]driver.Hold{}, damaged: map[driver.Key]bool{}, locked: map[any]bool{},
				}
				b.make(s)
				setup := semeltest.StoreSetup{
					Store: s, Advance: clock.advance, Ledger: s.ledger(), Damage: func(_ testing.TB, k driver.Key) { s.damaged[k] = true },
					Sample: 3, // a part of the cells has to find them, because most suites compare no more
				}
				if b.name != "tokens restart after a purge (FM12)" {
					setup.Queue = db.Queue("orders")
				}
				return setup
			}
			if b.in == "" {
				for _, f := range semeltest.CheckStore(t, open) {
					t.Errorf("the suite fails a right store: %s", f)
				}
				return
			}
			caught(t, semeltest.CheckStore(t, open, b.in))
		})
	}
}

// sharedDLQ is a store with one place for the dead letters of all queues.
type sharedDLQ struct {
	*memory.Store
	dlq driver.DeadLetterQueue
}

func (s sharedDLQ) DeadLetterQueue(string) driver.DeadLetterQueue { return s.dlq }

// TestPlantedDeadLetters: the suite finds a store that mixes up the dead letters of two queues.
func TestPlantedDeadLetters(t *testing.T) {
	caught(t, semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
		db := memory.Open()
		return semeltest.StoreSetup{Store: sharedDLQ{db.Store(), db.Queue("dead")}, Ledger: memledger.Of(db.Store())}
	}, "FM61 dead letters of queues"))
}
