package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/outbox"
)

// fifo is a queue as SQS's FIFO queues are: one Receive hands out several messages of a group, one behind the other. What is
// returned can be redelivered at once, although later ones of its group are still out.
type fifo struct {
	mu    sync.Mutex
	left  []string // in order; the group is the first character
	out   map[string]bool
	back  []string // what was returned, in this order
	dead  []string
	again chan struct{}
}

func newFIFO(ids ...string) *fifo {
	return &fifo{left: ids, out: map[string]bool{}, again: make(chan struct{}, 1)}
}

func (*fifo) Features() driver.QueueFeatures {
	return driver.QueueFeatures{
		Name: "runs.fifo", Kind: "test", MaxBatch: 10, Durable: true, Extends: true, Delays: true, DelaysSend: true, Orders: true, Runs: true,
		DeadLetters: true,
	}
}

func (q *fifo) Receive(ctx context.Context, n int) (ds []driver.Delivery, err error) {
	for len(ds) == 0 {
		q.mu.Lock()
		for _, id := range q.left {
			if len(ds) < n && !q.out[id] {
				q.out[id] = true
				ds = append(ds, driver.Delivery{Message: driver.Message{ID: id, Group: id[:1]}, Receipt: id, Visible: time.Minute})
			}
		}
		q.mu.Unlock()
		if len(ds) > 0 {
			return ds, nil
		}
		select {
		case <-q.again:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return ds, nil
}

func (q *fifo) Settle(_ context.Context, ss ...driver.Settlement) ([]driver.Outcome, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]driver.Outcome, len(ss))
	for i, s := range ss {
		id := s.Receipt.(string)
		out[i] = driver.Applied
		delete(q.out, id)
		switch s.Action {
		case driver.Dead:
			q.dead = append(q.dead, id)
			fallthrough
		case driver.Ack:
			q.left = slices.DeleteFunc(q.left, func(have string) bool { return have == id })
		default:
			q.back = append(q.back, id)
		}
	}
	select {
	case q.again <- struct{}{}:
	default:
	}
	return out, nil
}

func (*fifo) Extend(_ context.Context, _ time.Duration, receipts ...any) ([]driver.Outcome, error) {
	return slices.Repeat([]driver.Outcome{driver.Applied}, len(receipts)), nil
}

// place takes messages, and may refuse them.
type place struct {
	got    []string
	refuse func(ids []string) error
}

func (p *place) Send(_ context.Context, m ...driver.Message) error {
	var ids []string
	for i := range m {
		ids = append(ids, m[i].ID)
	}
	if p.refuse != nil {
		if err := p.refuse(ids); err != nil {
			return err
		}
	}
	p.got = append(p.got, ids...)
	return nil
}

func runRelay(t *testing.T, c outbox.Config) {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	r, err := outbox.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// ofGroup are the ids of a group, each once: a copy that comes later says nothing about order.
func ofGroup(g string, ids []string) (out []string) {
	for _, id := range ids {
		if strings.HasPrefix(id, g) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// TestRunsOfAGroupStayInOrder: what stands behind a message of its group that was refused is not published before it,
// however the refusal is worded and whichever way each message goes.
func TestRunsOfAGroupStayInOrder(t *testing.T) {
	broken := errors.New("broken for the test")
	for name, refuse := range map[string]func(ids []string) error{
		"the way": func(ids []string) error {
			if slices.Contains(ids, "a1") {
				return broken
			}
			return nil
		},
		"the message, by name": func(ids []string) error {
			if i := slices.Index(ids, "a1"); i >= 0 {
				return &driver.ItemError{Index: i, Err: broken}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, times := newFIFO("a1", "a2", "b1", "a3", "b2"), 0
				p := &place{}
				p.refuse = func(ids []string) error {
					err := refuse(ids)
					if err != nil && times >= 3 {
						return nil
					}
					if err != nil {
						times++
					}
					return err
				}
				runRelay(t, outbox.Config{From: q, To: p})
				if got := ofGroup("a", p.got); !slices.Equal(got, []string{"a1", "a2", "a3"}) {
					t.Errorf("published %v", p.got)
				}
				if got := ofGroup("b", p.got); !slices.Equal(got, []string{"b1", "b2"}) || slices.Index(p.got, "b2") > slices.Index(p.got, "a1") {
					t.Errorf("published %v: group b has nothing to wait for", p.got)
				}
				if i, j := slices.Index(q.back, "a3"), slices.Index(q.back, "a1"); times < 3 || i < 0 || i > j {
					t.Errorf("%d refusals, returned in the order %v: the last of a group comes first", times, q.back)
				}
			})
		})
	}
}

// TestRunsGoTheirWaysInOrder: a group whose messages go to two places.
func TestRunsGoTheirWaysInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		place := func() *place { // both remember in one list
			return &place{refuse: func(ids []string) error { all = append(all, ids...); return nil }}
		}
		odd, even := place(), place()
		runRelay(t, outbox.Config{From: newFIFO("a1", "a2", "a3", "a4"), Route: func(m *driver.Message) (driver.Sender, error) {
			if m.ID == "a1" || m.ID == "a3" {
				return odd, nil
			}
			return even, nil
		}})
		if !slices.Equal(all, []string{"a1", "a2", "a3", "a4"}) {
			t.Errorf("published %v", all)
		}
	})
}

// TestRunsBehindALetter: a message that becomes a dead letter lets its group go on.
func TestRunsBehindALetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFIFO("a1", "a2")
		p := &place{refuse: func(ids []string) error {
			if i := slices.Index(ids, "a1"); i >= 0 {
				return &driver.ItemError{Index: i, Err: errors.New("too large")}
			}
			return nil
		}}
		runRelay(t, outbox.Config{From: q, To: p, MaxAttempts: 3})
		if !slices.Equal(q.dead, []string{"a1"}) || !slices.Equal(p.got, []string{"a2"}) {
			t.Errorf("dead letters %v, published %v", q.dead, p.got)
		}
	})
}
