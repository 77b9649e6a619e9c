package driver

import "context"

// Wrapper is a store, a queue or a transaction that wraps another one: a cache, a logger, a test double. [As] finds optional
// interfaces behind it.
//
// To write one, embed the interface ([Store], [Queue] or [Tx]), override the methods that matter, and return the wrapped value
// from Unwrap. Do not embed a concrete type: all its methods would become methods of the wrapper, and calls of them would
// bypass the methods that the wrapper overrides.
//
// The rules of [As]:
//   - An interface that the wrapper implements is found in the wrapper, if the wrapped value has the interface too, or if the
//     wrapper is an [Adder] of it. One type can therefore implement all optional interfaces, whatever it wraps.
//   - Any other interface is found behind the wrapper if it only reads (RecordInspector, RecordScanner, CaseLister,
//     DeadLetterPager, DeadLetterGrouper, AuditLog, Meter, Historian, Cached, QueueInspector, QueueCounter, TxClassifier), or if
//     the wrapper is a [Passer] of it. All others are hidden, including those that later versions of this package add.
type Wrapper interface {
	// Unwrap returns the wrapped value: a [Store], a [Queue] or a [Tx].
	Unwrap() any
}

// Passer is an optional interface of a [Wrapper] that lets other interfaces than the read-only ones pass.
type Passer interface {
	// Passes lists the interfaces that bypass the wrapper: callers use them on the wrapped value directly. List only those
	// whose calls the wrapper need not see. [Settler] is special: see [Settles].
	Passes() []Interface
}

// Adder is an optional interface of a [Wrapper] that has interfaces which the wrapped value may lack.
type Adder interface {
	// Adds lists the interfaces that the wrapper implements by itself.
	Adds() []Interface
}

// Interface identifies an interface in the lists of a [Passer] and an [Adder]. Make one with [InterfaceOf].
type Interface struct{ pointer any } // a nil *T

// InterfaceOf returns the Interface of T.
func InterfaceOf[T any]() Interface { return Interface{(*T)(nil)} }

// readOnly are the interfaces that pass every wrapper: they decide, write, send and settle nothing.
var readOnly = []Interface{
	InterfaceOf[RecordInspector](), InterfaceOf[RecordScanner](), InterfaceOf[AuditLog](), InterfaceOf[Meter](),
	InterfaceOf[Historian](), InterfaceOf[Cached](), InterfaceOf[CaseLister](), InterfaceOf[DeadLetterPager](), InterfaceOf[DeadLetterGrouper](),
	InterfaceOf[QueueInspector](), InterfaceOf[QueueCounter](), InterfaceOf[TxClassifier](),
}

func (i Interface) in(list []Interface) bool {
	for _, x := range list {
		if x == i {
			return true
		}
	}
	return false
}

func (i Interface) passes(w Wrapper) bool {
	p, ok := w.(Passer)
	return ok && i.in(p.Passes())
}

func (i Interface) addedBy(w Wrapper) bool {
	a, ok := w.(Adder)
	return ok && i.in(a.Adds())
}

// As finds the optional interface T of a store, a queue or a transaction, also behind wrappers: see [Wrapper] for the rules.
// Use it instead of a type assertion. Call it once for each store or queue and keep the result: it is not made for hot paths.
// Pass the value that you were given, not one that As returned: outer wrappers may hide T.
func As[T any](s any) (t T, ok bool) {
	t, ok = s.(T)
	w, wraps := s.(Wrapper)
	if !wraps {
		return t, ok
	}
	var none T
	i := InterfaceOf[T]()
	if ok {
		if !i.addedBy(w) {
			_, ok = As[T](w.Unwrap())
		}
		if !ok {
			return none, false
		}
		return t, true
	}
	if i.in(readOnly) || i.passes(w) {
		return As[T](w.Unwrap())
	}
	return none, false
}

// Settler is the part of a [Queue] that a store replaces when it acks a delivery in its own transaction (Work.Ack).
type Settler interface {
	Settle(ctx context.Context, s ...Settlement) ([]Outcome, error)
}

// Settles finds the queue of type Q that settles the deliveries of q: q itself, or the queue behind wrappers that are a
// [Passer] of [Settler]. A wrapper may pass Settler if it overrides neither Settle nor the receipts of its deliveries, or if
// acks that commit with a record need not call its Settle. Stores use it in [Committer.Joins].
func Settles[Q Queue](q Queue) (Q, bool) {
	var s any = q
	for {
		if found, ok := s.(Q); ok {
			return found, true
		}
		w, ok := s.(Wrapper)
		if !ok || !InterfaceOf[Settler]().passes(w) {
			var none Q
			return none, false
		}
		s = w.Unwrap()
	}
}
