package ops

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// sentence describes one event; "" for events that the timeline leaves out.
func sentence(e EventLine) (text string, doubt bool) {
	who := "Worker " + e.Worker
	switch e.Kind {
	case "received":
		if e.Count > 1 {
			return fmt.Sprintf("%s received message %s, for the %s time.", who, e.MessageID, ordinal(e.Count)), false
		}
		return fmt.Sprintf("%s received message %s.", who, e.MessageID), false
	case "started":
		switch {
		case e.Takeover:
			return fmt.Sprintf("%s took the key over from a worker that crashed or lost its lease, and started attempt %d (token %d): "+
				"the interrupted run may have had its effect.", who, e.Attempt, e.Token), false
		case e.Unknown:
			return fmt.Sprintf("%s started attempt %d (token %d) although an earlier run may have had its effect.",
				who, e.Attempt, e.Token), false
		}
		return fmt.Sprintf("%s started attempt %d (token %d).", who, e.Attempt, e.Token), false
	case "ended":
		if e.Error != "" {
			return fmt.Sprintf("Attempt %d failed after %s: %s.", e.Attempt, ms(e.ElapsedMS), e.Error), false
		}
		return fmt.Sprintf("Attempt %d returned after %s.", e.Attempt, ms(e.ElapsedMS)), false
	case "doubt":
		return fmt.Sprintf("From here on it is unknown whether attempt %d had its effect%s: it may happen once more.",
			e.Attempt, because(cmp.Or(e.Reason, e.Error))), true
	case "extended":
		if e.Outcome == "lost" && e.Lease {
			return fmt.Sprintf("%s lost its lease: its run is cancelled and writes nothing.", who), false
		}
	case "settled":
		if e.Outcome != "applied" {
			return fmt.Sprintf("%s could not %s message %s (%s): it will come again.", who, e.Action, e.MessageID, e.Outcome), false
		}
	case "decided":
		return decided(e, who), false
	}
	return "", false
}

func decided(e EventLine, who string) string {
	cause := map[string]string{
		"redelivery": "a redelivery", "producer_duplicate": "a second message with the same key",
		"raced_local": "another delivery of the key ran in the same process",
	}[e.Cause]
	if cause != "" {
		cause = " (" + cause + ")"
	}
	switch e.Decision {
	case "executed":
		return fmt.Sprintf("Its effect is recorded: attempt %d completed the key.", e.Attempt)
	case "replayed":
		return fmt.Sprintf("Message %s was a duplicate%s: it was acknowledged without a run, the stored result stands.", e.MessageID, cause)
	case "replayed_other_payload":
		return fmt.Sprintf("Message %s had the same key%s and another payload: it was acknowledged without a run, and nothing of "+
			"it took effect; --fingerprint makes it a dead letter.", e.MessageID, cause)
	case "stale":
		return fmt.Sprintf("Message %s was skipped%s: %s.", e.MessageID, cause, e.Reason)
	case "busy_deferred":
		if e.Reason != "" {
			return fmt.Sprintf("Message %s %s: it was put back for %s.", e.MessageID, e.Reason, time.Duration(e.AfterMS)*time.Millisecond)
		}
		return fmt.Sprintf("Message %s came while the key was in progress%s: it was put back for %s.", e.MessageID, cause,
			time.Duration(e.AfterMS)*time.Millisecond)
	case "retried":
		return fmt.Sprintf("The run is to be repeated in %s%s.", time.Duration(e.AfterMS)*time.Millisecond, because(cmp.Or(e.Reason, e.Error)))
	case "dead_lettered":
		if e.Cause == "producer_duplicate" || e.Cause == "raced_local" { // the dead letter may be that of the key's first message
			return fmt.Sprintf("Message %s was a duplicate%s: it was dead-lettered without a run%s. A failed key has one dead letter, "+
				"however many messages have the key.", e.MessageID, cause, because(cmp.Or(e.Reason, e.Error)))
		}
		return fmt.Sprintf("Message %s became a dead letter%s%s.", e.MessageID, cause, because(cmp.Or(e.Reason, e.Error)))
	case "mismatched":
		return fmt.Sprintf("Message %s had the same key and another payload: it was not run, and was dead-lettered.", e.MessageID)
	case "parked_uncertain":
		return fmt.Sprintf("Message %s was parked as a dead letter%s: a person decides.", e.MessageID, because(cmp.Or(e.Reason, e.Error)))
	case "fenced":
		return fmt.Sprintf("%s had lost the key to another one meanwhile: it wrote nothing and acknowledged nothing.", who)
	case "dropped":
		return fmt.Sprintf("The handler dropped message %s on purpose%s.", e.MessageID, because(e.Reason))
	case "expired":
		return fmt.Sprintf("Message %s was released: its visibility timeout ended first.", e.MessageID)
	case "returned":
		return fmt.Sprintf("Message %s was put back unstarted.", e.MessageID)
	}
	return ""
}

// operation describes what an operator did. A release leaves a doubt: the run that lost its claim may have had its effect.
func operation(e driver.AuditEntry) (text string, doubt bool) {
	who := cmp.Or(e.By, "Somebody")
	switch e.Kind {
	case driver.Resolve:
		return fmt.Sprintf("%s decided about the key whose outcome was unknown: %s.", who, decision(e.To)), false
	case driver.Redrive:
		text = fmt.Sprintf("%s sent the message of the key again, which was %s", who, e.From)
		if e.Renewed && e.From == driver.Completed {
			text += ", to run it once more under a new effect key"
		} else if e.Verified {
			text += ", and vouched that the effect had not happened"
		}
		return text + ".", false
	case driver.Reopen:
		text = fmt.Sprintf("%s reopened the key, which was %s, to run it again at its next delivery", who, e.From)
		if e.From == driver.Completed {
			text += ", under a new effect key"
		}
		return text + because(e.Reason) + ".", false
	case driver.Erase:
		return fmt.Sprintf("%s erased the record of a key, which was %s%s.", who, e.From, because(e.Reason)), false
	case driver.Discard:
		return who + " discarded the dead letter of the key: later duplicates are just acknowledged.", false
	case driver.ForceRelease:
		return fmt.Sprintf("%s took the key away from the worker that had it (token %d), whose run may have had its effect.", who, e.Token), true
	}
	return fmt.Sprintf("%s did %s: %s became %s.", who, e.Kind, e.From, e.To), false
}

func decision(to driver.State) string {
	switch to {
	case driver.Completed:
		return "the effect happened"
	case driver.Released:
		return "it did not happen, and the message was sent again"
	case driver.FailedState:
		return "it is not to run any more"
	case driver.Absent, driver.InProgress, driver.Uncertain, driver.Expired:
	}
	return to.String()
}

// Duplicates are the stored duplicates of a key.
type Duplicates struct {
	// Kept: the store has a log of duplicates. Total is how many it counted, Newest are those that it still has.
	Kept   bool
	Total  int64
	Newest []driver.Duplicate
}

// note describes how complete the log is.
func (c *Duplicates) note() string {
	const background = "workers record duplicates in the background, and under load or in a crash some are missing"
	switch {
	case !c.Kept:
		return "the store keeps no duplicates: only the events files of workers know them (semel work --events)"
	case c.Total == 0:
		return "none is recorded; " + background
	case c.Total > int64(len(c.Newest)):
		return fmt.Sprintf("only the newest %d of %d are kept; %s", len(c.Newest), c.Total, background)
	}
	return background
}

// inEvents reports whether an events file also has the duplicate.
func inEvents(d *driver.Duplicate, events []EventLine) bool {
	return slices.ContainsFunc(events, func(e EventLine) bool {
		return e.Kind == "decided" && e.MessageID == d.MessageID && e.At.Sub(d.At).Abs() < time.Millisecond
	})
}

// duplicateSentence describes one duplicate.
func duplicateSentence(d *driver.Duplicate) string {
	text := decided(EventLine{MessageID: d.MessageID, Decision: d.Decision, Cause: d.Cause}, "Worker "+d.Worker)
	if text == "" {
		text = fmt.Sprintf("Message %s was a duplicate (%s).", d.MessageID, d.Decision)
	}
	text += fmt.Sprintf(" Worker %s had received it from queue %s", d.Worker, d.Queue)
	if d.Count > 1 {
		text += fmt.Sprintf(", for the %s time", ordinal(d.Count))
	}
	return text + "."
}

// routes reports one source event that arrived as several messages: the time and the sentence of the second message.
// A redelivery is the same message, and a redrive is not another route.
func routes(events []EventLine) (at time.Time, text string) {
	var first *EventLine
	for i := range events {
		e := &events[i]
		switch {
		case e.Kind != "received" || e.Route == "" || driver.IsRedrive(e.MessageID):
		case first == nil:
			first = e
		case e.MessageID != first.MessageID:
			return e.At, fmt.Sprintf("The same source event came by two routes: as message %s (%s) and as message %s (%s). "+
				"Look for rules, subscriptions or notifications that overlap.", first.MessageID, first.Route, e.MessageID, e.Route)
		}
	}
	return time.Time{}, ""
}

// left describes which effects a failed key may have left: those of its steps, if it has any.
func (k *Facts) left(r *driver.Record) string {
	steps, undone := 0, 0
	for _, s := range k.Steps {
		switch s.State {
		case driver.RunCompensating:
			continue
		case driver.StepUndone:
			undone++
		}
		steps++
	}
	switch {
	case extra(r) > 0 || steps == 0:
		return soFar(r)
	case steps == undone:
		return "every step that was done was compensated"
	}
	return "steps that were not compensated may have had their effect"
}

// stepSentence describes the journal row of a step. A row has only the time of its last write, so each step has one
// sentence with its latest state.
func stepSentence(r driver.Step) (text string, doubt bool) {
	switch r.State {
	case driver.StepRegistered:
		return fmt.Sprintf("Step %q began (token %d); the journal does not say that it is done: it may have happened.", r.Name, r.Token), true
	case driver.StepStarted:
		return fmt.Sprintf("Step %q, which runs at most once, was started (token %d): it may have happened.", r.Name, r.Token), true
	case driver.StepDone:
		return fmt.Sprintf("Step %q was done (token %d).", r.Name, r.Token), false
	case driver.StepUndoing:
		if r.Failures > 0 {
			return fmt.Sprintf("The compensation of step %q failed %s%s.", r.Name, times(r.Failures), because(r.Reason)), true
		}
		return fmt.Sprintf("The compensation of step %q began (token %d).", r.Name, r.Token), true
	case driver.StepUndone:
		return fmt.Sprintf("Step %q was compensated (token %d).", r.Name, r.Token), false
	case driver.RunCompensating:
		return fmt.Sprintf("The run was turned back (token %d)%s: from here on its steps are only undone.", r.Token, because(r.Reason)), false
	}
	return fmt.Sprintf("Step %q is %v.", r.Name, r.State), false
}
