package semeltest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// session is a connection to a broker, like those of AMQP: the broker delivers while the connection lasts, and takes the
// connection's messages back when it ends.
type session struct {
	*memory.Queue
	features func(f *driver.QueueFeatures)
	acked    func(m driver.Message) // after an ack

	mu   sync.Mutex
	gone bool
	held map[any]driver.Message
}

func (s *session) Features() driver.QueueFeatures {
	f := s.Queue.Features()
	f.Extends = false
	if s.features != nil {
		s.features(&f)
	}
	return f
}

func (s *session) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ds, err := s.Queue.Receive(ctx, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ds {
		ds[i].Visible = 0
		s.held[ds[i].Receipt] = ds[i].Message
	}
	return ds, err
}

func (s *session) Settle(ctx context.Context, ss ...driver.Settlement) ([]driver.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return make([]driver.Outcome, len(ss)), errors.New("connection closed")
	}
	for _, x := range ss {
		if s.acked != nil && x.Action == driver.Ack {
			s.acked(s.held[x.Receipt])
		}
		delete(s.held, x.Receipt)
	}
	return s.Queue.Settle(ctx, ss...)
}

func (s *session) Extend(context.Context, time.Duration, ...any) ([]driver.Outcome, error) {
	return nil, driver.ErrUnsupported
}

// end is the death of the process: back decides what happens to its messages.
func (s *session) end(t testing.TB, back driver.Action) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for r := range s.held {
		if _, err := s.Queue.Settle(t.Context(), driver.Settlement{Receipt: r, Action: back}); err != nil {
			t.Error(err)
		}
	}
	return &session{Queue: s.Queue, features: s.features, held: map[any]driver.Message{}}
}

func newSession(back driver.Action) (*session, semeltest.QueueSetup) {
	c := &clock{at: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
	c.db = memory.Open(memory.WithVisibility(1000*time.Hour), memory.WithClock(func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.at
	}))
	s := &session{Queue: c.db.Queue("orders"), held: map[any]driver.Message{}}
	return s, semeltest.QueueSetup{
		Queue: s, Advance: c.advance, Restart: func(t testing.TB) driver.Queue { return s.end(t, back) },
	}
}

// TestQueueWithoutVisibility: a broker that takes messages back when a connection ends, and no sooner, passes the suite.
func TestQueueWithoutVisibility(t *testing.T) {
	semeltest.RunQueue(t, func(testing.TB) semeltest.QueueSetup { _, setup := newSession(driver.Retry); return setup })
}

// fixed is a queue whose extensions last as long as its deliveries, whatever was requested.
type fixed struct{ *memory.Queue }

func (q fixed) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Visible = 30 * time.Second
	return f
}

func (q fixed) Extend(ctx context.Context, _ time.Duration, r ...any) ([]driver.Outcome, error) {
	return q.Queue.Extend(ctx, 30*time.Second, r...)
}

// TestQueueOfFixedVisibility: a broker that fixes the time of an extension passes the suite.
func TestQueueOfFixedVisibility(t *testing.T) {
	semeltest.RunQueue(t, func(testing.TB) semeltest.QueueSetup {
		db, clock := openFake()
		return semeltest.QueueSetup{Queue: fixed{db.Queue("orders")}, Advance: clock.advance}
	})
}

// TestPlantedBrokerBugs plants bugs that show when processes die, and features that are declared but missing.
func TestPlantedBrokerBugs(t *testing.T) {
	for _, b := range []struct {
		name, in string
		setup    func() semeltest.QueueSetup
	}{
		{"what a dead process held is forgotten", "FM05", func() semeltest.QueueSetup {
			_, setup := newSession(driver.Ack)
			return setup
		}},
		{"acked messages come again", "FM05", func() semeltest.QueueSetup {
			s, setup := newSession(driver.Retry)
			s.acked = func(m driver.Message) { _ = s.Send(context.Background(), m) }
			return setup
		}},
		{"a delay ends with its process, and its message", "a delay", func() semeltest.QueueSetup {
			s, setup := newSession(driver.Retry)
			restart := setup.Restart
			setup.Restart = func(t testing.TB) driver.Queue {
				_, _ = s.Purge(t.Context())
				return restart(t)
			}
			return setup
		}},
		{"an extension is of another time than declared", "extend", func() semeltest.QueueSetup {
			db, clock := openFake()
			q := &plantedQueue{Queue: db.Queue("orders"), last: map[string]any{}}
			q.features = func(f *driver.QueueFeatures) { f.Visible = 30 * time.Second }
			q.extend = func() (driver.Outcome, bool) { return driver.Applied, true }
			return semeltest.QueueSetup{Queue: q, Advance: clock.advance}
		}},
		{"it takes delays that it does not keep", "delays", func() semeltest.QueueSetup {
			s, setup := newSession(driver.Retry)
			s.features = func(f *driver.QueueFeatures) { f.DelaysSend = false }
			return setup
		}},
		{"dead letters are declared, and nowhere", "FM61", func() semeltest.QueueSetup {
			db, clock := openFake()
			q := struct {
				driver.Queue
				driver.Sender
			}{db.Queue("orders"), db.Queue("orders")}
			return semeltest.QueueSetup{Queue: q, Advance: clock.advance}
		}},
		{"it is empty before its messages are settled", "what was sent", func() semeltest.QueueSetup {
			db, clock := openFake()
			return semeltest.QueueSetup{Queue: hasty{db.Queue("orders")}, Advance: clock.advance}
		}},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				caught(t, semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup { return b.setup() }, b.in))
			})
		})
	}
}

// hasty reports that it is empty when it is not.
type hasty struct{ *memory.Queue }

func (hasty) Stats(context.Context) (driver.QueueStats, error) { return driver.QueueStats{}, nil }
