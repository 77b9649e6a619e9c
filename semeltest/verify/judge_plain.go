package verify

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// This file judges the plain runs, in which nothing goes wrong, and tells the effects of several messages apart.

// Plain adds a trial in which nothing went wrong: all others are compared with it. It reports whether they can be.
func (j *Judge) Plain(t Trial) bool {
	if j.Report.Effects == nil {
		j.Report.Effects = map[string][]Effect{}
	}
	gs := t.groups()
	j.plain, j.state, j.stateOf, j.shared = gs[0].ofOne(), t.State, "", map[string]bool{}
	j.begin(&t)
	if t.End == Hanging {
		j.Report.Effects[gs[0].id] = nil
		j.hangs(&t)
		return false
	}
	j.outside(&t)
	done := true
	for _, g := range gs {
		j.keys(&t, g)
		j.Report.Effects[g.id] = g.effects
		done = done && g.done
	}
	switch {
	case !done:
		j.add(&t, "fails", Finding{Cause: Fails, Why: t.Reason, Hint: j.hint(hintFails, "")})
	case len(t.Effects) == 0 && t.State == nil:
		j.nothing(&t, "no effect was seen")
	default:
		return !slices.ContainsFunc(gs, func(g group) bool { return g.messages == 1 && !j.same(&t, g.effects) })
	}
	return false
}

// group are messages whose effects are counted together.
type group struct {
	id       string // of the first
	messages int
	done     bool
	effects  []Effect // those in a run
}

// groups are one for each message; one for all when some effects do not say whose they are.
func (t *Trial) groups() []group {
	inRuns := slices.DeleteFunc(slices.Clone(t.Effects), func(e Effect) bool { return e.Where != "" })
	if len(t.Samples) == 1 || slices.ContainsFunc(inRuns, func(e Effect) bool { return e.Message == "" }) {
		all := group{id: t.Samples[0].ID, messages: len(t.Samples), effects: inRuns}
		all.done = !slices.ContainsFunc(t.Samples, func(s Sample) bool { return !s.Done })
		return []group{all}
	}
	var gs []group
	for _, s := range t.Samples {
		mine := slices.DeleteFunc(slices.Clone(inRuns), func(e Effect) bool { return e.Message != s.ID })
		gs = append(gs, group{id: s.ID, messages: 1, done: s.Done, effects: mine})
	}
	return gs
}

// ofOne are the effects of one message, out of those of several that are alike.
func (g group) ofOne() (out []Effect) {
	if g.messages == 1 {
		return g.effects
	}
	for i := range g.effects {
		name := g.effects[i].Name
		if count(out, name).inEffect*g.messages < count(g.effects, name).inEffect {
			out = append(out, g.effects[i])
		}
	}
	return out
}

// outside finds effects that were done outside of a run.
func (j *Judge) outside(t *Trial) {
	for i := range t.Effects {
		e := &t.Effects[i]
		if e.Where == "" || e.Where == inProbe && e.Key != "" {
			continue
		}
		f := Finding{Cause: OutsideRun, Effect: e.Name}
		switch e.Where {
		case afterRun:
			f.Why = "the handler returned before it was done: when the process dies then, it is lost, and nobody repeats it"
			f.Hint = "wait for it in the handler (sync.WaitGroup, errgroup), and return its error"
		case inProbe:
			f.Why = "the probe did it: it is asked whenever a run is in doubt, and has to change nothing"
			f.Hint = "ask with a request that only reads, or give it a key"
		case beforeClaim:
			f.Why = "it was done before the key was claimed: every delivery does it, duplicates too"
			f.Hint = "move it behind the claim: into the handler, or into the function that semel.Do runs"
		default:
			f.Why = "it was done in " + e.Where + ", before the key is claimed: every delivery does it, duplicates too"
			f.Hint = "move it behind the claim, into the handler; what takes a message apart must change nothing"
		}
		j.add(t, "outside", f)
	}
}

// keys finds effects of a plain run that share a key: with each other, and with the other messages of the report. They
// are never made.
func (j *Judge) keys(t *Trial, g group) {
	for i := range g.effects {
		e := &g.effects[i]
		if e.Key == "" || e.natural || e.kind == emitted {
			continue
		}
		for k := range i {
			d := &g.effects[k]
			if d.Key != e.Key || d.Name == e.Name && !d.sameRun(e) {
				continue // another key, or another attempt at the same effect
			}
			j.out().Want++
			j.shared[e.Name] = j.shared[e.Name] || d.Name == e.Name
			j.add(t, "shared", Finding{
				Cause: SharedKey, Effect: e.Name, Place: i + 1,
				Why: fmt.Sprintf("%s (effect %d) has the key %s, too: a service that deduplicates takes this one for a repeat, and drops it",
					d.Name, k+1, short(e.Key)),
				Hint: j.hint(hintShared, e.Name),
			})
		}
		for id, es := range j.Report.Effects {
			if slices.ContainsFunc(es, func(o Effect) bool { return o.Key == e.Key && !o.natural }) {
				j.add(t, "shared", Finding{
					Cause: SharedKey, Effect: e.Name,
					Why:  fmt.Sprintf("message %q has the key %s, too: only the first message takes effect", id, short(e.Key)),
					Hint: j.hint(hintConstant, e.Name),
				})
			}
		}
	}
}

// sameRun reports whether two effects were done by one run.
func (e *Effect) sameRun(o *Effect) bool { return e.Process == o.Process && e.Run == o.Run }

// repeatable compares another plain run with the first.
func (j *Judge) repeatable(t Trial) bool {
	j.begin(&t)
	if t.End == Hanging {
		j.hangs(&t)
		return false
	}
	if !j.same(&t, t.Effects) {
		return false
	}
	if !reflect.DeepEqual(j.state, t.State) {
		j.add(&t, "repeatable", Finding{
			Cause: NotRepeatable,
			Why:   fmt.Sprintf("two runs in fresh worlds came to the states %v and %v", j.state, t.State),
			Hint:  "make the world fresh in Options.Reset, and leave times and random ids out of Options.State",
		})
		return false
	}
	return true
}

// same reports whether a plain run did what the first one did; concurrent effects may come in any order.
func (j *Judge) same(t *Trial, effects []Effect) bool {
	a, b := list(j.plain), list(effects)
	if slices.Equal(a, b) {
		return true
	}
	f := Finding{
		Cause: NotRepeatable,
		Why:   fmt.Sprintf("two runs in fresh worlds did [%s] and [%s]", strings.Join(a, ", "), strings.Join(b, ", ")),
		Hint:  "make what it does depend on the message alone; names and paths without random parts (those belong into bodies)",
	}
	if len(b) == 0 && j.Handles == GoHandler {
		f.Hint = "make the world fresh in Options.Reset: the second run found the record of the first"
	}
	j.add(t, "repeatable", f)
	return false
}

// list is the sorted names of the effects that were done in a run.
func list(es []Effect) []string {
	out := []string{}
	for i := range es {
		if es[i].Where == "" {
			out = append(out, es[i].Name)
		}
	}
	slices.Sort(out)
	return out
}
