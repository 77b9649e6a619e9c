package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/outbox"
	"github.com/semel-dev/semel/outbox/relaytest"
)

func TestRelay(t *testing.T) {
	relaytest.Run(t, func(testing.TB) relaytest.Setup {
		db := memory.Open(memory.WithVisibility(relaytest.Visible))
		return relaytest.Setup{In: db.Queue("in"), Store: db.Store(), Outbox: db.Queue("outbox")}
	})
}

type weak struct{ driver.Queue }

func (weak) Features() driver.QueueFeatures { return driver.QueueFeatures{Name: "weak", Kind: "test"} }

type discard struct{}

func (*discard) Send(context.Context, ...driver.Message) error { return nil }

func TestConfig(t *testing.T) {
	q := memory.NewQueue("q")
	route := func(*driver.Message) (driver.Sender, error) { return q, nil }
	for want, c := range map[string]outbox.Config{
		"From":          {To: q},
		"To and Route":  {From: q},
		"one of To and": {From: q, To: q, Route: route},
		"groups in":     {From: weak{q}, To: q},
		"negative":      {From: q, To: q, Batch: -1},
	} {
		if _, err := outbox.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted an error about %q, got %v", want, err)
		}
	}
	if _, err := outbox.New(outbox.Config{From: weak{q}, To: q}); !errors.Is(err, driver.ErrUnsupported) {
		t.Error(err)
	}
}

// TestRoute sends to two places; a message without one becomes a dead letter, and a route that panics is an error of its
// message alone.
func TestRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		a, b := db.Queue("a"), db.Queue("b")
		r, err := outbox.New(outbox.Config{
			From: db.Queue("outbox"),
			Route: func(m *driver.Message) (driver.Sender, error) {
				m.ID, m.Body = "changed", append([]byte("for "), m.Body...)
				switch m.Header("to") {
				case "a":
					return a, nil
				case "b":
					return b, nil
				case "panic":
					panic("no such place")
				}
				return nil, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, to := range []string{"a", "b", "panic", "nowhere", "a"} {
			m := driver.Message{ID: string(rune('0' + i)), Headers: map[string]string{"to": to}, Body: []byte(to)}
			if err := db.Queue("outbox").Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		got := func(q *memory.Queue) (s string) {
			ds, _ := q.Peek(t.Context(), 10)
			for _, d := range ds {
				s += d.ID + "=" + d.Headers[outbox.HeaderID] + ":" + string(d.Body) + " "
			}
			return s
		}
		if a, b := got(a), got(b); a != "0=0:for a 4=4:for a " || b != "1=1:for b " {
			t.Errorf("a has %q, b has %q", a, b)
		}
		ls, _ := db.Queue("outbox").DeadLetters(t.Context(), 0)
		if len(ls) != 2 || !strings.Contains(ls[0].Reason, "no such place") || string(ls[0].Message.Body) != "panic" ||
			!strings.Contains(ls[1].Reason, "no sender") {
			t.Errorf("dead letters are %+v", ls)
		}
		if c := r.Counts(); c != (outbox.Counts{Published: 3, Refused: 20, Parked: 2}) {
			t.Errorf("counts are %+v", c)
		}
	})
}

func BenchmarkRelay(b *testing.B) {
	q := memory.NewQueue("outbox")
	r, err := outbox.New(outbox.Config{From: q, To: &discard{}})
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		if err := q.Send(b.Context(), driver.Message{}); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	b.ResetTimer()
	b.ReportAllocs()
	go func() {
		for r.Counts().Published < int64(b.N) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := r.Run(ctx); err != nil {
		b.Fatal(err)
	}
}
