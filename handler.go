package semel

import (
	"context"
	"reflect"

	"github.com/semel-dev/semel/driver"
)

// Handler does the work of one message. It returns nil if the effect happened. Any error is a failure that the consumer
// retries, unless a mark on it (Permanent, RetryAfter, Deferred, Drop and so on) or a rule of Config.Retry decides otherwise.
// A panic is a failure.
//
// ctx is cancelled when the lease is lost, the run's time is up, or the worker stops. context.Cause returns which of them
// (ErrFenced, ErrTimeout, ErrDraining). A handler that ignores the cancellation keeps its slot and its claim until it
// returns.
type Handler interface {
	Handle(ctx context.Context, a *Attempt) error
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, a *Attempt) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, a *Attempt) error { return f(ctx, a) }

// Middleware wraps every run, also those of transactional handlers. It may call next again: effects and messages that the
// previous call queued are dropped then, as are those of a call that failed. What a handler did in an open transaction
// remains.
type Middleware func(ctx context.Context, a *Attempt, next func(context.Context) error) error

// InTx makes a handler whose effects commit together with the idempotency record. The type of tx selects the mode:
//
//   - *Statements: the handler queues SQL, which commits with the record in one guarded write after the handler has
//     returned (mode A2). Prefer this type: it is fast, holds no transaction open, and works on every SQL store.
//   - *sql.Tx, pgx.Tx: the handler runs its own SQL inside the transaction that holds the record (modes B and C). It
//     runs again when the transaction has to be repeated, so it must not touch anything else.
//
// New returns ErrNoTx if the store does not offer T. An error from the handler rolls everything back, so it counts as
// not applied.
func InTx[T any](fn func(ctx context.Context, tx T, a *Attempt) error) Handler {
	return &inTx[T]{fn: fn}
}

// InTxBatch makes a handler that gets a whole batch at once: all messages whose claims one transaction holds, up to
// Config.Batch, in the order of their delivery. Their effects and records commit together, or not at all (mode C). It is
// the fastest mode, because one statement can do the work of all messages. The type of tx is one of InTx's:
//
//   - *Statements: the statements that the handler queues are sent together with the commit. Prefer this type.
//   - *sql.Tx, pgx.Tx: the handler runs its own SQL in the transaction.
//
// The transaction is open while the handler runs. The handler should be quick, and it must not touch anything else, because
// it runs again when the transaction has to be repeated.
//
// An error rolls the whole batch back. If the handler knows which messages failed, it returns [ItemFailed] errors.
// Otherwise semel halves the batch, by order of delivery, until the failing message is alone: one bad message among a
// thousand costs ten transactions. Its failure is then recorded like any other (with Permanent, RetryAfter and so on), and
// the others complete. Deferred without ItemFailed defers all of them.
//
// A message that was delivered or failed before runs alone, in a batch of one. A batch may contain several messages of one
// ordered group, in order. If one of them fails, those after it are returned.
//
// SetResult and Emit work for each message. A panic, Config.Timeout and Config.MaxRuntime apply to the whole call. New
// refuses Config.Middleware, which wraps the run of one message, and returns ErrNoTx if the store does not offer T.
func InTxBatch[T any](fn func(ctx context.Context, tx T, batch []*Attempt) error) Handler {
	return &inTxBatch[T]{fn: fn}
}

// IsBatch reports whether InTxBatch made the handler. Such a handler accepts no Middleware.
func IsBatch(h Handler) bool {
	_, ok := h.(batched)
	return ok
}

// StoreChecker is an optional interface of handlers that need a store with optional features. New calls CheckStore and
// returns its error.
type StoreChecker interface {
	CheckStore(s Store) error
}

// transactional is a handler that InTx or InTxBatch made.
type transactional interface {
	Handler
	// queued reports whether mode A2 is possible, open whether modes B and C are. c is nil if the store commits nothing with
	// records.
	queued(c driver.Committer) bool
	open(c driver.Committer, t driver.Transactor) bool
	// buffer makes a buffer for effects. bind takes the transaction out of tx. Both return nil if it is of another kind. Both
	// results go into Attempt.tx.
	buffer(c driver.Committer) any
	bind(tx driver.Tx) any
	kind() string
}

// batched is a transactional handler that InTxBatch made.
type batched interface {
	transactional
	handleBatch(ctx context.Context, tx any, batch []*Attempt) error
}

// effect implements what depends on the T of a transactional handler alone.
type effect[T any] struct{}

func (effect[T]) buffer(c driver.Committer) any {
	var b T
	if c == nil || !c.Offers(&b) {
		return nil
	}
	return b
}

func (effect[T]) bind(tx driver.Tx) any {
	var t T
	if !tx.As(&t) {
		return nil
	}
	return t
}

func (effect[T]) kind() string { return reflect.TypeFor[T]().String() }

type inTxBatch[T any] struct {
	effect[T]
	fn func(ctx context.Context, tx T, batch []*Attempt) error
}

// Handle runs a batch of one.
func (h *inTxBatch[T]) Handle(ctx context.Context, a *Attempt) error {
	return h.handleBatch(ctx, a.tx, []*Attempt{a})
}

func (h *inTxBatch[T]) handleBatch(ctx context.Context, tx any, batch []*Attempt) error {
	t, ok := tx.(T)
	if !ok {
		return Permanent(ErrNoTx)
	}
	return h.fn(ctx, t, batch)
}

// queued returns false: the statements of a batch belong to all its claims, so they commit in the one transaction that holds
// these claims. No claim can be lost alone.
func (h *inTxBatch[T]) queued(driver.Committer) bool { return false }

func (h *inTxBatch[T]) open(c driver.Committer, t driver.Transactor) bool {
	return t.OffersTx(new(T)) || c != nil && c.Offers(new(T))
}

type inTx[T any] struct {
	effect[T]
	fn func(ctx context.Context, tx T, a *Attempt) error
}

func (h *inTx[T]) Handle(ctx context.Context, a *Attempt) error {
	tx, ok := a.tx.(T)
	if !ok {
		return Permanent(ErrNoTx)
	}
	return h.fn(ctx, tx, a)
}

func (h *inTx[T]) queued(c driver.Committer) bool                    { return c.Offers(new(T)) }
func (h *inTx[T]) open(_ driver.Committer, t driver.Transactor) bool { return t.OffersTx(new(T)) }
