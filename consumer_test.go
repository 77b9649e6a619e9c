package semel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// bench of one consumer on a memory database; every test runs it in virtual time.
type fixture struct {
	t     *testing.T
	db    *memory.DB
	queue *memory.Queue
	store *memory.Store
	cfg   semel.Config
	c     *semel.Consumer
	stop  context.CancelFunc
	done  chan error
}

func newFixture(t *testing.T, h semel.Handler, tweak ...func(*semel.Config)) *fixture {
	t.Helper()
	r := &fixture{t: t, db: memory.Open(), done: make(chan error, 1)}
	r.queue, r.store = r.db.Queue("orders"), r.db.Store()
	r.cfg = semel.Config{Queue: r.queue, Store: r.store, Handler: h, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range tweak {
		f(&r.cfg)
	}
	return r
}

func (r *fixture) send(m ...semel.Message) {
	r.t.Helper()
	if err := r.queue.Send(context.Background(), m...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *fixture) start() {
	r.t.Helper()
	c, err := semel.New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.c, r.stop = c, stop
	go func() { r.done <- c.Run(ctx) }()
}

// after lets virtual time pass, drains and returns the summary.
func (r *fixture) after(d time.Duration) semel.Summary {
	r.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Fatal(err)
	}
	return r.c.Summary()
}

func (r *fixture) record(key string) driver.Record {
	r.t.Helper()
	rec, ok, err := r.store.Record(context.Background(), semel.Key{Consumer: "orders", Raw: key})
	if err != nil || !ok {
		r.t.Fatalf("record %q: ok=%v err=%v", key, ok, err)
	}
	return rec
}

func (r *fixture) deadLetters() []driver.DeadLetter {
	r.t.Helper()
	ls, err := r.queue.DeadLetters(context.Background(), 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return ls
}

func msg(id string) semel.Message { return semel.Message{ID: id, Body: []byte(id)} }

func TestEachMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		runs := map[string]int{}
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			runs[a.Key.Raw]++
			return nil
		}))
		for i := range 300 {
			r.send(msg(fmt.Sprintf("m%d", i%100)))
		}
		r.start()
		s := r.after(5 * time.Minute)
		if len(runs) != 100 || s.Effects != 100 || s.Replayed != 200 || s.Received < 300 {
			t.Fatalf("runs of %d keys, summary %+v", len(runs), s)
		}
		for k, n := range runs {
			if n != 1 {
				t.Errorf("key %s ran %d times", k, n)
			}
		}
	})
}

func TestFM06_PanicIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			if runs.Add(1) == 1 {
				panic("boom")
			}
			return nil
		}))
		r.send(msg("a"))
		r.start()
		s := r.after(time.Minute)
		if runs.Load() != 2 || s.Effects != 1 || s.Retried != 1 {
			t.Fatalf("%d runs, %+v", runs.Load(), s)
		}
		if rec := r.record("a"); rec.Uncertainty != 1 || rec.State != driver.Completed {
			t.Fatalf("record %+v", rec)
		}
	})
}

func TestPermanentErrorBecomesALetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			return semel.Permanent(errors.New("no such product"))
		}))
		r.send(msg("a"), msg("a"))
		r.start()
		s := r.after(time.Minute)
		ls := r.deadLetters()
		if len(ls) != 1 || ls[0].Reason != "no such product" || ls[0].Kind != driver.DeadLetterFailed || string(ls[0].Message.Body) != "a" {
			t.Fatalf("dead letters %+v", ls)
		}
		if s.Dead != 1 || s.Executed != 1 || r.record("a").State != driver.FailedState {
			t.Fatalf("%+v", s)
		}
	})
}

func TestAttemptsRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if n := runs.Add(1); int(n) != a.Number {
				t.Errorf("run %d is attempt %d", n, a.Number)
			}
			return errors.New("down")
		}), func(c *semel.Config) { c.MaxAttempts = 3 })
		r.send(msg("a"))
		r.start()
		s := r.after(10 * time.Minute)
		if runs.Load() != 3 || s.Retried != 2 || s.Dead != 1 || len(r.deadLetters()) != 1 {
			t.Fatalf("%d runs, %+v", runs.Load(), s)
		}
	})
}

func TestFM08_WedgedHandlerIsCancelledAndLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		var cause error
		r := newFixture(t, semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			if runs.Add(1) > 1 {
				return nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(5 * time.Minute) // ignores it
			return ctx.Err()
		}), func(c *semel.Config) { c.MaxRuntime = time.Minute; c.Visibility = 10 * time.Second })
		r.send(msg("a"))
		r.start()
		s := r.after(20 * time.Minute)
		if !errors.Is(cause, semel.ErrTimeout) {
			t.Fatalf("cause %v", cause)
		}
		if runs.Load() != 2 || s.Effects != 1 || s.Fenced+s.Retried != 1 {
			t.Fatalf("%d runs, %+v", runs.Load(), s)
		}
	})
}

func TestFM07_LongHandlerKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			runs.Add(1)
			time.Sleep(10 * time.Minute)
			return nil
		}), func(c *semel.Config) { c.Visibility = 5 * time.Second })
		r.send(msg("a"))
		r.start()
		r2, err := semel.New(r.cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r2.Run(ctx) }()
		s := r.after(11 * time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if runs.Load() != 1 || s.Effects+r2.Summary().Effects != 1 {
			t.Fatalf("%d runs, %+v", runs.Load(), s)
		}
	})
}

func TestFM64_DrainReturnsAndCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			if a.ID == "quick" { // what follows is fetched ahead
				return nil
			}
			select {
			case <-ctx.Done():
				if errors.Is(context.Cause(ctx), semel.ErrDraining) {
					cancelled.Add(1)
				}
				return ctx.Err()
			case <-time.After(time.Hour):
				return nil
			}
		}), func(c *semel.Config) { c.Concurrency = 2 })
		r.send(msg("quick"))
		r.start()
		synctest.Wait()
		for i := range 10 {
			r.send(msg(fmt.Sprint(i)))
		}
		before := time.Now()
		s := r.after(time.Second)
		if took := time.Since(before); took > 27*time.Second {
			t.Fatalf("drain took %s", took)
		}
		if cancelled.Load() != 2 || s.Returned != 4 || s.Effects != 1 {
			t.Fatalf("cancelled %d, %+v", cancelled.Load(), s)
		}
		st, err := r.queue.Stats(context.Background())
		if err != nil || st.Visible != 10 {
			t.Fatalf("everything is to be deliverable again: %+v %v", st, err)
		}
		if rec := r.record("0"); rec.State != driver.Released || rec.Failures != 0 {
			t.Fatalf("a cancelled run is no failure of the message: %+v", rec)
		}
	})
}

func TestHandlerStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { <-release; return nil }))
		r.send(msg("a"))
		r.start()
		time.Sleep(time.Second)
		r.stop()
		var stuck *semel.HandlerStuckError
		if err := <-r.done; !errors.As(err, &stuck) || stuck.N != 1 {
			t.Fatalf("err %v", err)
		}
		if r.record("a").State != driver.InProgress {
			t.Fatal("law 11: a key is never released while its handler still runs")
		}
		close(release)
	})
}

func TestTransactionalEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.InTx(func(_ context.Context, tx *memory.Effects, a *semel.Attempt) error {
			tx.Append("ledger", a.Key.Raw)
			a.Emit(semel.Message{Queue: "mails", Body: []byte(a.Key.Raw)})
			a.SetResult([]byte("ok"))
			if a.Key.Raw == "7" && a.Number == 1 {
				tx.Refuse(errors.New("constraint"))
			}
			return nil
		}))
		for i := range 60 {
			r.send(msg(fmt.Sprint(i % 20)))
		}
		r.start()
		s := r.after(5 * time.Minute)
		if n := r.db.Tables().Len("ledger"); n != 20 {
			t.Fatalf("%d effects of 20 keys, %+v", n, s)
		}
		if st, _ := r.db.Queue("mails").Stats(context.Background()); st.Visible != 20 {
			t.Fatalf("emitted %+v", st)
		}
		if rec := r.record("7"); rec.Failures != 1 || rec.Uncertainty != 0 || string(rec.Result) != "ok" {
			t.Fatalf("a refused effect is a failure that had none: %+v", rec)
		}
		if g := r.c.Guarantee(); g.Mode != "A2" {
			t.Fatalf("%+v", g)
		}
	})
}

func TestOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seven atomic.Int32
		r := newFixture(t, semel.InTx(func(_ context.Context, tx *memory.Tx, a *semel.Attempt) error {
			tx.Append("ledger", a.Key.Raw)
			if a.Key.Raw == "7" && seven.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		}))
		for i := range 60 {
			r.send(msg(fmt.Sprint(i % 20)))
		}
		r.start()
		s := r.after(20 * time.Minute)
		if n := r.db.Tables().Len("ledger"); n != 20 {
			t.Fatalf("%d effects of 20 keys, %+v", n, s)
		}
		if rec := r.record("7"); rec.Failures != 2 || rec.Uncertainty != 0 {
			t.Fatalf("record %+v", rec)
		}
	})
}

func TestOncePolicyParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if runs.Add(1) == 1 && a.Key.Raw == "b" {
				return semel.NotApplied(errors.New("refused before the effect"))
			}
			if a.Key.Raw == "a" {
				return errors.New("connection reset")
			}
			return nil
		}), func(c *semel.Config) { c.Takeover = semel.Once; c.Concurrency = 1 })
		r.send(msg("b"), msg("a"))
		r.start()
		s := r.after(time.Hour)
		if runs.Load() != 3 || s.Uncertain != 1 || r.record("a").State != driver.Uncertain || r.record("b").State != driver.Completed {
			t.Fatalf("%d runs, %+v", runs.Load(), s)
		}
		if ls := r.deadLetters(); len(ls) != 1 || ls[0].Kind != driver.DeadLetterUncertain {
			t.Fatalf("dead letters %+v", ls)
		}
	})
}

func TestFM55_MessageWithoutAUsableKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			func(c *semel.Config) { c.Key = key.FromHeader("order") })
		r.send(semel.Message{ID: "1", Body: []byte("x")}, semel.Message{ID: "2", Headers: map[string]string{"order": "o1"}})
		r.start()
		s := r.after(time.Minute)
		if ls := r.deadLetters(); len(ls) != 1 || ls[0].Message.ID != "1" || s.Effects != 1 || s.Rejected != 1 {
			t.Fatalf("dead letters %+v, %+v", ls, s)
		}
	})
}

func TestUnkeyedRunsUnprotectedWhenAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			func(c *semel.Config) { c.Key = key.FromHeader("order"); c.AllowUnkeyed = true })
		r.send(semel.Message{ID: "1", Body: []byte("x")})
		r.start()
		if s := r.after(time.Minute); s.Unprotected != 1 || s.Executed != 1 || len(r.deadLetters()) != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			func(c *semel.Config) { c.Limit = 7 })
		for i := range 20 {
			r.send(msg(fmt.Sprint(i)))
		}
		r.start()
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		if s := r.c.Summary(); s.Received != 7 || s.Effects != 7 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	db := memory.Open()
	ok := semel.Config{Queue: db.Queue("q"), Store: db.Store(), Handler: semel.HandlerFunc(nil)}
	for name, tweak := range map[string]func(*semel.Config){
		"Queue":       func(c *semel.Config) { c.Queue = nil },
		"Store":       func(c *semel.Config) { c.Store = nil },
		"Handler":     func(c *semel.Config) { c.Handler = nil },
		"Concurrency": func(c *semel.Config) { c.Concurrency = -1 },
		"Visibility":  func(c *semel.Config) { c.Visibility = time.Millisecond },
		"Probe":       func(c *semel.Config) { c.Takeover = semel.Probe },
		"Timeout":     func(c *semel.Config) { c.Timeout = time.Hour },
	} {
		c := ok
		tweak(&c)
		var bad *semel.ConfigError
		if _, err := semel.New(c); !errors.As(err, &bad) || bad.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := ok
	c.Handler = semel.InTx(func(context.Context, *testing.T, *semel.Attempt) error { return nil })
	if _, err := semel.New(c); !errors.Is(err, semel.ErrNoTx) {
		t.Errorf("unknown transaction: %v", err)
	}
}

// BenchmarkEngine is the engine on the memory adapters: ns and allocations per message from fetch to settle.
func BenchmarkEngine(b *testing.B) {
	for _, conc := range []int{16, 256} {
		b.Run(fmt.Sprintf("concurrency=%d", conc), func(b *testing.B) {
			db := memory.Open()
			q, s := db.Queue("orders"), db.Store()
			ms := make([]semel.Message, b.N)
			for i := range ms {
				ms[i] = semel.Message{ID: fmt.Sprintf("message-%d", i), Body: []byte(`{"order":1}`)}
			}
			if err := q.Send(context.Background(), ms...); err != nil {
				b.Fatal(err)
			}
			c, err := semel.New(semel.Config{
				Queue: q, Store: s, Concurrency: conc, Limit: b.N,
				Key:     func(m *semel.Message) (string, error) { return m.ID, nil },
				Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := c.Run(context.Background()); err != nil {
				b.Fatal(err)
			}
			if s := c.Summary(); s.Effects != int64(b.N) {
				b.Fatalf("%+v", s)
			}
		})
	}
}
