package verify

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Trial is what the handler did in one schedule.
type Trial struct {
	// Outcome is what is known before the judgement: Schedule, Did, Struck, End, Runs, Exits, Took, and
	// the target of the fault.
	Outcome
	// Samples are the messages that it sent.
	Samples []Sample
	// Effects happened, in their order; those that the other side knew by their key, too.
	Effects []Effect
	// State is the state of the world after it; nil = none.
	State any
	// Reason is the last error of a run, or what became of a message that was not done. Limit is how long a trial with the
	// end Hanging waited.
	Reason string
	Limit  time.Duration
	// OtherKey: copies of one message had different keys. Dropped: a run dropped its message.
	OtherKey, Dropped bool
}

// Sample is a message of a trial.
type Sample struct {
	ID string
	// Done: it counts as handled. Otherwise a person sees it, as a dead letter or a parked key.
	Done bool
}

// Hanging is the Outcome.End of a trial that did not come to an end.
const Hanging = "hangs"

// Judge compares trials of a handler with a plain one, and collects the report. [Run] uses it; a harness that starts
// processes of its own, as semel lab attack does, gives it what those did. The zero value judges a Go handler. It is
// not for concurrent use.
type Judge struct {
	Report Report
	// Handles is the kind of handler, for the hints; KeyHeader the header of idempotency keys, "" = Idempotency-Key.
	Handles   Handles
	KeyHeader string

	plain []Effect // in order, those in a run
	state any
	found map[string]int // place in report.Findings, by effect and class; of all messages
	// stateOf is the effect of the first finding about the state.
	stateOf string
	// shared are the names of effects that have one key in one plain run: what they say may differ.
	shared map[string]bool
}

// tally counts the effects of one name.
type tally struct {
	all      []Effect
	keys     []string // different ones
	unkeyed  int
	inEffect int
}

// count sums up the effects of a name: one for each key, and one for each without.
func count(effects []Effect, name string) (t tally) {
	for i := range effects {
		e := &effects[i]
		if e.Name != name || e.Where != "" {
			continue
		}
		t.all = append(t.all, *e)
		switch {
		case e.Key == "":
			t.unkeyed++
		case !slices.Contains(t.keys, e.Key):
			t.keys = append(t.keys, e.Key)
		}
	}
	t.inEffect = t.unkeyed + len(t.keys)
	return t
}

// names are the different names of effects, in order. Commits are no effects here; the statements that they commit are.
func names(effects ...[]Effect) []string {
	var out []string
	for _, es := range effects {
		for i := range es {
			if es[i].kind != commit && es[i].Where == "" && !slices.Contains(out, es[i].Name) {
				out = append(out, es[i].Name)
			}
		}
	}
	return out
}

// out is the outcome of the trial that is judged.
func (j *Judge) out() *Outcome { return &j.Report.Schedules[len(j.Report.Schedules)-1] }

// begin adds a trial to the report.
func (j *Judge) begin(t *Trial) {
	t.Verdict = Held
	if j.Report.Findings == nil {
		j.Report.Findings = []Finding{} // no null in JSON
	}
	j.Report.Schedules = append(j.Report.Schedules, t.Outcome)
	out := j.out()
	for _, name := range names(t.Effects) {
		is := count(t.Effects, name)
		out.Happened += is.inEffect
		out.Repeats += len(is.all) - is.inEffect
	}
	for _, name := range names(j.plain) {
		out.Want += count(j.plain, name).inEffect * len(t.Samples)
	}
}

// Skip adds a schedule that makes no sense for this handler, and why.
func (j *Judge) Skip(k Kind, why string) {
	j.Report.Schedules = append(j.Report.Schedules, Outcome{Schedule: k, Verdict: Skipped, End: why})
}

// Judge adds a trial, and the findings that it shows in comparison with the plain one.
func (j *Judge) Judge(t Trial) Outcome {
	j.begin(&t)
	switch {
	case t.End == Hanging:
		j.compare(&t)
		if j.out().Findings == 0 {
			j.hangs(&t)
		}
	case !t.Struck:
		j.missed(&t)
	case len(j.plain) == 0 && j.state == nil:
		if t.Runs > len(t.Samples) {
			j.nothing(&t, fmt.Sprintf("it ran %d times, and its effects cannot be seen", t.Runs))
		}
	default:
		j.compare(&t)
	}
	return *j.out()
}

// compare judges effects and state.
func (j *Judge) compare(t *Trial) {
	j.outside(t)
	done := true
	for _, g := range t.groups() {
		j.counts(t, g)
		done = done && g.done
	}
	if j.out().Findings == 0 && t.State != nil && done && !reflect.DeepEqual(t.State, j.state) {
		j.otherState(t)
	}
}

// counts compares the effects of some messages with those of the plain run.
func (j *Judge) counts(t *Trial, g group) {
	for _, name := range names(j.plain, g.effects) {
		is, want := count(g.effects, name), count(j.plain, name)
		want.inEffect *= g.messages
		if t.State != nil && byState(is, want) {
			continue
		}
		switch known := want.inEffect > 0; {
		case is.inEffect > max(want.inEffect, 1) || known && is.inEffect > want.inEffect:
			j.doubled(t, name, is, want)
		case is.inEffect < want.inEffect && g.done:
			j.lost(t, name, is, want)
		default:
			j.content(t, name, is)
		}
	}
}

// byState reports whether the state is the judge: of SQL, which may change the same row to the same value again.
func byState(ts ...tally) bool {
	for _, t := range ts {
		if slices.ContainsFunc(t.all, func(e Effect) bool { return e.kind != statement }) {
			return false
		}
	}
	return true
}

// add adds a finding, once for each effect and class: other schedules that show it are listed with it.
func (j *Judge) add(t *Trial, class string, f Finding) {
	out := j.out()
	out.Findings++
	if v := causes[f.Cause].verdict; slices.Index(verdicts, v) < slices.Index(verdicts, out.Verdict) {
		out.Verdict = v
	}
	id := class + "\x00" + f.Effect
	if f.Effect == "" {
		id += "\x00" + t.Message // of the whole handler: each sample may have its own reason
	}
	if i, ok := j.found[id]; ok {
		g := &j.Report.Findings[i] // perhaps of another message: the mistake is the same
		if k := t.Schedule; k != g.Schedule && class != "outside" && !slices.Contains(g.Also, k) {
			g.Also = append(g.Also, k)
		}
		return
	}
	f.Message, f.Schedule, f.Did, f.Of = t.Message, t.Schedule, t.Did, len(j.plain)
	if f.Place == 0 {
		f.Place = 1 + slices.IndexFunc(j.plain, func(e Effect) bool { return e.Name == f.Effect })
		if t.Effect != "" && t.Effect == f.Effect {
			f.Place = t.Place
		}
	}
	if f.Effect != t.Effect && (f.Place > 0 || f.Effect == "") {
		f.At = t.Effect
	}
	if j.found == nil {
		j.found = map[string]int{}
	}
	j.found[id] = len(j.Report.Findings)
	j.Report.Findings = append(j.Report.Findings, f)
}

func (j *Judge) doubled(t *Trial, name string, is, want tally) {
	f := Finding{Effect: name, Times: is.inEffect, Want: max(want.inEffect, 1)}
	kind := is.all[0].kind
	switch zombie := t.Schedule == LeaseLost && slices.ContainsFunc(is.all, func(e Effect) bool { return e.Ended }); {
	case t.OtherKey:
		f.Cause = KeyFollowsID
		f.Why = "the copies of the message have different keys: they are two messages to semel"
		f.Hint = j.hint(hintFollowsID, name)
	case is.unkeyed == 0:
		f.Cause = UnstableKey
		f.Why, f.Hint = j.unstable(t, kind, is)
	case kind == emitted || kind == queued:
		f.Cause = NoKey
		f.Why = "it committed with more than one record: the key of the message is not the same in every delivery"
		f.Hint = j.hint(hintEmitted, name)
	case zombie:
		f.Cause = IgnoredContext
		f.Why = "the lease was lost and ctx had ended (semel.ErrFenced), but the run went on, after another had finished"
		f.Hint = "pass ctx to the call, and stop when it ends; besides send a key, because a process can stand still " +
			"between the look at ctx and the call: " + j.keyHint(kind, name)
	case t.Schedule == Paused:
		f.Cause = Overlapped
		f.Why = "the run stood still while another took over and finished: it could not know, and did it again"
		f.Hint = "only the other side can refuse it: " + j.keyHint(kind, name)
		if j.Handles == GoHandler {
			f.Hint += ", or compare a.Token there and refuse smaller ones"
		}
	case kind == statement:
		f.Cause = OutsideTransaction
		f.Why = "it does not commit with the record: what dies or fails in between does it again"
		f.Hint = j.hint(hintStatement, name)
	case kind == request:
		f.Cause = NoKey
		f.Why = fmt.Sprintf("it has no %s: the server cannot tell the second request from another first one", j.header())
		f.Hint = j.keyHint(kind, name)
	default:
		f.Cause = NoKey
		f.Why = "it has no key: the other side cannot tell that it is the same one again"
		f.Hint = j.keyHint(kind, name)
	}
	j.add(t, "doubled", f)
}

func (j *Judge) unstable(t *Trial, kind effectKind, is tally) (why, hint string) {
	name := is.all[0].Name
	if is.all[0].natural {
		return "PUT and DELETE may be repeated, but a later attempt sends something else", j.hint(hintContent, name)
	}
	a, b := is.keys[0], is.keys[len(is.keys)-1]
	why = fmt.Sprintf("the key is made anew: %s, then %s", short(a), short(b))
	switch {
	case t.Schedule == DuplicateTakesOver || t.Schedule == DuplicateMeanwhile:
		why += " (it follows the message id, which a producer that sends twice does not keep)"
	case kind == emitted:
		why += " (of an emitted message: its ID)"
	}
	return why, j.hint(hintUnstable, name)
}

// swallows: a handler that loses its effect in one of these took an error for a success.
var swallows = []Kind{NotSent, ResponseLost, Slow, ErrorAfter, ErrorBefore, Throttled, DuplicateRefused}

func (j *Judge) lost(t *Trial, name string, is, want tally) {
	f := Finding{Cause: LostEffect, Effect: name, Times: is.inEffect, Want: want.inEffect}
	switch {
	case t.Dropped:
		f.Why = "the handler dropped the message for good"
		f.Hint = j.hint(hintDropped, name)
	case t.Schedule == Poison:
		f.Why = "the handler reported success, and nothing happened: the message is gone without a trace"
		f.Hint = j.hint(hintPoison, name)
	case t.Schedule == Deploy:
		f.Why = "the handler was asked to stop, and reported success"
		f.Hint = j.hint(hintStopped, name)
	case slices.Contains(swallows, t.Schedule):
		f.Why = "the handler got an error, and reported success all the same"
		f.Hint = j.hint(hintSwallowed, name)
	case len(is.keys) < len(want.keys) && t.Schedule == Plain:
		f.Why = "a duplicate is taken for done"
		f.Hint = j.hint(hintDuplicate, name)
	default:
		f.Why = "the next run left it out, as if it had been done: something was marked before the effect"
		f.Hint = j.hint(hintMarked, name)
	}
	j.add(t, "lost", f)
}

// content finds attempts that send different content under one key.
func (j *Judge) content(t *Trial, name string, is tally) {
	if j.shared[name] {
		return // found in the plain run
	}
	for i := range is.all {
		a := &is.all[i]
		for k := range i {
			b := &is.all[k]
			if a.Key == "" || a.natural || a.Key != b.Key || a.content == b.content || a.sameRun(b) {
				continue // in one run: two effects with one key
			}
			j.add(t, "content", Finding{
				Cause: OtherContent, Effect: name,
				Why:  "a server that compares refuses the second request (422), and the message never gets done",
				Hint: j.hint(hintContent, name),
			})
			return
		}
	}
}

func (j *Judge) otherState(t *Trial) {
	f := Finding{
		Cause: OtherState,
		Why: fmt.Sprintf("after the plain run it is %v, here %v: something that is not keyed happened twice, or not at all",
			j.state, t.State),
		Hint: "queue the write with semel.InTx and *semel.Statements, so that it commits with the record; or set a value " +
			"instead of adding",
	}
	if t.Place > 0 && (j.plain[t.Place-1].kind == statement || j.plain[t.Place-1].kind == commit) {
		f.Effect = t.Effect
	}
	if f.Effect == "" && j.stateOf != "" {
		f.Effect = j.stateOf // the same mistake, seen from farther away
	}
	if j.stateOf == "" {
		j.stateOf = f.Effect
	}
	j.add(t, "state", f)
}

// hangs reports a schedule that did not end.
func (j *Judge) hangs(t *Trial) {
	why := fmt.Sprintf("the handler had not returned, or the message was not settled, after %v", t.Limit)
	j.add(t, "hangs", Finding{Cause: Hangs, Why: why + behind(t.Reason), Hint: j.hint(hintHangs, "")})
}

// missed reports a fault that did not come to pass.
func (j *Judge) missed(t *Trial) {
	f := Finding{
		Cause: NotRepeatable, Why: "the handler came to its end before the fault could strike" + behind(t.Reason),
		Hint: j.hint(hintRepeatable, ""),
	}
	if t.Effect != "" {
		f.Why = fmt.Sprintf("the plain runs did %s; this run did not, before anything went wrong", t.Effect) + behind(t.Reason)
	}
	j.add(t, "repeatable", f)
}

func (j *Judge) nothing(t *Trial, why string) {
	j.add(t, "nothing", Finding{Cause: NothingRecorded, Why: why + behind(t.Reason), Hint: j.hint(hintNothing, "")})
}

func behind(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + strings.TrimSpace(reason)
}
