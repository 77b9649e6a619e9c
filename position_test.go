package semel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// logged is a queue that is a log: it gives each message that comes for the first time the next offset.
type logged struct {
	semel.Queue
	next map[string]int64 // by message id
}

func (q logged) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ds, err := q.Queue.Receive(ctx, limit)
	for i := range ds {
		at, ok := q.next[ds[i].ID]
		if !ok {
			at = int64(len(q.next))
			q.next[ds[i].ID] = at
		}
		ds[i].Position = &driver.Position{Log: "orders", Offset: at}
	}
	return ds, err
}

// TestFM79_ADeadLetterKeepsItsPosition: the message of a dead letter that is sent again has another position, and its key.
func TestFM79_ADeadLetterKeepsItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			keys = append(keys, a.Key.Raw)
			if a.Message.ID == "b" {
				return semel.Permanent(errors.New("no"))
			}
			return nil
		}), func(c *semel.Config) { c.Key, c.Concurrency = key.FromPosition(), 1 })
		r.cfg.Queue = logged{r.cfg.Queue, map[string]int64{}}
		r.send(msg("a"), msg("b"))
		r.start()
		r.after(time.Minute)
		ls := r.deadLetters()
		if len(ls) != 1 || ls[0].Key.Raw != "orders/0/1" || ls[0].Message.Position != nil {
			t.Fatalf("dead letters %+v after runs of %v", ls, keys)
		}
		again := ls[0].Message
		again.ID, again.Position = driver.RedriveID(ls[0].ID), &driver.Position{Log: "orders", Offset: 2}
		if raw, err := key.FromPosition()(&again); err != nil || raw != "orders/0/1" {
			t.Errorf("sent again its key is %q, %v", raw, err)
		}
	})
}
