package verify

import (
	"fmt"
	"strings"
)

// Cause is the kind of a finding.
type Cause string

// The causes.
const (
	// NoKey: an effect happened more than once, because the other side gets nothing to deduplicate by.
	NoKey Cause = "no_key"
	// UnstableKey: it is keyed, and the key is not the same in every attempt.
	UnstableKey Cause = "unstable_key"
	// SharedKey: two effects of one run have one key, so that the second is taken for a repetition of the first and is
	// never made. One request that is sent twice in a run in which nothing fails counts as two effects.
	SharedKey Cause = "shared_key"
	// OtherContent: a later attempt says something else under the same key.
	OtherContent Cause = "other_content"
	// OutsideTransaction: SQL that changes rows again, because it does not commit with the record.
	OutsideTransaction Cause = "outside_transaction"
	// IgnoredContext: an effect was done after the context had ended, and another process had done it.
	IgnoredContext Cause = "ignored_context"
	// Overlapped: an effect was done by a process that did not know that another had taken over.
	Overlapped Cause = "overlapped"
	// OutsideRun: an effect was done outside of a claimed run.
	OutsideRun Cause = "outside_run"
	// LostEffect: the record is completed, and the effect did not happen.
	LostEffect Cause = "lost_effect"
	// OtherState: the world came to another state than that of the plain run.
	OtherState Cause = "other_state"
	// NotRepeatable: the handler does not do the same every time, so that nothing can be compared.
	NotRepeatable Cause = "not_repeatable"
	// Fails: the plain run does not complete the message, so that there is nothing to compare with.
	Fails Cause = "fails"
	// Hangs: a schedule did not come to an end.
	Hangs Cause = "hangs"
	// NothingRecorded: no effect was seen, and no state: there is nothing to judge.
	NothingRecorded Cause = "nothing_recorded"
)

// Finding is one mistake of a handler.
type Finding struct {
	Cause Cause
	// Message is the id of the sample.
	Message string
	// Effect names it; "" when the finding is about the whole handler. Place says which of how many it is in the plain
	// run, from 1; 0 = it is not in it.
	Effect    string
	Place, Of int
	// Times is how often it happened, Want how often it does in the plain run.
	Times, Want int
	// Schedule shows it, Also do too. At is the effect that the schedule aims at when it is another one.
	Schedule Kind
	At       string
	Also     []Kind
	// Why says what is wrong, Fix what to do.
	Why, Hint string
}

// String is the finding in lines.
func (f *Finding) String() string {
	var b strings.Builder
	b.WriteString(f.head())
	when := f.Schedule.String()
	if f.At != "" {
		when += " (it: " + f.At + ")"
	}
	line := func(name, text string) { fmt.Fprintf(&b, "\n  %-10s%s", name, wrapped(text)) }
	line("schedule", when)
	line("why", f.Why)
	line("hint", f.Hint)
	if len(f.Also) > 0 {
		for i, k := range f.Also {
			line([...]string{"also", ""}[min(i, 1)], k.String())
		}
	}
	return b.String()
}

// wrapped breaks a text into lines that fit behind their name.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch n := len([]rune(word)); {
		case i == 0:
			column = n
		case column+1+n > 100:
			b.WriteString("\n            ")
			column = n
		default:
			b.WriteByte(' ')
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

func (f *Finding) head() string {
	what := f.Effect
	switch {
	case what == "":
		what = "handler"
	case f.Place > 0:
		what = fmt.Sprintf("%s (effect %d of %d)", what, f.Place, f.Of)
	}
	switch f.Cause {
	case NoKey, OutsideTransaction, IgnoredContext, Overlapped:
		return fmt.Sprintf("%s: happened %s instead of %s", what, times(f.Times), times(f.Want))
	case UnstableKey:
		return fmt.Sprintf("%s: happened %s instead of %s, each under another key", what, times(f.Times), times(f.Want))
	case LostEffect:
		return fmt.Sprintf("%s: happened %s instead of %s, and the message is done", what, times(f.Times), times(f.Want))
	case SharedKey:
		return what + ": has the key of another effect"
	case OtherContent:
		return what + ": says something else in a later attempt, under the same key"
	case OutsideRun:
		return what + ": was done outside of a run"
	case OtherState:
		return what + ": the world came to another state"
	case NotRepeatable:
		return what + ": does not do the same every time"
	case Fails:
		return what + ": does not complete the sample"
	case Hangs:
		return what + ": did not come to an end"
	}
	return what + ": did nothing that was recorded"
}

func times(n int) string {
	switch n {
	case 0:
		return "not at all"
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// Outcome is the outcome of one schedule.
type Outcome struct {
	Message  string
	Schedule Kind
	// Effect is the target of the fault, Place its place in the plain run from 1; "" and 0 = the message as a whole.
	Effect string
	Place  int
	// Struck: the fault happened. A fault that did not is a finding, or a handler that took another way.
	Struck bool
	// End is what became of the message: completed, uncertain, dead, rejected or hangs.
	End string
	// Findings is how many findings this schedule showed.
	Findings int
}

// Report is what the verifier found.
type Report struct {
	// Effects are those of the plain runs, by message.
	Effects map[string][]Effect
	// Schedules are all that ran, the plain runs included.
	Schedules []Outcome
	Findings  []Finding
	// Notes describe what could not be tried.
	Notes []string
}

// OK reports whether nothing was found.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

// Struck counts the schedules whose fault happened.
func (r *Report) Struck() int {
	n := 0
	for i := range r.Schedules {
		if r.Schedules[i].Struck {
			n++
		}
	}
	return n
}

// Summary is the report in one line.
func (r *Report) Summary() string {
	effects, faults := 0, 0
	for _, es := range r.Effects {
		effects += len(es)
	}
	for i := range r.Schedules {
		if r.Schedules[i].Schedule != Plain {
			faults++
		}
	}
	verdict := "nothing happened twice, nothing was lost"
	if !r.OK() {
		verdict = counted(len(r.Findings), "finding")
	}
	return fmt.Sprintf("%s, %s, %s, %d struck: %s", counted(len(r.Effects), "message"), counted(effects, "effect"),
		counted(faults, "bad schedule"), r.Struck(), verdict)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// String is the whole report.
func (r *Report) String() string {
	var b strings.Builder
	b.WriteString(r.Summary())
	b.WriteByte('\n')
	for i := range r.Findings {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, &r.Findings[i])
	}
	if len(r.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}
