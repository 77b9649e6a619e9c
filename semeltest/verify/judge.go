package verify

import (
	"fmt"
	"reflect"
	"slices"
)

// judge compares schedules of one message with its plain run.
type judge struct {
	opts   *Options
	report *Report
	msg    string
	plain  []Effect // in order, those in a run
	state  any
	found  map[string]int // place in report.Findings, by effect and class; of all messages
	// stateOf is the effect of the first finding about the state.
	stateOf string
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

// schedule judges one schedule and returns how many findings it showed.
func (j *judge) schedule(w *world, state any) int {
	n := j.outside(w)
	for _, name := range names(j.plain, w.effects) {
		is, want := count(w.effects, name), count(j.plain, name)
		if j.byState(is, want) {
			continue
		}
		switch known := want.inEffect > 0; {
		case is.inEffect > max(want.inEffect, 1) || known && is.inEffect > want.inEffect:
			n += j.doubled(w, name, is, want)
		case is.inEffect < want.inEffect && w.done():
			n += j.lost(w, name, is, want)
		default:
			n += j.content(w, name, is)
		}
	}
	if n == 0 && j.opts.State != nil && w.done() && !reflect.DeepEqual(state, j.state) {
		n += j.otherState(w, state)
	}
	return n
}

// byState reports whether the state is the judge: of SQL, which may change the same row to the same value again.
func (j *judge) byState(ts ...tally) bool {
	if j.opts.State == nil {
		return false
	}
	for _, t := range ts {
		for i := range t.all {
			if t.all[i].kind != statement {
				return false
			}
		}
	}
	return true
}

// done reports whether the message counts as handled. Otherwise a person sees it as a dead letter.
func (w *world) done() bool { return w.completed && !w.deadLettered }

// add adds a finding, once for each effect and class: other schedules that show it are listed with it.
func (j *judge) add(w *world, class string, f Finding) int {
	id := class + "\x00" + f.Effect
	if f.Effect == "" {
		id += "\x00" + j.msg // of the whole handler: each sample may have its own reason
	}
	if i, ok := j.found[id]; ok {
		g := &j.report.Findings[i] // perhaps of another message: the mistake is the same
		if k := w.fault.kind; k != g.Schedule && class != "outside" && !slices.Contains(g.Also, k) {
			g.Also = append(g.Also, k)
		}
		return 1
	}
	f.Message, f.Schedule, f.Of = j.msg, w.fault.kind, len(j.plain)
	if f.Place == 0 {
		f.Place = j.place(w, f.Effect)
	}
	if f.Place > 0 && w.fault.place >= 0 && f.Effect != w.fault.target.name {
		f.At = w.fault.target.name
	}
	if f.Effect == "" && w.fault.place >= 0 {
		f.At = w.fault.target.name
	}
	j.found[id] = len(j.report.Findings)
	j.report.Findings = append(j.report.Findings, f)
	return 1
}

// place is the place of an effect in the plain run: the one that the schedule aims at, if it has that name.
func (j *judge) place(w *world, name string) int {
	if w.fault.place >= 0 && w.fault.target.name == name {
		return w.fault.place + 1
	}
	return 1 + slices.IndexFunc(j.plain, func(e Effect) bool { return e.Name == name })
}

func (j *judge) doubled(w *world, name string, is, want tally) int {
	f := Finding{Effect: name, Times: is.inEffect, Want: max(want.inEffect, 1)}
	kind := is.all[0].kind
	switch zombie := w.fault.kind == LeaseLost && slices.ContainsFunc(is.all, func(e Effect) bool { return e.Ended }); {
	case is.unkeyed == 0:
		f.Cause = UnstableKey
		f.Why, f.Hint = j.unstable(w, kind, is)
	case kind == emitted || kind == queued:
		f.Cause = NoKey
		f.Why = "it committed with more than one record: the key of the message is not the same in every delivery"
		f.Hint = "take the key from what the message says, not from when or how it came: key.FromJSON(\"/order_id\")"
	case zombie:
		f.Cause = IgnoredContext
		f.Why = "the lease was lost and ctx had ended (semel.ErrFenced), but the run went on, after another had finished"
		f.Hint = "pass ctx to the call, and stop when it ends; besides send a key, because a process can stand still " +
			"between the look at ctx and the call: " + keyHint(kind, name)
	case w.fault.kind == Paused:
		f.Cause = Overlapped
		f.Why = "the run stood still while another took over and finished: it could not know, and did it again"
		f.Hint = "only the other side can refuse it: " + keyHint(kind, name) +
			", or compare a.Token there and refuse smaller ones"
	case kind == statement:
		f.Cause = OutsideTransaction
		f.Why = "it does not commit with the record: what dies or fails in between does it again"
		f.Hint = "queue it: semel.InTx(func(ctx, tx *semel.Statements, a) error { tx.Exec(…) }); if it changes " +
			"nothing when it is repeated, give Options.State, which then judges"
	default:
		f.Cause = NoKey
		f.Why = noKeyWhy[kind]
		f.Hint = keyHint(kind, name)
	}
	return j.add(w, "doubled", f)
}

var noKeyWhy = map[effectKind]string{
	request:  "it has no Idempotency-Key: the server cannot tell the second request from another first one",
	explicit: "it has no key: the other side cannot tell that it is the same one again",
}

// keyHint returns how to give an effect a key.
func keyHint(kind effectKind, name string) string {
	switch kind {
	case request:
		return fmt.Sprintf("req.Header.Set(\"Idempotency-Key\", a.EffectKey(%q))", step(name))
	case statement, commit:
		return "semel.InTx with *semel.Statements, so that it commits with the record"
	}
	return fmt.Sprintf("a.EffectKey(%q) as its idempotency key", step(name))
}

// step is a name for the step that an effect is.
func step(name string) string {
	last := 0
	for i, r := range name {
		if r == '/' || r == ' ' {
			last = i + 1
		}
	}
	if s := name[last:]; s != "" {
		return s
	}
	return name
}

func (j *judge) unstable(w *world, kind effectKind, is tally) (why, hint string) {
	if is.all[0].natural {
		return "PUT and DELETE may be repeated, but a later attempt sends something else",
			"make what is sent of the message alone: no time, no random id, no attempt number"
	}
	a, b := is.keys[0], is.keys[len(is.keys)-1]
	why = fmt.Sprintf("the key is made anew: %s, then %s", short(a), short(b))
	switch {
	case w.fault.kind == DuplicateTakesOver || w.fault.kind == DuplicateMeanwhile:
		why += " (it follows the message id, which a producer that sends twice does not keep)"
	case kind == emitted:
		why += " (of an emitted message: its ID)"
	}
	return why, fmt.Sprintf("derive it from the message's key: a.EffectKey(%q) is the same in every attempt",
		step(is.all[0].Name))
}

func short(key string) string {
	if len(key) > 12 {
		return fmt.Sprintf("%.12q…", key)
	}
	return fmt.Sprintf("%q", key)
}

func (j *judge) lost(w *world, name string, is, want tally) int {
	f := Finding{Cause: LostEffect, Effect: name, Times: is.inEffect, Want: want.inEffect}
	switch {
	case w.fault.kind == NotSent || w.fault.kind == ResponseLost:
		f.Why = "the handler got an error, and returned nil all the same"
		f.Hint = "return the error: the run is repeated, and what has a key is not done twice"
	case len(is.keys) < len(want.keys) && w.fault.kind == Plain:
		f.Why = "a duplicate is taken for done"
		f.Hint = "let semel's record decide what is done"
	default:
		f.Why = "the next run left it out, as if it had been done: something was marked before the effect"
		f.Hint = "mark nothing as done before it is: leave that to semel's record, or use package steps"
	}
	return j.add(w, "lost", f)
}

// content finds attempts that send different content under one key.
func (j *judge) content(w *world, name string, is tally) int {
	if j.shares(name) {
		return 0 // found in the plain run
	}
	for i := range is.all {
		a := &is.all[i]
		for k := range i {
			b := &is.all[k]
			if a.Key == "" || a.natural || a.Key != b.Key || a.content == b.content {
				continue
			}
			if a.Process == b.Process && a.Run == b.Run {
				continue // in one run: two effects with one key
			}
			return j.add(w, "content", Finding{
				Cause: OtherContent, Effect: name,
				Why:  "a server that compares refuses the second request (422), and the message never gets done",
				Hint: "make what is sent of the message alone: no time, no random id, no attempt number",
			})
		}
	}
	return 0
}

func (j *judge) otherState(w *world, state any) int {
	f := Finding{
		Cause: OtherState, Times: 0,
		Why: fmt.Sprintf("after the plain run it is %v, here %v: something that is not keyed happened twice, or not at all",
			j.state, state),
		Hint: "queue the write with semel.InTx and *semel.Statements, so that it commits with the record; or set a value " +
			"instead of adding",
	}
	if place := w.fault.place; place >= 0 && (j.plain[place].kind == statement || j.plain[place].kind == commit) {
		f.Effect = w.fault.target.name
	}
	if f.Effect == "" && j.stateOf != "" {
		f.Effect = j.stateOf // the same mistake, seen from farther away
	}
	if j.stateOf == "" {
		j.stateOf = f.Effect
	}
	return j.add(w, "state", f)
}
