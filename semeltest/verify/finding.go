package verify

import (
	"cmp"
	"fmt"
	"strings"
	"time"
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
	// KeyFollowsID: copies of a message are different messages to semel, because its key is not the same in each.
	KeyFollowsID Cause = "key_follows_id"
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

// Verdict is what a schedule did to the effects.
type Verdict string

// The verdicts, from bad to good.
const (
	// Doubled: an effect happened too often. Lost: one is missing although the message is done, or is never made.
	Doubled Verdict = "doubled"
	Lost    Verdict = "lost"
	// Broken: another mistake.
	Broken Verdict = "broken"
	// CannotTell: the schedule did not come to where it can be judged.
	CannotTell Verdict = "cannot_tell"
	Held       Verdict = "held"
	// Skipped: the schedule makes no sense for this handler; Outcome.End is the reason.
	Skipped Verdict = "skipped"
)

var verdicts = []Verdict{Doubled, Lost, Broken, CannotTell, Held}

// causes are the verdict of a finding, and how it is put in a line.
var causes = map[Cause]struct {
	verdict Verdict
	text    string
}{
	NoKey:              {Doubled, "happened {times} instead of {want}"},
	OutsideTransaction: {Doubled, "happened {times} instead of {want}"},
	IgnoredContext:     {Doubled, "happened {times} instead of {want}"},
	Overlapped:         {Doubled, "happened {times} instead of {want}"},
	KeyFollowsID:       {Doubled, "happened {times} instead of {want}"},
	UnstableKey:        {Doubled, "happened {times} instead of {want}, each under another key"},
	LostEffect:         {Lost, "happened {times} instead of {want}, and the message is done"},
	SharedKey:          {Lost, "has the key of another effect"},
	OtherContent:       {Lost, "says something else in a later attempt, under the same key"},
	OutsideRun:         {Broken, "was done outside of a run"},
	OtherState:         {Broken, "the world came to another state"},
	NotRepeatable:      {CannotTell, "does not do the same every time"},
	Fails:              {CannotTell, "does not complete the sample"},
	Hangs:              {CannotTell, "did not come to an end"},
	NothingRecorded:    {CannotTell, "did nothing that was recorded"},
}

// Finding is one mistake of a handler.
type Finding struct {
	Cause Cause `json:"cause"`
	// Message is the id of the sample.
	Message string `json:"message,omitempty"`
	// Effect names it; "" when the finding is about the whole handler. Place says which of how many it is in the plain
	// run, from 1; 0 = it is not in it.
	Effect string `json:"effect,omitempty"`
	Place  int    `json:"place,omitempty"`
	Of     int    `json:"of,omitempty"`
	// Times is how often it happened, Want how often it does in the plain run.
	Times int `json:"times"`
	Want  int `json:"want"`
	// Schedule shows it, Also do too. At is the effect that the schedule aims at when it is another one.
	Schedule Kind   `json:"schedule"`
	At       string `json:"at,omitempty"`
	Did      string `json:"did,omitempty"` // as in Outcome
	Also     []Kind `json:"also,omitempty"`
	// Why says what is wrong, Hint what to do.
	Why  string `json:"why"`
	Hint string `json:"hint"`
}

// String is the finding in lines of up to 112 columns.
func (f *Finding) String() string { return f.Text(112) }

// Text is the finding in lines of up to width columns, where words allow it.
func (f *Finding) Text(width int) string {
	var b strings.Builder
	what := cmp.Or(f.Effect, "handler")
	if f.Effect != "" && f.Place > 0 {
		what = fmt.Sprintf("%s (effect %d of %d)", what, f.Place, f.Of)
	}
	fmt.Fprintf(&b, "%s: %s", what,
		strings.NewReplacer("{times}", times(f.Times), "{want}", times(f.Want)).Replace(causes[f.Cause].text))
	when := f.Schedule.String()
	if f.At != "" {
		when += " (the effect: " + f.At + ")"
	}
	line := func(name, text string) {
		fmt.Fprintf(&b, "\n  %-10s%s", name, strings.ReplaceAll(wrapped(text, width-12), "\n", "\n            "))
	}
	line("schedule", when)
	if f.Did != "" {
		line("did", f.Did)
	}
	line("why", f.Why)
	line("hint", f.Hint)
	for i, k := range f.Also {
		line([...]string{"also", ""}[min(i, 1)], k.String())
	}
	return b.String()
}

// wrapped breaks a text into lines of up to width columns, where words allow it.
func wrapped(text string, width int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
			column = n
		case column+1+n > width:
			b.WriteByte('\n')
			column = n
		default:
			b.WriteByte(' ')
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
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
	Schedule Kind    `json:"schedule"`
	Verdict  Verdict `json:"verdict"`
	Message  string  `json:"message,omitempty"`
	// Did is how the fault is made, where the schedule does not say it.
	Did string `json:"did,omitempty"`
	// Effect is the target of the fault, Place its place in the plain run from 1; "" and 0 = the message as a whole.
	Effect string `json:"effect,omitempty"`
	Place  int    `json:"place,omitempty"`
	// Struck: the fault happened. A fault that did not is a finding, or a handler that took another way.
	Struck bool `json:"struck"`
	// End is what became of the message: completed, uncertain, dead, rejected or hangs; of a program's, the state of its
	// record.
	End string `json:"end"`
	// Runs is how often the handler ran, Happened how many effects there were, Want how many there should be. Repeats are
	// those that the other side knows by their key.
	Runs     int `json:"runs"`
	Happened int `json:"happened"`
	Want     int `json:"want"`
	Repeats  int `json:"repeats"`
	// Exits are the exit or HTTP statuses of the runs of a program or an endpoint; -1 = it was killed or cut off.
	Exits []int `json:"exits,omitempty"`
	// Findings is how many findings this schedule showed.
	Findings int           `json:"findings"`
	Took     time.Duration `json:"took_ns"`
}

// Report is what the verifier found.
type Report struct {
	// Effects are those of the plain runs, by message.
	Effects map[string][]Effect `json:"-"`
	// Schedules are all that ran, the plain runs included.
	Schedules []Outcome `json:"schedules"`
	Findings  []Finding `json:"findings"`
	// Notes describe what could not be tried.
	Notes []string `json:"notes,omitempty"`
}

// OK reports whether nothing was found.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

// Count counts the schedules with a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for i := range r.Schedules {
		if r.Schedules[i].Verdict == v {
			n++
		}
	}
	return n
}

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
func (r *Report) String() string { return r.Summary() + "\n" + r.Text(112) }

// Text is the findings and notes in lines of up to width columns.
func (r *Report) Text(width int) string {
	var b strings.Builder
	for i := range r.Findings {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, r.Findings[i].Text(width))
	}
	if len(r.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s\n", wrapped("note: "+n, width))
	}
	return b.String()
}
