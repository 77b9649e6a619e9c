package semel

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// This file gives the machine's notes their public names: events for observers, log lines for people.

var decisions = [...]Decision{
	machine.Executed: Executed, machine.Replayed: Replayed, machine.BusyDeferred: BusyDeferred,
	machine.TakenOver: TakenOver, machine.Mismatched: Mismatched, machine.Retried: Retried,
	machine.DeadLettered: DeadLettered, machine.ParkedUncertain: ParkedUncertain, machine.Fenced: Fenced,
	machine.DroppedOnPurpose: Dropped, machine.Unprotected: Unprotected, machine.Returned: Returned,
	machine.Expired: Expired, machine.Stale: Stale, machine.ReplayedOtherPayload: ReplayedOtherPayload,
}

var duplicateCauses = [...]Cause{
	machine.Redelivery: Redelivery, machine.ProducerDuplicate: ProducerDuplicate, machine.RacedLocal: RacedLocal,
}

// noted reports whether the machine has to make a note: for the store's duplicate log, an observer, or the logger.
func (c *Consumer) noted(n machine.TraceEvent) bool {
	return c.keepsDuplicates && isDuplicate(&n) || c.observed(&n)
}

// observed reports whether a note is observed or logged.
func (c *Consumer) observed(n *machine.TraceEvent) bool {
	e := &c.cfg.Events
	return e.Delivery != nil || e.Attempt != nil || e.Lease != nil || e.Health != nil ||
		c.cfg.Logger.Enabled(context.Background(), level(n))
}

func (r *runner) note(n *machine.TraceEvent) {
	at := time.Now()
	if r.copies != nil {
		r.copies.note(n, at)
	}
	if !r.observed(n) {
		return
	}
	e := Event{
		At: at, Decision: decisions[n.Decision], Cause: duplicateCauses[n.Duplicate], Action: n.Action,
		Outcome: n.Outcome, After: n.After, Takeover: n.Takeover, Reason: n.Reason, Err: n.Err,
	}
	if it := n.Item; it != nil {
		e.Key, e.MessageID, e.Attempt, e.Token, e.Unknown = it.Key, it.ID, it.Attempt(), it.Hold().Token, it.Unknown()
	}
	if n.Attempt > 0 {
		e.Attempt, e.Token = n.Attempt, 0
	}
	o := &r.cfg.Events
	to := o.Delivery
	switch n.Kind {
	case machine.TraceReceived:
		e.Kind, e.Count, e.Visible, e.SentAt = EventReceived, n.Item.Count, n.Item.Visible, n.Item.SentAt
		if o.Delivery != nil {
			e.Route = key.Route(&n.Item.Message)
		}
	case machine.TraceStarted:
		e.Kind, e.SentAt, to = EventStarted, n.Item.SentAt, o.Attempt
	case machine.TraceEnded:
		e.Kind, e.Elapsed, e.After, to = EventEnded, n.After, 0, o.Attempt
	case machine.TraceDecided:
		e.Kind = EventDecided
	case machine.TraceSettled:
		e.Kind, e.Elapsed, e.Handled = EventSettled, n.Held, n.Handled
	case machine.TraceDoubt:
		e.Kind, to = EventDoubt, o.Attempt
	case machine.TraceExtended, machine.TraceProlonged:
		e.Kind, e.Visible, e.After, to = EventExtended, n.After, 0, o.Lease
		e.Lease = n.Kind == machine.TraceExtended
	case machine.TracePaused, machine.TraceTrouble:
		e.Kind, to = EventPaused, o.Health
		if n.Kind == machine.TraceTrouble {
			e.Kind = EventTrouble
		}
	case machine.TraceResumed:
		e.Kind, to = EventResumed, o.Health
	}
	r.log(&e, level(n))
	if to != nil {
		to(e)
	}
}

// storeCalls are the answers of the store, and what was asked.
var storeCalls = map[machine.EventKind]string{
	machine.Claimed: "claim", machine.Extended: "extend", machine.Finished: "finish", machine.Begun: "begin",
	machine.Committed: "commit",
}

// tellCalls tells observers of the store's answers. The time is from the call to its answer's turn in the loop.
func (r *runner) tellCalls(events []machine.Event) {
	to := r.cfg.Events.Calls
	if to == nil {
		return
	}
	now := r.now()
	for i := range events {
		ev := &events[i]
		if op := storeCalls[ev.Kind]; op != "" {
			to(Event{
				Kind: EventCalled, At: r.began.Add(now), Op: op, Items: len(ev.Items), Elapsed: now - ev.Sent, Err: ev.Err,
			})
		}
	}
}

// The attribute keys of semel's log lines.
const (
	logKey       = "key"
	logMessageID = "message_id"
	logAttempt   = "attempt"
	logDecision  = "decision"
	logCause     = "cause"
	logReason    = "reason"
	logAfter     = "after"
	logErr       = "err"
)

// level is how loud a note is in the log. A message that waits for a person is an error; a failure that semel deals with
// itself, and a doubt, are warnings; the normal course of a message is for debugging.
func level(n *machine.TraceEvent) slog.Level {
	switch n.Kind {
	case machine.TraceDecided:
		switch n.Decision {
		case machine.DeadLettered, machine.Mismatched, machine.ParkedUncertain:
			return slog.LevelError
		case machine.Retried, machine.Fenced, machine.ReplayedOtherPayload:
			return slog.LevelWarn
		}
	case machine.TraceSettled, machine.TraceExtended, machine.TraceProlonged:
		if n.Outcome != driver.Applied && n.Outcome != driver.Settled {
			return slog.LevelWarn
		}
	case machine.TraceTrouble:
		if errors.Is(n.Err, driver.ErrNotCommitted) {
			return slog.LevelDebug // a serialization failure, for example: it is repeated, and nobody has to look at it
		}
		return slog.LevelWarn
	case machine.TracePaused, machine.TraceDoubt:
		return slog.LevelWarn
	case machine.TraceResumed:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// log writes an event for people.
func (r *runner) log(e *Event, level slog.Level) {
	ctx := context.Background()
	if !r.cfg.Logger.Enabled(ctx, level) {
		return
	}
	text := string(e.Kind)
	if e.Kind == EventDecided {
		text = string(e.Decision)
	}
	attrs := make([]slog.Attr, 0, 8)
	add := func(name, v string) {
		if v != "" {
			attrs = append(attrs, slog.String(name, v))
		}
	}
	add(logKey, e.Key.Raw)
	add(logMessageID, e.MessageID)
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Int(logAttempt, e.Attempt))
	}
	add(logDecision, string(e.Decision))
	add(logCause, string(e.Cause))
	add(logReason, e.Reason)
	if e.After > 0 {
		attrs = append(attrs, slog.Duration(logAfter, e.After))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any(logErr, e.Err))
	}
	r.cfg.Logger.LogAttrs(ctx, level, text, attrs...)
}
