package semel

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Disposition are what an error of a run says about it beyond its text: the marks that Permanent, NotApplied, RetryAfter,
// Deferred, Unavailable, Drop, Park and Compensated put on it.
type Disposition struct {
	Permanent, NotApplied, Deferred, Unavailable, Dropped, Parked, Compensated bool
	// After is when the next attempt is due, where HasAfter says that the error tells.
	After    time.Duration
	HasAfter bool
}

// DispositionOf reads the marks of an error, for middleware and packages that act on what a handler is about to return. An error
// without marks, and nil, have none.
func DispositionOf(err error) Disposition {
	var o *outcomeError
	if !errors.As(err, &o) {
		return Disposition{}
	}
	return Disposition{
		Permanent: o.permanent, NotApplied: o.notApplied, Deferred: o.busy, Unavailable: o.unavailable, Dropped: o.drop,
		Parked: o.parked, Compensated: o.compensated, After: o.after, HasAfter: o.hasAfter,
	}
}

// Ends tells that a run which returns err is the message's last: err is Permanent, a rule of Config.Retry says so, or the
// attempts are used up. What has to be put in order before the message becomes a dead letter is done then. ctx is the run's.
func (a *Attempt) Ends(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	res := machine.Result{Class: machine.Failed, Err: err}
	if o := (*outcomeError)(nil); errors.As(err, &o) {
		res.Class, res.HasAfter = o.class(), o.hasAfter
	}
	most := a.MaxAttempts
	if a.rules != nil && res.Class == machine.Failed {
		a.rules.apply(&res, err, context.Cause(ctx))
		if res.Rule != nil && res.Rule.MaxAttempts > 0 {
			most = res.Rule.MaxAttempts
		}
	}
	switch res.Class {
	case machine.Permanent:
		return true
	case machine.Failed:
		return most > 0 && a.failed+1 >= most
	}
	return false
}

// StoreChecker is an optional interface of handlers that need more of a store than every store has. New asks it, and
// refuses the configuration with its error.
type StoreChecker interface {
	CheckStore(s Store) error
}

// NewAttempt makes the attempt that a claim granted: for tests of handlers without a consumer, and for programs that
// claim by themselves. Nothing extends its lease.
func NewAttempt(m Message, g driver.Grant, s Store) *Attempt {
	return &Attempt{
		Message: m, Key: g.Hold.Key, Number: g.Attempt, Token: g.Hold.Token, Unknown: g.Unknown, Redelivered: g.Redelivery,
		hold: g.Hold, store: s, failed: g.Failures,
	}
}
