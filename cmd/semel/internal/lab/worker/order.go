package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/wait"
)

// order is the body of a message.
type order struct {
	plan.Send
	Amount int64 `json:"amount"`
}

// errPoison is the error of an order that no handler can do.
var errPoison = errors.New("the order is marked poison: it cannot be done")

// errLostResponse is the error of a call whose response gets lost: the outcome is unknown.
var errLostResponse = errors.New("no response: the connection was reset")

// errFirstTry is the error of an order that can be done the second time.
var errFirstTry = errors.New("the account is locked for the moment")

// errBadItem is the error of a bad item the first time.
var errBadItem = errors.New("the item's account is locked for the moment")

// Message is the message for a planned send.
func Message(s plan.Send, amount int64) (driver.Message, error) {
	body, err := json.Marshal(order{s, amount})
	if err != nil {
		return driver.Message{}, fmt.Errorf("encode %s: %w", s.Key, err)
	}
	return driver.Message{
		ID: s.ID, Queue: place.QueueName, Body: body, Headers: map[string]string{place.KeyHeader: s.Key},
	}, nil
}

func decode(body []byte) (order, error) {
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return o, fmt.Errorf("decode order: %w", err)
	}
	return o, nil
}

// takes is how long the work takes. redelivered: this is not the first try.
func (o order) takes(redelivered bool) time.Duration {
	ms := o.WorkMS
	if !redelivered {
		ms += o.HangMS
	}
	return time.Duration(ms) * time.Millisecond
}

// do stands for the time that a payment takes.
func (o order) do(ctx context.Context, redelivered bool) error {
	if wait.Until(ctx, time.Now().Add(o.takes(redelivered))) != nil {
		return context.Cause(ctx)
	}
	if o.FailOnce && !redelivered {
		return errFirstTry
	}
	if o.Poison && !o.Saga {
		return errPoison
	}
	return nil
}

// fails reports whether an item fails in this try.
func (o order) fails(item string, redelivered bool) bool {
	return !redelivered && slices.Contains(o.Bad, item)
}

// refused reports whether the step of a saga can never be done: the last one of a poison order.
func (o order) refused(item string) bool {
	return o.Poison && item == o.Items[len(o.Items)-1]
}
