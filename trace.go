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

// This file translates the machine's trace events into events for observers and log lines.

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

// wantsTrace reports whether the machine must emit a trace event: for the store's duplicate log, an observer or the logger.
func (c *Consumer) wantsTrace(n machine.TraceEvent) bool {
	return c.keepsDuplicates && isDuplicate(&n) || c.observed(&n)
}

// observed reports whether a trace event is observed or logged.
func (c *Consumer) observed(n *machine.TraceEvent) bool {
	e := &c.cfg.Events
	return e.Delivery != nil || e.Attempt != nil || e.Lease != nil || e.Health != nil ||
		c.cfg.Logger.Enabled(context.Background(), level(n))
}

// trace passes a trace event to the duplicate log, the logger and the observer.
func (r *runner) trace(n *machine.TraceEvent) {
	at := time.Now()
	if r.copies != nil {
		r.copies.record(n, at)
	}
	if !r.observed(n) {
		return
	}
	e := Event{
		At: at, Decision: decisions[n.Decision], Cause: duplicateCauses[n.Duplicate], Action: n.Action,
		Outcome: n.Outcome, After: n.After, Takeover: n.Takeover, Reason: n.Reason, Err: n.Err,
	}
	if it := n.Item; it != nil {
		e.Message = &it.Message
		e.Trace, e.EffectTrace = tracesOf(it)
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

// storeCalls maps the results of store calls to the names of the calls.
var storeCalls = map[machine.EventKind]string{
	machine.Claimed: "claim", machine.Extended: "extend", machine.Finished: "finish", machine.Begun: "begin",
	machine.Committed: "commit",
}

// reportCalls reports store calls to observers. Elapsed is the time from the call until the loop handles its result.
func (r *runner) reportCalls(events []machine.Event) {
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
	logTraceID   = "trace_id"
	logSpanID    = "span_id"
)

// level returns the log level of a trace event. A message that waits for a person is an error. A failure that semel handles
// on its own is a warning, and so is an unknown outcome. The normal course of a message is logged at debug level.
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
			return slog.LevelDebug // for example a serialization failure: it is retried, and nobody has to look at it
		}
		return slog.LevelWarn
	case machine.TracePaused, machine.TraceDoubt:
		return slog.LevelWarn
	case machine.TraceResumed:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// log writes an event to the logger.
func (r *runner) log(e *Event, level slog.Level) {
	ctx := context.Background()
	if !r.cfg.Logger.Enabled(ctx, level) {
		return
	}
	text := string(e.Kind)
	if e.Kind == EventDecided {
		text = string(e.Decision)
	}
	attrs := make([]slog.Attr, 0, 10)
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
	if e.Trace != "" {
		add(logTraceID, e.Trace.TraceID())
		add(logSpanID, e.Trace.SpanID())
	}
	r.cfg.Logger.LogAttrs(ctx, level, text, attrs...)
}
