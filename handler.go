package semel

import (
	"context"
	"reflect"

	"github.com/semel-dev/semel/driver"
)

// Handler does the work of one message. It returns nil when the effect happened; any other return is a failure that is
// retried, unless it says otherwise (Permanent, RetryAfter, NotApplied, Deferred, Drop). A panic is a failure.
//
// ctx ends when the lease is lost, the time is up or the worker stops; context.Cause tells which (ErrFenced,
// ErrTimeout, ErrDraining). A handler that goes on regardless keeps its slot and its claim until it returns.
type Handler interface {
	Handle(ctx context.Context, a *Attempt) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, a *Attempt) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, a *Attempt) error { return f(ctx, a) }

// Middleware is called around every run, transactional ones too. It may call next again: what the former call queued or
// emitted is dropped then, as is that of a call that failed. What a handler did in an open transaction stays done.
type Middleware func(ctx context.Context, a *Attempt, next func(context.Context) error) error

// InTx makes a handler whose effects commit together with the idempotency record. The type of tx picks the mode:
//
//   - *Statements: the handler queues SQL, which commits with the record in one guarded write after it returned (mode
//     A2). Fast, never holds a transaction open, and the same code on every SQL store. The one to prefer.
//   - *sql.Tx, pgx.Tx: the handler runs its own SQL inside the transaction that holds the record (modes B and C). It
//     runs again when the transaction has to be repeated; it must not touch anything else.
//
// New refuses a T that the store does not offer (ErrNoTx). An error from the handler rolls everything back, so it
// counts as not applied.
func InTx[T any](fn func(ctx context.Context, tx T, a *Attempt) error) Handler {
	return &inTx[T]{fn: fn}
}

// transactional is what New asks a handler that InTx made.
type transactional interface {
	Handler
	// queued asks for mode A2, open for modes B and C.
	queued(c driver.Committer) bool
	open(t driver.Transactor) bool
	// buffer makes an effects buffer, bind takes the transaction out of tx. Both answers go into Attempt.tx.
	buffer(c driver.Committer) any
	bind(tx driver.Tx) any
	kind() string
}

type inTx[T any] struct {
	fn func(ctx context.Context, tx T, a *Attempt) error
}

func (h *inTx[T]) Handle(ctx context.Context, a *Attempt) error {
	tx, ok := a.tx.(T)
	if !ok {
		return Permanent(ErrNoTx)
	}
	return h.fn(ctx, tx, a)
}

func (h *inTx[T]) queued(c driver.Committer) bool { return c.Offers(new(T)) }
func (h *inTx[T]) open(t driver.Transactor) bool  { return t.OffersTx(new(T)) }

func (h *inTx[T]) buffer(c driver.Committer) any {
	var b T
	if !c.Offers(&b) {
		return nil
	}
	return b
}

func (h *inTx[T]) bind(tx driver.Tx) any {
	var t T
	if !tx.As(&t) {
		return nil
	}
	return t
}

func (h *inTx[T]) kind() string { return reflect.TypeFor[T]().String() }
