package semel

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// This file gives the machine's notes their public names: events for observers, log lines for people.

var decisions = [...]Decision{
	machine.Executed: Executed, machine.Replayed: Replayed, machine.BusyDeferred: BusyDeferred,
	machine.TakenOver: TakenOver, machine.Mismatched: Mismatched, machine.Retried: Retried,
	machine.DeadLettered: DeadLettered, machine.ParkedUncertain: ParkedUncertain, machine.Fenced: Fenced,
	machine.DroppedOnPurpose: Dropped, machine.Unprotected: Unprotected, machine.GivenBack: GivenBack,
	machine.Expired: Expired, machine.Stale: Stale, machine.ReplayedOtherPayload: ReplayedOtherPayload,
}

var duplicateCauses = [...]Cause{
	machine.Redelivery: Redelivery, machine.ProducerDuplicate: ProducerDuplicate, machine.RacedLocal: RacedLocal,
}

// observed tells whether anybody wants to know: an observer, or a logger that is on.
func (c *Consumer) observed() bool {
	e := &c.cfg.Events
	return e.Delivery != nil || e.Attempt != nil || e.Lease != nil || e.Health != nil ||
		c.cfg.Logger.Enabled(context.Background(), slog.LevelError)
}

func (r *runner) note(n *machine.Note) {
	if r.copies != nil {
		r.copies.note(n, time.Now())
	}
	if !r.observes {
		return
	}
	e := Event{
		At: time.Now(), Decision: decisions[n.Decision], Cause: duplicateCauses[n.Duplicate], Action: n.Action,
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
	case machine.NoteReceived:
		e.Kind, e.Count, e.Visible, e.SentAt = EventReceived, n.Item.Count, n.Item.Visible, n.Item.SentAt
		if o.Delivery != nil {
			e.Route = Route(&n.Item.Message)
		}
	case machine.NoteStarted:
		e.Kind, e.SentAt, to = EventStarted, n.Item.SentAt, o.Attempt
	case machine.NoteEnded:
		e.Kind, e.Elapsed, e.After, to = EventEnded, n.After, 0, o.Attempt
	case machine.NoteDecided:
		e.Kind = EventDecided
	case machine.NoteSettled:
		e.Kind, e.Elapsed, e.Handled = EventSettled, n.Held, n.Handled
	case machine.NoteDoubt:
		e.Kind, to = EventDoubt, o.Attempt
	case machine.NoteExtended, machine.NoteProlonged:
		e.Kind, e.Visible, e.After, to = EventExtended, n.After, 0, o.Lease
		e.Lease = n.Kind == machine.NoteExtended
	case machine.NotePaused, machine.NoteTrouble:
		e.Kind, to = EventPaused, o.Health
		if n.Kind == machine.NoteTrouble {
			e.Kind = EventTrouble
		}
	case machine.NoteResumed:
		e.Kind, to = EventResumed, o.Health
	}
	r.log(&e)
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

// log writes what a person may have to look at: what failed, at warning; what happened, at debug.
func (r *runner) log(e *Event) {
	l := r.cfg.Logger
	ctx := context.Background()
	level, text := slog.LevelDebug, string(e.Kind)
	switch e.Kind {
	case EventDecided:
		text = string(e.Decision)
		switch e.Decision {
		case Retried, Fenced, Mismatched, DeadLettered, ParkedUncertain, ReplayedOtherPayload:
			level = slog.LevelWarn
		case Executed, Replayed, BusyDeferred, Dropped, Stale:
			level = slog.LevelInfo
		}
	case EventSettled, EventExtended:
		if e.Outcome != driver.Applied && e.Outcome != driver.Settled {
			level = slog.LevelWarn
		}
	case EventPaused, EventTrouble, EventDoubt:
		level = slog.LevelWarn
		if errors.Is(e.Err, driver.ErrNotCommitted) && e.Kind == EventTrouble {
			level = slog.LevelDebug // a serialization failure, say: it is repeated, and nobody has to look at it
		}
	case EventResumed:
		level = slog.LevelInfo
	}
	if !l.Enabled(ctx, level) {
		return
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
	l.LogAttrs(ctx, level, text, attrs...)
}
