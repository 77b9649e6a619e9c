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

// InTxBatch makes a handler that gets a whole batch at once: all messages whose claims one transaction holds, up to
// Config.Batch, in the order of their delivery. Their effects and records commit together, or not at all (mode C). It is
// the fastest way: one statement can do the work of all of them. The type of tx is one of InTx's:
//
//   - *Statements: what the handler queues is sent together with the commit. The one to prefer.
//   - *sql.Tx, pgx.Tx: the handler runs its own SQL in the transaction.
//
// The transaction is open while the handler runs: it should be quick, and it must not touch anything else, because it
// runs again when the transaction has to be repeated.
//
// A failure takes the batch back. A handler that knows whose it is says so with [ItemFailed]; otherwise the batch is
// halved, by order of delivery, until the culprit is alone: one bad message among a thousand costs ten transactions. Its
// failure is recorded as that of any other (Permanent, RetryAfter and so on count then), the others complete. Deferred
// without a name puts all of them off. A message that was delivered or failed before runs alone, in a batch of one.
// Messages of one ordered group may be in one batch, one behind the other; when one fails, those behind it are given
// back.
//
// SetResult and Emit work for each message. A panic, Config.Timeout and Config.MaxRuntime are the whole call's.
// Config.Middleware, which is about one message, is refused; New refuses a T that the store does not offer (ErrNoTx).
func InTxBatch[T any](fn func(ctx context.Context, tx T, batch []*Attempt) error) Handler {
	return &inTxBatch[T]{fn: fn}
}

// StoreChecker is an optional interface of handlers that need more of a store than every store has. New asks it, and
// refuses the configuration with its error.
type StoreChecker interface {
	CheckStore(s Store) error
}

// transactional is what New asks a handler that InTx or InTxBatch made.
type transactional interface {
	Handler
	// queued asks for mode A2, open for modes B and C; c is nil where the store commits nothing with records.
	queued(c driver.Committer) bool
	open(c driver.Committer, t driver.Transactor) bool
	// buffer makes an effects buffer, bind takes the transaction out of tx; nil = it is another kind. Both answers go into
	// Attempt.tx.
	buffer(c driver.Committer) any
	bind(tx driver.Tx) any
	kind() string
}

// batched is a transactional handler that InTxBatch made.
type batched interface {
	transactional
	handleBatch(ctx context.Context, tx any, batch []*Attempt) error
}

// effect is the T of a transactional handler.
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

// Handle is a batch of one.
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

// queued: what a batch queues commits in the transaction that holds its claims: it belongs to all of them, and none can
// be lost while the others are not.
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
