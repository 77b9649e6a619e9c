package verify

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// This file judges the plain runs, in which nothing goes wrong.

// outside finds effects that were done outside of a run.
func (j *judge) outside(w *world) int {
	n := 0
	for i := range w.effects {
		e := &w.effects[i]
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
		n += j.add(w, "outside", f)
	}
	return n
}

// keys finds effects of the plain run that share a key: here, and with the other messages of the report.
func (j *judge) keys(w *world, others map[string][]Effect) {
	for i := range j.plain {
		e := &j.plain[i]
		if e.Key == "" || e.natural || e.kind == emitted {
			continue
		}
		for k := range i {
			d := &j.plain[k]
			if d.Key != e.Key || d.Name == e.Name && (d.Process != e.Process || d.Run != e.Run) {
				continue // another key, or another attempt at the same effect
			}
			j.add(w, "shared", Finding{
				Cause: SharedKey, Effect: e.Name, Place: i + 1,
				Why: fmt.Sprintf("%s (effect %d) has the key %s, too: who deduplicates takes this one for a repetition, and drops it",
					d.Name, k+1, short(e.Key)),
				Hint: fmt.Sprintf("use one key for each step: a.EffectKey(%q); in a loop with the number of the item in the name",
					step(e.Name)),
			})
		}
		for id, es := range others {
			if slices.ContainsFunc(es, func(o Effect) bool { return o.Key == e.Key && !o.natural }) {
				j.add(w, "shared", Finding{
					Cause: SharedKey, Effect: e.Name,
					Why:  fmt.Sprintf("message %q has the key %s, too: only the first message takes effect", id, short(e.Key)),
					Hint: fmt.Sprintf("derive it from the message's key: a.EffectKey(%q)", step(e.Name)),
				})
			}
		}
	}
}

// shares reports that effects of that name have one key in one run of the plain schedule: what they say may differ.
func (j *judge) shares(name string) bool {
	for i := range j.plain {
		e := &j.plain[i]
		if e.Name == name && e.Key != "" && slices.ContainsFunc(j.plain[:i], func(d Effect) bool {
			return d.Name == e.Name && d.Key == e.Key && d.Process == e.Process && d.Run == e.Run
		}) {
			return true
		}
	}
	return false
}

// repeatable compares two plain runs; concurrent effects may come in any order.
func (j *judge) repeatable(w *world, again []Effect, state any) bool {
	a, b := list(j.plain), list(again)
	switch {
	case !slices.Equal(a, b):
		f := Finding{
			Cause: NotRepeatable,
			Why:   fmt.Sprintf("two runs in fresh worlds did [%s] and [%s]", strings.Join(a, ", "), strings.Join(b, ", ")),
			Hint:  "make what it does depend on the message alone; names and paths without random parts (those belong into bodies)",
		}
		if len(b) == 0 {
			f.Hint = "make the world fresh in Options.Reset: the second run found the record of the first"
		}
		j.add(w, "repeatable", f)
		return false
	case j.opts.State != nil && !reflect.DeepEqual(j.state, state):
		j.add(w, "repeatable", Finding{
			Cause: NotRepeatable,
			Why:   fmt.Sprintf("two runs in fresh worlds came to the states %v and %v", j.state, state),
			Hint:  "make the world fresh in Options.Reset, and leave times and random ids out of Options.State",
		})
		return false
	}
	return true
}

// list is the sorted names of effects.
func list(es []Effect) []string {
	out := make([]string, len(es))
	for i := range es {
		out[i] = es[i].Name
	}
	slices.Sort(out)
	return out
}
