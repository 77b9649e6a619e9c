package semel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// batches records the calls of a batch handler.
type batches struct {
	mu    sync.Mutex
	calls [][]string
}

func (b *batches) call(batch []*semel.Attempt) {
	keys := make([]string, len(batch))
	for i, a := range batch {
		keys[i] = a.Key.Raw
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, keys)
}

func (b *batches) all() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *batches) longest() (n int) {
	for _, c := range b.all() {
		n = max(n, len(c))
	}
	return n
}

// queuedBatch and openBatch make batch handlers that write a row for each message, of both kinds.
func queuedBatch(fn func(batch []*semel.Attempt) error) semel.Handler {
	return semel.InTxBatch(func(_ context.Context, tx *memory.Effects, batch []*semel.Attempt) error {
		for _, a := range batch {
			tx.Append("ledger", a.Key.Raw)
		}
		return fn(batch)
	})
}

func openBatch(fn func(batch []*semel.Attempt) error) semel.Handler {
	return semel.InTxBatch(func(_ context.Context, tx *memory.Tx, batch []*semel.Attempt) error {
		for _, a := range batch {
			if err := tx.Append("ledger", a.Key.Raw); err != nil {
				return err
			}
		}
		return fn(batch)
	})
}

// bothKinds runs a test with effects that are queued and with an open transaction.
func bothKinds(t *testing.T, test func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler)) {
	t.Run("queued effects", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, queuedBatch) })
	})
	t.Run("open transaction", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, openBatch) })
	})
}

func (r *fixture) sendNumbers(n int) {
	for i := range n {
		r.send(msg(strconv.Itoa(i)))
	}
}

// wantEffects wants one effect of each of n numbered keys but some.
func (r *fixture) wantEffects(n int, but ...string) {
	r.t.Helper()
	rows := map[string]int{}
	for _, row := range r.db.Tables().Rows("ledger") {
		rows[row.Value]++
	}
	for i := range n {
		k, want := strconv.Itoa(i), 1
		if slices.Contains(but, k) {
			want = 0
		}
		if rows[k] != want {
			r.t.Errorf("key %s has %d effects, wanted %d", k, rows[k], want)
		}
	}
}

func TestBatchHandler(t *testing.T) {
	bothKinds(t, func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler) {
		var seen batches
		r := newFixture(t, handler(func(batch []*semel.Attempt) error {
			seen.call(batch)
			for _, a := range batch {
				if a.Token == 0 || a.Number != 1 || a.MaxAttempts != semel.DefaultMaxAttempts || a.Deadline.IsZero() {
					t.Errorf("attempt %+v", a)
				}
				a.SetResult([]byte("result of " + a.Key.Raw))
				a.Emit(semel.Message{Queue: "mails", Body: []byte(a.Key.Raw)})
			}
			return nil
		}), func(c *semel.Config) { c.Batch = 20 })
		for i := range 120 {
			r.send(msg(strconv.Itoa(i % 40)))
		}
		r.start()
		s := r.after(time.Minute)
		r.wantEffects(40)
		if s.Effects != 40 || s.Replayed != 80 || s.Executed != 40 {
			t.Errorf("summary %+v", s)
		}
		if len(seen.all()) != 2 || len(seen.all()[0]) != 20 || seen.all()[0][19] != "19" {
			t.Errorf("calls %v", seen.all())
		}
		if rec := r.record("7"); string(rec.Result) != "result of 7" {
			t.Errorf("record %+v", rec)
		}
		if st, _ := r.db.Queue("mails").Stats(context.Background()); st.Visible != 40 {
			t.Errorf("emitted %+v", st)
		}
		if g := r.c.Guarantee(); g.Mode != "B/C" || !strings.Contains(g.String(), "the batch's transaction") {
			t.Errorf("guarantee %v", g)
		}
	})
}

// A failure that nobody is named for is found by halving, by order of delivery; all others complete.
func TestFM60_BatchIsHalved(t *testing.T) {
	bothKinds(t, func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler) {
		const n, poison = 64, "42"
		var seen batches
		r := newFixture(t, handler(func(batch []*semel.Attempt) error {
			seen.call(batch)
			for _, a := range batch {
				if a.Key.Raw == poison {
					return errors.New("no good")
				}
			}
			return nil
		}), func(c *semel.Config) { c.Batch, c.MaxAttempts = n, 2 })
		r.sendNumbers(n)
		r.start()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		// 64 fail; 32, 16, 8, 4, 2 and 1 of them are tried until 42 is alone; then the rest together.
		if len(seen.all()) > 9 {
			t.Errorf("%d calls for one culprit among 64: %v", len(seen.all()), seen.all())
		}
		for _, c := range seen.all() {
			if !slices.IsSortedFunc(c, func(a, b string) int { x, _ := strconv.Atoi(a); y, _ := strconv.Atoi(b); return x - y }) {
				t.Errorf("not in order of delivery: %v", c)
			}
		}
		if i := slices.IndexFunc(seen.all(), func(c []string) bool { return len(c) == 1 && c[0] == poison }); i < 0 {
			t.Errorf("the culprit never ran alone: %v", seen.all())
		}
		rec := r.record(poison)
		if rec.State != driver.Released || rec.Failures != 1 || rec.Uncertainty != 0 || rec.Reason != "no good" {
			t.Errorf("record of the culprit %+v", rec)
		}
		s := r.after(time.Minute)
		r.wantEffects(n, poison)
		if s.Effects != n-1 || s.Dead != 1 || s.Retried != 1 {
			t.Errorf("summary %+v", s)
		}
		if l := r.deadLetters(); len(l) != 1 || l[0].Key.Raw != poison {
			t.Errorf("dead letters %+v", l)
		}
	})
}

// Several culprits, everywhere.
func TestBatchWithManyCulprits(t *testing.T) {
	bothKinds(t, func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler) {
		bad := []string{"0", "1", "17", "30", "31"}
		r := newFixture(t, handler(func(batch []*semel.Attempt) error {
			for _, a := range batch {
				if slices.Contains(bad, a.Key.Raw) && a.Number == 1 {
					return errors.New("not yet")
				}
			}
			return nil
		}), func(c *semel.Config) { c.Batch = 32 })
		r.sendNumbers(40)
		r.start()
		s := r.after(time.Minute)
		r.wantEffects(40)
		if s.Effects != 40 || s.Retried != 5 || len(r.deadLetters()) != 0 {
			t.Errorf("summary %+v", s)
		}
		for i := range 40 {
			k, want := strconv.Itoa(i), 0
			if slices.Contains(bad, k) {
				want = 1
			}
			if rec := r.record(k); rec.Failures != want || rec.State != driver.Completed {
				t.Errorf("record %s: %+v", k, rec)
			}
		}
	})
}

// A handler that names its culprits spares the halving; each error says what becomes of its message.
func TestBatchNamesItsCulprits(t *testing.T) {
	bothKinds(t, func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler) {
		var seen batches
		r := newFixture(t, handler(func(batch []*semel.Attempt) error {
			seen.call(batch)
			var errs []error
			for i, a := range batch {
				switch {
				case a.Key.Raw == "3":
					errs = append(errs, semel.ItemFailed(i, semel.Permanent(errors.New("no hope"))))
				case a.Key.Raw == "4" && a.Number == 1:
					errs = append(errs, fmt.Errorf("check: %w", semel.ItemFailed(i, semel.RetryAfter(errors.New("later"), 10*time.Second))))
				case a.Key.Raw == "5":
					errs = append(errs, semel.ItemFailed(i, semel.Drop("outdated")))
				}
			}
			return errors.Join(errs...)
		}), func(c *semel.Config) { c.Batch = 10 })
		r.sendNumbers(10)
		r.start()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if len(seen.all()) != 2 || len(seen.all()[1]) != 8 {
			t.Errorf("calls %v, wanted all and then all but 3 and 4", seen.all())
		}
		s := r.after(time.Minute)
		r.wantEffects(10, "3") // what a handler wrote for a message that it drops stays, as with InTx
		if s.Effects != 8 || s.Dropped != 1 || s.Dead != 1 || s.Retried != 1 {
			t.Errorf("summary %+v", s)
		}
		if rec := r.record("5"); rec.State != driver.Completed || rec.Reason != "dropped: outdated" {
			t.Errorf("record of the dropped one %+v", rec)
		}
		if rec := r.record("3"); rec.State != driver.FailedState || rec.Reason != "no hope" {
			t.Errorf("record of the hopeless one %+v", rec)
		}
	})
}

// A name that is none leaves the failure to halving; a panic does, too.
func TestBatchThatPanicsOrNamesNobody(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic": func() { panic("on purpose") },
		"index": func() {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, queuedBatch(func(batch []*semel.Attempt) error {
					for _, a := range batch {
						if a.Key.Raw == "5" && a.Number == 1 {
							fail()
							return semel.ItemFailed(len(batch), errors.New("out of range"))
						}
					}
					return nil
				}))
				r.sendNumbers(8)
				r.start()
				s := r.after(time.Minute)
				r.wantEffects(8)
				if s.Retried != 1 || s.Effects != 8 {
					t.Errorf("summary %+v", s)
				}
			})
		})
	}
}
