package attack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// printable makes what a handler wrote safe for a terminal, and short.
func printable(s string) string { return output.Printable(s, 600) }

// odd is one kind of effect whose number is not what it should be.
type odd struct {
	key, kind string // key "": of all messages together
	n, want   int
}

// judge gives the verdict of a trial.
func (s *trial) judge(o *observed) Result {
	b := s.base[s.guard]
	w := s.attack.words(s.HTTP != "")
	res := Result{
		Attack: s.attack.name, Guard: s.guard, Title: w.title, Did: w.did, Messages: len(s.keys),
		Deliveries: o.deliveries, Runs: o.runs, Exits: []int{},
	}
	for _, e := range o.exits {
		res.Exits = append(res.Exits, e.code)
	}
	for _, e := range o.effects {
		switch {
		case e.repeat:
			res.Repeats++
		case e.applied && e.idem != "":
			res.WithKey++
		case e.applied:
			res.WithoutKey++
		}
	}
	for _, keys := range o.journal {
		for _, n := range keys {
			res.Journal += n
		}
	}
	res.Effects = res.WithKey + res.WithoutKey + res.Journal
	for _, n := range b.kinds {
		res.Expected += n * len(s.keys)
	}
	if s.attack.name == plain {
		res.Expected += len(o.swallowed())
	}
	switch {
	case s.attack.name == plain && !b.ok:
		s.failedPlainly(o, &res)
	case len(b.kinds) == 0:
		s.blind(o, &res)
	case s.attack.name == "poison":
		s.judgePoison(o, &res)
	default:
		s.judgeCounts(o, &res)
	}
	s.addNotes(o, &res)
	return res
}

// judgeCounts compares the effects with those of the plain run.
func (s *trial) judgeCounts(o *observed, res *Result) {
	more, fewer := s.odds(o)
	switch {
	case len(more) > 0:
		res.Verdict = Doubled
		res.Why, res.Hint = s.whyDoubled(o, more[0])
	case s.attack.name == plain && len(o.swallowed()) > 0:
		res.Verdict = Lost
		res.Why, res.Hint = s.whySwallowed(o)
	case len(fewer) > 0:
		res.Verdict = Lost
		res.Why, res.Hint = s.whyLost(o, fewer[0])
	case s.unsettled:
		res.Verdict = Unknown
		res.Why = "the message did not come to its end in time" + lastError(o)
	case s.attack.faulty && !s.struck:
		res.Verdict = Unknown
		res.Why = "the handler came to its end before the fault could strike" + lastError(o)
	default:
		res.Verdict, res.Why = Held, s.whyHeld(o, res)
	}
}

// odds lists the kinds of effects that happened too often, and those that are missing although the message is done.
func (s *trial) odds(o *observed) (more, fewer []odd) {
	want := s.base[s.guard].kinds
	kinds := make([]string, 0, len(want))
	for kind := range want {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	look := func(key string, got map[string]int, messages int, done bool) {
		for _, kind := range kinds {
			x := odd{key: key, kind: kind, n: got[kind], want: want[kind] * messages}
			switch {
			case x.n > x.want:
				more = append(more, x)
			case x.n < x.want && done:
				fewer = append(fewer, x)
			}
		}
	}
	all := true
	for _, key := range o.keys {
		done := o.endings[key] == endDone || o.endings[key] == endDropped
		all = all && done
		got, ok := o.ofKey(key)
		if !ok {
			continue
		}
		look(key, got, 1, done)
	}
	if _, ok := o.ofKey(o.keys[0]); !ok {
		look("", o.totals(), len(o.keys), all)
	}
	return more, fewer
}

// failedPlainly is the verdict when not even the plain run succeeds.
func (s *trial) failedPlainly(o *observed, res *Result) {
	res.Verdict = Unknown
	res.Why = "the handler does not succeed with the sample message, even when nothing goes wrong" + lastError(o)
	res.Hint = "give it a message that it takes (--body FILE with {key}, --header), and what it needs (--env NAME=VALUE, " +
		"{url} is the " +
		"service)"
	for _, e := range o.exits {
		if strings.Contains(e.text, "stopped") {
			res.Why = fmt.Sprintf("the handler did not end within %s (--timeout), even when nothing goes wrong; it was stopped",
				s.timeout)
			res.Hint = "give it more time (--timeout 1m), or find out what it waits for"
		}
	}
}

// blind judges by the number of runs: effects were not seen.
func (s *trial) blind(o *observed, res *Result) {
	runs := o.runs
	if s.attack.name == "kill-before" {
		runs-- // that one never came to its first instruction
	}
	switch {
	case s.attack.name == plain:
		res.Verdict = Unknown
		res.Why = "the handler ended well, and no effect was seen: it did not call the service at " + URLVariable
		if s.HTTP != "" {
			res.Why = "the handler responded 2xx, and no effect was seen: it did not call the service at " + s.svc.url
		}
		if s.Journal.Place != "" {
			res.Why += ", and the journal has nothing of it"
		}
		res.Hint = "have it POST its effects to that URL, or give your own variable: --env PAYMENTS_URL={url}; or count what it " +
			"writes: " +
			"--effects FILE|URL. Without that only its runs can be counted"
		if s.HTTP != "" {
			res.Hint = "start it with the URL of the service (--listen 127.0.0.1:9099 makes it a fixed one), or --effects FILE|URL"
		}
	case s.attack.name == "poison":
		res.Verdict, res.Why = Unknown, "no effect can be seen"+lastError(o)
	case s.unsettled:
		res.Verdict, res.Why = Unknown, "the message did not come to its end in time"+lastError(o)
	case runs <= len(o.keys):
		res.Verdict = Held
		res.Why = "it ran once for each message: whatever it does happened once at most"
	default:
		res.Verdict = Unknown
		res.Why = fmt.Sprintf("it ran %d times, and its effects cannot be seen", o.runs)
	}
}

// judgePoison judges the end of a message that no handler can do.
func (s *trial) judgePoison(o *observed, res *Result) {
	res.Expected = 0
	key := s.keys[0]
	switch end := o.endings[key]; {
	case res.Effects > 0:
		more, _ := s.odds(o)
		if res.Verdict, res.Why = Held, "the handler had its effect all the same: it does not look at what was "+
			"broken"; len(more) > 0 {
			res.Verdict = Doubled
			res.Why, res.Hint = s.whyDoubled(o, more[0])
		}
		res.Expected = len(o.effects)
	case s.unsettled:
		res.Verdict, res.Why = Unknown, "the message did not come to its end in time"+lastError(o)
	case end == endDone:
		res.Verdict = Lost
		res.Why = "the handler reported success, and nothing happened: the message is gone without a trace"
		res.Hint = "exit 65 when a message cannot be handled: it becomes a dead letter, with the last line of stderr as its reason"
		if s.HTTP != "" {
			res.Hint = "return 400 or 422 when a message cannot be handled: it becomes a dead letter, with the body as its reason"
		}
	case s.guard == guardOff:
		res.Verdict, res.Why = Held, fmt.Sprintf("the consumer gave up after %s", output.Count(o.runs, "run", "runs"))
	case o.runs > 1:
		res.Verdict, res.Why = Held, fmt.Sprintf("it became a dead letter after %d runs", o.runs)
		word := "exit 65"
		if s.HTTP != "" {
			word = "return 422"
		}
		res.Notes = append(res.Notes, fmt.Sprintf("%s means that no attempt will help: the dead letter would be there after one run "+
			"instead of %d",
			word, o.runs))
	default:
		res.Verdict, res.Why = Held, "it became a dead letter at once"
	}
}

// lastError is the error of the last failed run.
func lastError(o *observed) string {
	for _, e := range slices.Backward(o.exits) {
		if e.text != "" {
			return ": " + e.text
		}
	}
	return ""
}
