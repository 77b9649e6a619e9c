package ops

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// Sentence is one entry of a timeline.
type Sentence struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	// Doubt: from here on it is unknown whether an effect happened; it may have happened once more.
	Doubt bool `json:"doubt,omitempty"`
}

// Facts is everything that is known of one key.
type Facts struct {
	Record     driver.Record // the zero record if there is none
	Now        time.Time     // decides whether a lease has ended
	Events     []EventLine   // in any order
	Operations []driver.AuditEntry
	Steps      []driver.Step
	Duplicates Duplicates
	Holder     string // the worker that has the key, by its own report; "" = unknown
	// CLI makes the commands to paste; nil makes none.
	CLI *CLI
}

// Timeline describes what happened to one key.
type Timeline struct {
	Key       string     `json:"key"`
	Consumer  string     `json:"consumer"`
	State     string     `json:"state"`
	Sentences []Sentence `json:"sentences"`
	// Verdict is the key's present state in one sentence. Advice is what to do ("": nothing), Commands are how.
	Verdict  string   `json:"verdict"`
	Advice   string   `json:"advice,omitempty"`
	Commands []string `json:"commands,omitempty"`
	// LeaseExpired: the state is IN_PROGRESS, and the lease has ended.
	LeaseExpired bool `json:"lease_expired,omitempty"`
	// Duplicates counts those in the store; DuplicatesNote describes how complete that is.
	Duplicates     int64  `json:"duplicates"`
	DuplicatesNote string `json:"duplicates_note,omitempty"`
	// ExtraEffects bounds how often the effect may have happened beyond the first, for a plain handler.
	ExtraEffects int `json:"extra_effects_at_most"`
}

// Explain makes the timeline of a key.
func Explain(k Facts) Timeline {
	r := &k.Record
	events := slices.Clone(k.Events)
	sort.SliceStable(events, func(i, j int) bool { return events[i].At.Before(events[j].At) })
	s := Timeline{Key: r.Key.Raw, Consumer: r.Key.Consumer, State: r.State.String(), LeaseExpired: k.leaseExpired()}
	add := func(at time.Time, doubt bool, format string, args ...any) {
		if !at.IsZero() {
			s.Sentences = append(s.Sentences, Sentence{At: at.UTC(), Text: fmt.Sprintf(format, args...), Doubt: doubt})
		}
	}
	if r.State != driver.Absent {
		add(r.CreatedAt, false, "The key was claimed for the first time%s.", byMessage(r.Deliveries))
	}
	for _, e := range events {
		if text, doubt := sentence(e); text != "" {
			add(e.At, doubt, "%s", text)
		}
	}
	if at, text := routes(events); text != "" {
		add(at, false, "%s", text)
	}
	for _, e := range k.Operations {
		text, doubt := operation(e)
		add(e.At, doubt, "%s", text)
	}
	for i := range k.Duplicates.Newest {
		if d := &k.Duplicates.Newest[i]; !inEvents(d, events) {
			add(d.At, false, "%s", duplicateSentence(d))
		}
	}
	for _, row := range k.Steps {
		text, doubt := stepSentence(row)
		add(row.UpdatedAt, doubt, "%s", text)
	}
	k.ending(add)
	sort.SliceStable(s.Sentences, func(i, j int) bool { return s.Sentences[i].At.Before(s.Sentences[j].At) })
	s.Verdict, s.Advice, s.Commands = k.verdict()
	if k.CLI == nil {
		s.Commands = nil
	}
	if r.State != driver.Absent {
		s.ExtraEffects = extra(r)
		s.Duplicates, s.DuplicatesNote = k.Duplicates.Total, k.Duplicates.note()
	}
	return s
}

func (k *Facts) leaseExpired() bool {
	return k.Record.State == driver.InProgress && k.Now.After(k.Record.LeaseUntil)
}

// ending adds the present state of the record.
func (k *Facts) ending(add func(time.Time, bool, string, ...any)) {
	r := &k.Record
	switch r.State {
	case driver.InProgress:
		lasts := "lasts until"
		if k.leaseExpired() {
			lasts = "ended at"
		}
		add(r.UpdatedAt, false, "Attempt %d (token %d) claimed the key or last extended its lease, which %s %s.",
			r.Attempt, r.Token, lasts, stamp(r.LeaseUntil))
	case driver.Released:
		switch {
		case k.operated(): // the operation is in the timeline
		case r.Generation > 1 && r.Attempt == 0 && r.Failures == 0:
			add(r.UpdatedAt, false, "The key was opened again%s; it may run from %s.", because(r.Reason), stamp(r.RetryAt))
		default:
			add(r.UpdatedAt, r.Unknown, "The attempt with token %d released the key%s; the next one may start from %s.",
				r.Token, because(r.Reason), stamp(r.RetryAt))
		}
	case driver.Completed:
		how := ""
		reason, trace := driver.CutTrace(r.Reason)
		if reason != "" {
			how = ": " + reason
		}
		how += in(trace)
		add(r.CompletedAt, false, "Attempt %d (token %d) completed the key%s.", r.Attempt, r.Token, how)
	case driver.FailedState:
		add(r.UpdatedAt, false, "The key failed for good after %s%s.", words.Count(r.Failures, "failed run"), because(r.Reason))
	case driver.Uncertain:
		add(r.UpdatedAt, true, "The key was parked%s.", because(r.Reason))
	case driver.Expired:
		add(r.UpdatedAt, r.Unknown, "The key became %s; its retention has ended since, and the record expired.", r.Ended)
	case driver.Absent:
	}
	if r.Generation > 1 && len(k.Operations) == 0 {
		add(r.CreatedAt, false, "Since then the key was opened again %s: this is generation %d.", times(int(r.Generation)-1), r.Generation)
	}
}

// operated reports whether an operator wrote the record last.
func (k *Facts) operated() bool {
	return slices.ContainsFunc(k.Operations, func(e driver.AuditEntry) bool {
		return e.To == k.Record.State && e.At.Sub(k.Record.UpdatedAt).Abs() < time.Millisecond
	})
}

func byMessage(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf(", by message %s", ids[0])
}

func because(reason string) string {
	reason, trace := driver.CutTrace(reason)
	if reason == "" {
		return in(trace)
	}
	return ", because " + reason + in(trace)
}

// in names the trace of a run, if there is one.
func in(trace driver.Traceparent) string {
	if trace == "" {
		return ""
	}
	return " (trace " + trace.TraceID() + ")"
}

// verdict returns the key's present state, what to do, and the commands for it.
func (k *Facts) verdict() (text, advice string, commands []string) {
	r := &k.Record
	switch r.State {
	case driver.Absent:
		return "There is no record of this key: it never came, or its record was purged after its retention.", "", nil
	case driver.InProgress:
		if k.leaseExpired() {
			text = fmt.Sprintf("The lease of attempt %d ended %s ago: %s crashed, hangs, or cannot reach the store, and the run may "+
				"have had its effect", r.Attempt, k.Now.Sub(r.LeaseUntil).Round(time.Second), strings.TrimSpace("its worker "+k.Holder))
			if extra(r) > 0 {
				text += "; " + soFar(r)
			}
			return text + ". The next delivery takes over.", "wait for the next delivery; if none comes, look whether a worker runs and whether " +
				"the message is still in the queue", []string{words.Command("queue", "stats") + k.CLI.flags("queue")}
		}
		who := "A worker"
		if k.Holder != "" {
			who = "Worker " + k.Holder
		}
		return fmt.Sprintf("%s has it until %s; %s.", who, stamp(r.LeaseUntil), soFar(r)),
			"wait; take it away only from a worker that is surely dead", []string{k.CLI.onKey(r.Key, "release")}
	case driver.Released:
		return fmt.Sprintf("It waits for its next run; %s.", soFar(r)), "", nil
	case driver.Completed:
		doubts := "no moment of doubt: the effect happened once"
		if n := extra(r); n > 0 {
			doubts = fmt.Sprintf("%s: a handler whose downstream does not deduplicate on the effect key may have had its effect "+
				"up to %s more", words.Count(n, "moment of doubt", "moments of doubt"), times(n))
		}
		return fmt.Sprintf("It is completed, with %s.", doubts), "", nil
	case driver.FailedState:
		if r.Disposed {
			return "It failed for good and its dead letter was discarded: duplicates are just acknowledged.", "", nil
		}
		return fmt.Sprintf("It failed for good; %s.", k.left(r)), "fix the cause and send it again, or give it up", k.CLI.onDeadLetter(r)
	case driver.Expired:
		return fmt.Sprintf("It ended %s and its record expired: until %s each further message of the key becomes a dead letter of kind late.",
			r.Ended, stamp(r.RetainUntil)), "", nil
	case driver.Uncertain:
		return "It is unknown whether its effect happened.", "look at the downstream, then record what happened", k.CLI.resolutions(r.Key)
	}
	return "", "", nil
}

func soFar(r *driver.Record) string {
	if n := extra(r); n > 0 {
		return fmt.Sprintf("earlier runs may have had their effect (%s)", words.Count(n, "moment of doubt", "moments of doubt"))
	}
	return "no earlier run can have had an effect"
}

// extra bounds the effects beyond that of the completing run in plain claim mode: every run that may have had its effect
// without being the one that completed the key left a U-event (protocol section 11, I10).
func extra(r *driver.Record) int { return r.Uncertainty }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func ms(v float64) string {
	return time.Duration(v * float64(time.Millisecond)).Round(time.Millisecond / 10).String()
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

func ordinal(n int) string {
	ending := "th"
	if teen := n%100/10 == 1; !teen && n%10 < 4 {
		ending = [...]string{"th", "st", "nd", "rd"}[n%10]
	}
	return fmt.Sprintf("%d%s", n, ending)
}

// Gather reads what a store knows of the key of a record: operations, the journal of its steps, duplicates. What the store
// does not keep stays empty.
func Gather(ctx context.Context, s driver.Store, r driver.Record) (in Facts, err error) {
	in = Facts{Record: r, Now: time.Now()}
	if log, ok := driver.As[driver.AuditLog](s); ok {
		if in.Operations, err = log.Audit(ctx, driver.AuditFilter{Key: r.Key}); err != nil {
			return in, err
		}
	}
	if in.Steps, err = Steps(ctx, s, r); err != nil {
		return in, err
	}
	if in.Duplicates, err = DuplicatesOf(ctx, s, r.Key); err != nil {
		return in, err
	}
	in.Holder, err = holder(ctx, s, r)
	return in, err
}

// Steps reads the journal of a record's run. The run that a compensation ended is that of the epoch before: its journal is shown
// until the key runs again.
func Steps(ctx context.Context, s driver.Store, r driver.Record) ([]driver.Step, error) {
	st, ok := driver.As[driver.StepStore](s)
	if !ok {
		return nil, nil
	}
	h := r.Hold()
	rows, err := st.Steps(ctx, h)
	if err != nil || len(rows) > 0 || h.Epoch == 0 || r.State != driver.FailedState {
		return rows, err
	}
	h.Epoch--
	return st.Steps(ctx, h)
}

// DuplicatesOf reads the stored duplicates of a key.
func DuplicatesOf(ctx context.Context, s driver.Store, k driver.Key) (d Duplicates, err error) {
	log, ok := driver.As[driver.DuplicateLog](s)
	if !ok {
		return d, nil
	}
	d.Kept = true
	d.Total, d.Newest, err = log.Duplicates(ctx, k)
	return d, err
}

// Reason is the reason of a record, a dead letter or a step for a person: without the trace of the run that ended it.
func Reason(stored string) string {
	reason, _ := driver.CutTrace(stored)
	return reason
}
