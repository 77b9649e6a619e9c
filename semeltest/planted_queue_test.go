package semeltest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// plantedQueue is memory's queue with a bug.
type plantedQueue struct {
	*memory.Queue
	settle   func(q *plantedQueue, s *driver.Settlement) (done bool, o driver.Outcome)
	extend   func() (driver.Outcome, bool)
	receive  func(q *plantedQueue, d []driver.Delivery)
	send     func(m *driver.Message)
	features func(f *driver.QueueFeatures)

	mu   sync.Mutex
	last map[string]any // the latest receipt of each message
}

func (q *plantedQueue) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	if q.features != nil {
		q.features(&f)
	}
	return f
}

func (q *plantedQueue) Send(ctx context.Context, m ...driver.Message) error {
	n := append([]driver.Message(nil), m...)
	for i := range n {
		if q.send != nil {
			q.send(&n[i])
		}
	}
	return q.Queue.Send(ctx, n...)
}

func (q *plantedQueue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	d, err := q.Queue.Receive(ctx, limit)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range d {
		q.last[d[i].ID] = d[i].Receipt
	}
	if q.receive != nil {
		q.receive(q, d)
	}
	return d, err
}

func (q *plantedQueue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if q.settle == nil {
		return q.Queue.Settle(ctx, s...)
	}
	out := make([]driver.Outcome, len(s))
	for i := range s {
		x := s[i]
		done, o := q.settle(q, &x)
		if !done {
			got, err := q.Queue.Settle(ctx, x)
			if err != nil {
				return out, err
			}
			o = got[0]
		}
		out[i] = o
	}
	return out, nil
}

func (q *plantedQueue) Extend(ctx context.Context, d time.Duration, r ...any) ([]driver.Outcome, error) {
	if q.extend != nil {
		out := make([]driver.Outcome, len(r))
		for i := range out {
			out[i], _ = q.extend()
		}
		return out, nil
	}
	return q.Queue.Extend(ctx, d, r...)
}

type queueBug struct {
	name, in string
	make     func(q *plantedQueue)
}

func queueBugs() []queueBug {
	onSettle := func(f func(s *driver.Settlement) bool) func(q *plantedQueue) {
		return func(q *plantedQueue) {
			q.settle = func(_ *plantedQueue, s *driver.Settlement) (bool, driver.Outcome) { return f(s), driver.Applied }
		}
	}
	return []queueBug{
		{"a retry removes the message", "retry", onSettle(func(s *driver.Settlement) bool {
			if s.Action == driver.Retry {
				s.Action = driver.Ack
			}
			return false
		})},
		{"delays are not honoured", "retry", onSettle(func(s *driver.Settlement) bool { s.After = 0; return false })},
		{"an ack does nothing", "ack", onSettle(func(s *driver.Settlement) bool { return s.Action == driver.Ack })},
		{"a dead message leaves no dead letter (FM61)", "FM61", onSettle(func(s *driver.Settlement) bool {
			if s.Action == driver.Dead {
				s.Action = driver.Ack
			}
			return false
		})},
		{"dead letters are not closed", "closing", onSettle(func(s *driver.Settlement) bool { s.Close = ""; return false })},
		{"stale receipts settle the new delivery and say lost (FM18)", "FM18", func(q *plantedQueue) {
			q.settle = func(q *plantedQueue, s *driver.Settlement) (bool, driver.Outcome) {
				out, _ := q.Queue.Settle(context.Background(), *s)
				if out[0] != driver.Lost || s.Action != driver.Ack {
					return true, out[0]
				}
				q.mu.Lock()
				defer q.mu.Unlock()
				for _, r := range q.last {
					_, _ = q.Queue.Settle(context.Background(), driver.Settlement{Receipt: r})
				}
				return true, driver.Lost
			}
		}},
		{"an extension does nothing", "extend", func(q *plantedQueue) {
			q.extend = func() (driver.Outcome, bool) { return driver.Applied, true }
		}},
		{"it denies that it extends", "extend", func(q *plantedQueue) {
			q.features = func(f *driver.QueueFeatures) { f.Extends = false }
		}},
		{"it denies its dead letters", "FM61", func(q *plantedQueue) {
			q.features = func(f *driver.QueueFeatures) { f.DeadLetters = false }
		}},
		{"counts begin at 0", "messages arrive", func(q *plantedQueue) {
			q.receive = func(_ *plantedQueue, d []driver.Delivery) {
				for i := range d {
					d[i].Count--
				}
			}
		}},
		{"the position is that of the sender", "messages arrive", func(q *plantedQueue) {
			q.receive = func(_ *plantedQueue, d []driver.Delivery) {
				for i := range d {
					d[i].Position = &driver.Position{Log: "of another queue"}
				}
			}
		}},
		{"groups are forgotten", "ordered groups", func(q *plantedQueue) {
			q.send = func(m *driver.Message) { m.Group = "" }
		}},
		{"headers are lost", "messages arrive", func(q *plantedQueue) { q.send = func(m *driver.Message) { m.Headers = nil } }},
		{"bodies are cut", "bodies", func(q *plantedQueue) {
			q.send = func(m *driver.Message) { m.Body = m.Body[:min(len(m.Body), 60_000)] }
		}},
		{"a delay is ignored", "delays", func(q *plantedQueue) { q.send = func(m *driver.Message) { m.Delay = 0 } }},
	}
}

// caught fails unless the case that ran found the planted bug.
func caught(t *testing.T, failures []string) {
	t.Helper()
	if len(failures) == 0 {
		t.Error("the suite did not notice")
		return
	}
	t.Logf("caught: %s (and %d more)", failures[0], len(failures)-1)
}

// TestPlantedQueueBugs plants one bug at a time into a correct queue.
func TestPlantedQueueBugs(t *testing.T) {
	for _, b := range queueBugs() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				caught(t, semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
					db, clock := openFake()
					q := &plantedQueue{Queue: db.Queue("orders"), last: map[string]any{}}
					b.make(q)
					return semeltest.QueueSetup{Queue: q, Advance: clock.advance}
				}, b.in))
			})
		})
	}
}

// TestPlantedPairBugs plants bugs that only show when a consumer works.
func TestPlantedPairBugs(t *testing.T) {
	for _, b := range []struct {
		name, in string
		store    func(s *planted)
		queue    func(q *plantedQueue)
	}{
		{"every delivery is called the first (FM83)", "FM83", nil, func(q *plantedQueue) {
			q.receive = func(_ *plantedQueue, d []driver.Delivery) {
				for i := range d {
					d[i].Count = 1
				}
			}
		}},
		{"no deduplication", "every message once", func(s *planted) {
			s.claim = func(s *planted, ctx context.Context, c []driver.Claim) ([]driver.Grant, error) {
				g, err := s.Store.Claim(ctx, c...)
				for i := range g {
					if g[i].Verdict == driver.Replay {
						g[i].Verdict = driver.Acquired
					}
				}
				return g, err
			}
		}, nil},
		{"a busy duplicate is called done (FM16)", "many consumers", func(s *planted) {
			s.claim = func(s *planted, ctx context.Context, c []driver.Claim) ([]driver.Grant, error) {
				g, err := s.Store.Claim(ctx, c...)
				for i := range g {
					if g[i].Verdict == driver.Acquired && len(c[i].Key.Raw)%3 == 0 {
						_, _ = s.Store.Finish(ctx, driver.Finish{Hold: g[i].Hold, Final: driver.Release, Keep: time.Hour})
						g[i].Verdict = driver.Replay
					}
				}
				return g, err
			}
		}, nil},
		{"retries are dropped", "failing handlers", nil, func(q *plantedQueue) {
			q.settle = func(_ *plantedQueue, s *driver.Settlement) (bool, driver.Outcome) {
				if s.Action == driver.Retry {
					s.Action = driver.Ack
				}
				return false, 0
			}
		}},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				caught(t, semeltest.CheckPair(t, func(testing.TB) semeltest.PairSetup {
					db := memory.Open(memory.WithVisibility(time.Second))
					s := &planted{Store: memory.NewStore(), seen: map[driver.Key]driver.Hold{}}
					q := &plantedQueue{Queue: db.Queue("orders"), last: map[string]any{}}
					if b.store != nil {
						b.store(s)
					}
					if b.queue != nil {
						b.queue(q)
					}
					return semeltest.PairSetup{
						Queue: q, Store: s, Visibility: time.Second, Ledger: memledger.Of(s.Store),
						Tx: func(fn func(context.Context, func(string) error, *semel.Attempt) error) semel.Handler {
							return semel.InTx(func(ctx context.Context, tx *memory.Tx, a *semel.Attempt) error {
								return fn(ctx, func(id string) error { return tx.Append("ledger", id) }, a)
							})
						},
					}
				}, b.in))
			})
		})
	}
}

var _ semel.Queue = (*plantedQueue)(nil)
