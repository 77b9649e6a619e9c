package keymigration_test

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
	"github.com/semel-dev/semel/memory"
)

var errWire = errors.New("no response")

// wire is the way to the store. While it is bad a request is lost, its response is lost, or it arrives much later, when its
// sender has given up.
type wire struct {
	*memory.Store
	world *virtual.World
	bad   bool
	late  []func() // requests that are still under way
}

func send[T any](w *wire, call func() (T, error)) (T, error) {
	var none T
	if !w.bad || w.world.IntN(8) > 0 {
		return call()
	}
	switch w.world.IntN(3) {
	case 0:
		_, _ = call() // the response is lost
	case 1:
		w.late = append(w.late, func() { _, _ = call() })
	}
	return none, errWire
}

// arrive lets a request arrive that is under way.
func (w *wire) arrive() {
	if n := len(w.late); n > 0 {
		i := w.world.IntN(n)
		call := w.late[i]
		w.late = append(w.late[:i], w.late[i+1:]...)
		call()
	}
}

func (w *wire) Claim(_ context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	c = append([]driver.Claim(nil), c...)
	return send(w, func() ([]driver.Grant, error) { return w.Store.Claim(context.Background(), c...) })
}

func (w *wire) Extend(_ context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	h = append([]driver.Hold(nil), h...)
	return send(w, func() ([]driver.Outcome, error) { return w.Store.Extend(context.Background(), lease, h...) })
}

func (w *wire) Finish(_ context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	f = append([]driver.Finish(nil), f...)
	return send(w, func() ([]driver.Outcome, error) { return w.Store.Finish(context.Background(), f...) })
}

func (w *wire) Commit(_ context.Context, x ...driver.Work) ([]driver.Outcome, error) {
	x = append([]driver.Work(nil), x...)
	return send(w, func() ([]driver.Outcome, error) { return w.Store.Commit(context.Background(), x...) })
}

// Begin returns, or is not sent: a transaction whose response is lost ends with its connection.
func (w *wire) Begin(_ context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if w.bad && w.world.IntN(12) == 0 {
		return nil, nil, errWire
	}
	tx, grants, err := w.Store.Begin(context.Background(), c...)
	if tx != nil {
		tx = &wireTx{tx, w}
	}
	return tx, grants, err
}

type wireTx struct {
	driver.Tx
	w *wire
}

// Commit returns, or its response is lost, or the connection before it.
func (x *wireTx) Commit(_ context.Context, works ...driver.Work) error {
	if !x.w.bad || x.w.world.IntN(8) > 0 {
		return x.Tx.Commit(context.Background(), works...)
	}
	if x.w.world.IntN(2) == 0 {
		_ = x.Tx.Commit(context.Background(), works...)
	} else {
		_ = x.Tx.Rollback(context.Background())
	}
	return errWire
}
