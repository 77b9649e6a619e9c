package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // driver of the raw shape

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
)

var shapes = []shape{{"raw", raw}, {"raw16", raw16}, {"adapter", adapter}, {"consumer", consumer}, {"claim", claims}}

// cpu is the processor time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// raw is the hand-written inbox table: n conditional inserts of the messages' ids.
func raw(ctx context.Context, c config, path string) (n int, u usage, err error) {
	keys := make([]any, c.n)
	for i := range keys {
		keys[i] = newID()
	}
	return inserts(ctx, c, path, keys, "CREATE TABLE ledger (id TEXT PRIMARY KEY, at INTEGER NOT NULL)")
}

// raw16 is the leanest conditional insert there is: 16 random bytes in a clustered table.
func raw16(ctx context.Context, c config, path string) (n int, u usage, err error) {
	keys := make([]any, c.n)
	for i := range keys {
		k := make([]byte, 16)
		if _, err := rand.Read(k); err != nil {
			return 0, u, err
		}
		keys[i] = k
	}
	return inserts(ctx, c, path, keys, "CREATE TABLE ledger (id BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID")
}

// newID is a random UUID, as producers make them.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-4%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// inserts writes keys under the same durability as the adapter: WAL, synchronous=FULL, the same checkpoint length.
func inserts(ctx context.Context, c config, path string, keys []any, table string) (n int, u usage, err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"+
		"&_pragma=wal_autocheckpoint(20000)&_pragma=cache_size(-16384)&_txlock=immediate")
	if err != nil {
		return 0, u, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, table); err != nil {
		return 0, u, err
	}
	stmt, err := db.PrepareContext(ctx, "INSERT INTO ledger (id, at) VALUES (?, ?) ON CONFLICT DO NOTHING")
	if err != nil {
		return 0, u, err
	}
	defer func() { err = errors.Join(err, stmt.Close()) }()
	stop := stopwatch()
	for n < c.n {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return n, u, err
		}
		inTx := tx.StmtContext(ctx, stmt)
		for end := min(n+c.batch, c.n); n < end; n++ {
			if _, err := inTx.ExecContext(ctx, keys[n], n); err != nil {
				return n, u, errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return n, u, err
		}
	}
	u = stop()
	return n, u, check(ctx, db, "ledger", c.n)
}

// check is the ledger's verdict: every effect once.
func check(ctx context.Context, db *sql.DB, table string, want int) error {
	var rows, ids int
	if err := db.QueryRowContext(ctx, "SELECT count(*), count(DISTINCT id) FROM "+table).Scan(&rows, &ids); err != nil {
		return err
	}
	if rows != want || ids != want {
		return fmt.Errorf("ledger has %d rows and %d ids, want %d", rows, ids, want)
	}
	return nil
}

// open makes a database with a ledger and, in the queue, n messages of which a share comes twice.
func open(ctx context.Context, c config, path string) (*sqlite.DB, int, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{Create: true})
	if err != nil {
		return nil, 0, err
	}
	if _, err := db.SQL().ExecContext(ctx, "CREATE TABLE ledger (id TEXT NOT NULL, at INTEGER NOT NULL)"); err != nil {
		return nil, 0, errors.Join(err, db.Close())
	}
	body := []byte(`{"data":"` + strings.Repeat("x", max(c.body-11, 0)) + `"}`)
	rnd := mrand.New(mrand.NewPCG(1, 2))
	var list []driver.Message
	for range c.n {
		m := driver.Message{ID: newID(), Body: body}
		list = append(list, m)
		if rnd.Float64() < c.dup {
			m.ID = list[rnd.IntN(len(list))].ID
			list = append(list, m)
		}
	}
	for i := 0; i < len(list); i += 1000 {
		if err := db.Queue("orders").Send(ctx, list[i:min(i+1000, len(list))]...); err != nil {
			return nil, 0, errors.Join(err, db.Close())
		}
	}
	return db, len(list), nil
}

// adapter works the queue off with c.workers callers, each of which receives, claims and commits c.batch at a time.
func adapter(ctx context.Context, c config, path string) (n int, u usage, err error) {
	db, total, err := open(ctx, c, path)
	if err != nil {
		return 0, u, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	w := &work{q: db.QueueWith("orders", time.Minute), s: db.Store(), total: int64(total), batch: c.batch}
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	var wg sync.WaitGroup
	stop := stopwatch()
	for range c.workers {
		wg.Go(func() {
			if err := w.loop(ctx); err != nil && ctx.Err() == nil {
				w.fail(err)
			}
		})
	}
	wg.Wait()
	u = stop()
	if w.err != nil {
		return 0, u, w.err
	}
	return c.n, u, check(context.WithoutCancel(ctx), db.SQL(), "ledger", c.n)
}

type work struct {
	q     *sqlite.Queue
	s     *sqlite.Store
	total int64
	batch int
	done  atomic.Int64
	stop  context.CancelFunc
	once  sync.Once
	err   error
}

func (w *work) fail(err error) {
	w.once.Do(func() { w.err = err })
	w.stop()
}

func (w *work) loop(ctx context.Context) error {
	for w.done.Load() < w.total {
		ds, err := w.q.Receive(ctx, w.batch)
		if err != nil {
			return err
		}
		if err := w.handle(ctx, ds); err != nil {
			return err
		}
		if w.done.Add(int64(len(ds))) >= w.total {
			w.stop()
		}
	}
	return nil
}

// handle does what the engine does with one batch. Duplicates inside it are settled with the first.
func (w *work) handle(ctx context.Context, ds []driver.Delivery) error {
	claims := make([]driver.Claim, 0, len(ds))
	first := make(map[string]int, len(ds))
	of := make([]int, len(ds))
	for i := range ds {
		if at, duplicate := first[ds[i].ID]; duplicate {
			of[i] = at
			continue
		}
		of[i] = len(claims)
		first[ds[i].ID] = len(claims)
		c := driver.Claim{Key: driver.Key{Consumer: "orders", Raw: ds[i].ID}, DeliveryID: ds[i].ID, Lease: time.Minute}
		if _, err := rand.Read(c.Nonce[:]); err != nil {
			return err
		}
		claims = append(claims, c)
	}
	grants, err := w.s.Claim(ctx, claims...)
	if err != nil {
		return err
	}
	works := make([]driver.Work, 0, len(ds))
	var acks []driver.Settlement
	taken := make([]bool, len(claims))
	for i := range ds {
		g := &grants[of[i]]
		ack := driver.Settlement{Receipt: ds[i].Receipt}
		switch {
		case g.Verdict == driver.Acquired && !taken[of[i]]:
			taken[of[i]] = true
			st := &driver.Statements{}
			st.Exec("INSERT INTO ledger (id, at) VALUES ($1, $2)", ds[i].ID, int64(i))
			works = append(works, driver.Work{
				Finish: driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: 14 * 24 * time.Hour}, Ack: &ack, Effects: st,
			})
		case g.Verdict == driver.Busy:
			// Another caller of this program runs it and does not fail.
			acks = append(acks, ack)
		default:
			acks = append(acks, ack)
		}
	}
	if len(works) > 0 {
		if _, err := w.s.Commit(ctx, works...); err != nil {
			return err
		}
	}
	if len(acks) > 0 {
		_, err = w.q.Settle(ctx, acks...)
	}
	return err
}

// claims measures single claims and completions of many callers: the writer gathers them. One item is one claim with
// its completion.
func claims(ctx context.Context, c config, path string) (n int, u usage, err error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{Create: true})
	if err != nil {
		return 0, u, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := db.Store()
	var next atomic.Int64
	var wg sync.WaitGroup
	w := &work{stop: func() {}}
	stop := stopwatch()
	for range c.callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(c.n); i = next.Add(1) {
				if err := claimOne(ctx, s, i); err != nil {
					w.fail(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return c.n, stop(), w.err
}

func claimOne(ctx context.Context, s *sqlite.Store, i int64) error {
	cl := driver.Claim{Key: driver.Key{Consumer: "c", Raw: fmt.Sprint(i)}, Lease: time.Minute}
	if _, err := rand.Read(cl.Nonce[:]); err != nil {
		return err
	}
	g, err := s.Claim(ctx, cl)
	if err != nil {
		return err
	}
	if g[0].Verdict != driver.Acquired {
		return fmt.Errorf("claim of a new key: %v", g[0].Verdict)
	}
	_, err = s.Finish(ctx, driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour})
	return err
}

// consumer works the queue off with one semel consumer whose handler queues its effect (mode A2): the whole engine
// around the adapter. Concurrency is ten batches, so that some can be received and some committed while others run; four
// committers let the group commit of the adapter carry more than one batch, as eight callers do in the adapter shape.
func consumer(ctx context.Context, c config, path string) (n int, u usage, err error) {
	db, total, err := open(ctx, c, path)
	if err != nil {
		return 0, u, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worker, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(),
		Concurrency: 10 * c.batch, Batch: c.batch, Committers: 4,
		Handler: semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
			tx.Exec("INSERT INTO ledger (id, at) VALUES ($1, $2)", a.Message.ID, int64(1))
			return nil
		}),
	})
	if err != nil {
		return 0, u, err
	}
	watch := stopwatch()
	go func() { // an observer would be part of what is measured
		for ctx.Err() == nil {
			if n := worker.Summary(); n.Effects+n.Replayed >= int64(total) {
				stop()
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	if err := worker.Run(ctx); err != nil {
		return 0, u, err
	}
	u = watch()
	return c.n, u, check(context.WithoutCancel(ctx), db.SQL(), "ledger", c.n)
}
