package attack

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// whyDoubled finds the reason for extra effects, and a hint.
func (s *trial) whyDoubled(o *observed, x odd) (why, hint string) {
	if strings.HasPrefix(x.kind, "journal") {
		why = fmt.Sprintf("the %s has %d lines instead of %d: the handler ran %d times, and the later runs did not know", x.kind,
			x.n,
			x.want, o.runs)
		hint = "make the effect key unique where it is written (SEMEL_EFFECT_KEY: INSERT … ON CONFLICT DO NOTHING), or have " +
			"semel " +
			"commit the SQL with its record (--effects sql), or have it ask first (--takeover probe --probe CMD)"
		return why, s.inPlaceOf(hint)
	}
	bare, named := 0, map[string]bool{}
	for _, e := range o.effects {
		switch {
		case !e.applied || e.kind != x.kind || x.key != "" && e.key != x.key:
		case e.idem == "":
			bare++
		default:
			named[e.idem] = true
		}
	}
	if bare > 0 {
		why = fmt.Sprintf("%s happened %d times instead of %d, without %s: the service cannot tell a repeat from a new one",
			x.kind, x.n,
			x.want, s.KeyHeader)
	} else {
		why = fmt.Sprintf("%s happened %d times instead of %d, under %d different values of %s", x.kind, x.n, x.want, len(named),
			s.KeyHeader)
	}
	switch {
	case s.keyFollowsID():
		why += fmt.Sprintf("; with --key %s the two copies are two messages to semel", s.Key)
		hint = "choose a key that the producer repeats, as --key json:/order_id, or have the producer send the header " +
			"idempotency-key"
		return why, hint
	case bare > 0 && s.HTTP != "":
		hint = "pass the request's Idempotency-Key on, as the header " + s.KeyHeader
	case bare > 0:
		hint = "send SEMEL_EFFECT_KEY as the header " + s.KeyHeader
	case s.HTTP != "":
		hint = "derive the key from the request's Idempotency-Key alone"
	default:
		hint = "derive the key from SEMEL_EFFECT_KEY alone"
	}
	hint += ": it is the same in every attempt (nothing of the attempt, the message id, the time or chance may go into it; " +
		"several " +
		"effects: a name for each, docs/worker.md). Where the service takes no such key: --takeover probe --probe CMD, or --takeover once"
	return why, s.inPlaceOf(hint)
}

// inPlaceOf is the hint if the guard is on. If it is off, there is no effect key.
func (s *trial) inPlaceOf(hint string) string {
	if s.guard == guardOff {
		return "let semel work call the handler (and see its own findings)"
	}
	return hint
}

// keyFollowsID: the copies of one message have several keys to semel.
func (s *trial) keyFollowsID() bool {
	raws := map[string]string{}
	for _, m := range s.sent {
		key := s.texts[m.ID]
		raw, err := s.rawKey(m)
		if err != nil {
			continue
		}
		if was, ok := raws[key]; ok && was != raw {
			return true
		}
		raws[key] = raw
	}
	return false
}

// whyLost finds the reason for a missing effect, and a hint.
func (s *trial) whyLost(o *observed, x odd) (why, hint string) {
	for _, e := range o.effects {
		if e.repeat && e.first.key != "" && e.first.key != e.key && e.kind == x.kind {
			return fmt.Sprintf("%s had the %s of another message, and got the response of that one", x.kind, s.KeyHeader),
				s.inPlaceOf("derive the key from the message: SEMEL_EFFECT_KEY is another one for each message")
		}
	}
	why = fmt.Sprintf("%s happened %d times instead of %d, and the message is done", x.kind, x.n, x.want)
	zero := "exits 0"
	if s.HTTP != "" {
		zero = "returns 2xx"
	}
	for key, end := range o.endings {
		if end == endDropped && (x.key == "" || key == x.key) {
			return why + ": the handler exited 99, which drops a message for good",
				"exit 75 when nothing was applied, and 1 when the outcome is unknown; 99 only for messages that can be dropped"
		}
	}
	switch {
	case s.attack.name == "deploy":
		why += ": it was asked to stop, and reported success"
		hint = "when it is stopped before its effect is confirmed it must not exit 0: let SIGTERM end it, or exit 75 (nothing " +
			"was applied)"
	case s.attack.service && s.struck:
		why += ": the handler " + zero + " although its request failed"
		hint = "check the response (curl --fail-with-body, raise_for_status()): exit 75 when nothing was applied, 1 when the outcome " +
			"is unknown"
		if s.HTTP != "" {
			hint = "check the response: 503 when nothing was applied, 500 when the outcome is unknown"
		}
	case s.struck:
		why += fmt.Sprintf(": a run was killed, and a later one %s without it", zero)
		hint = "do not mark a message as done before its effect: semel's record, which is written after it, does that for you"
	default:
		hint = "find out why a run ends well without its effect"
	}
	return why, hint
}

// whyHeld is the reason why nothing broke.
func (s *trial) whyHeld(o *observed, res *Result) string {
	switch {
	case o.endings[s.keys[0]] == endParked:
		return "the key was parked: a person decides (semel records resolve)"
	case res.Repeats > 0:
		return fmt.Sprintf("%s, and the service knew the repeats by their key", output.Count(o.runs, "run", "runs"))
	case o.runs <= len(s.keys):
		return "one run for each message"
	}
	return fmt.Sprintf("%d runs, and the effect happened in one of them", o.runs)
}

// addNotes adds what broke nothing here, and may elsewhere.
func (s *trial) addNotes(o *observed, res *Result) {
	if len(o.exits) > 0 && s.struck && (s.attack.name == "response-lost" || s.attack.name == "error-after") {
		switch code := o.exits[0].code; {
		case code == 75 && s.HTTP == "":
			res.Notes = append(res.Notes, "exit 75 means that nothing was applied, but it was: with --takeover once or probe it "+
				"would be "+
				"repeated. Exit 1 when the response does not say")
		case (code == 64 || code == 65) && s.HTTP == "":
			res.Notes = append(res.Notes, fmt.Sprintf("exit %d means that nothing was applied, but it was: exit 1 when the response "+
				"does not say", code))
		}
	}
	for _, key := range s.keys {
		if got, ok := o.ofKey(key); ok && o.endings[key] == endDeadLetter && sum(got) > 0 && s.attack.name != plain {
			note := "the message ended as a dead letter although its effect is there"
			if s.attack.name == "duplicate-refused" {
				note += ": a repeat that the service refuses (409) is done"
			}
			res.Notes = append(res.Notes, note)
			break
		}
	}
	for _, e := range o.effects {
		if e.repeat && !e.natural && e.first.body != e.body && s.attack.name != plain {
			res.Notes = append(res.Notes, "a repeat had another body under the same "+s.KeyHeader+
				": many services refuse that (422). Make the body from the message alone")
			break
		}
	}
	s.noteShared(o, res)
	if len(s.left) > 0 && s.attack.name == plain {
		res.Notes = append(res.Notes, fmt.Sprintf("the handler left processes behind when it had ended (%s): what they do is "+
			"not waited for, "+
			"and not repeated when they fail. The attack killed them", shown(s.left[0].name)))
	}
}

// whySwallowed explains an effect that is never made, because another one of the same run has its key.
func (s *trial) whySwallowed(o *observed) (why, hint string) {
	all := o.swallowed()
	times := 0
	for _, e := range o.effects {
		if e.key == all[0].key && e.kind == all[0].kind && e.idem == all[0].idem {
			times++
		}
	}
	return fmt.Sprintf("%s was requested %d times in one run under one %s: the service takes all but the first for repeats, "+
		"and they are never made", all[0].kind, times, s.KeyHeader), s.inPlaceOf(s.ownKey(effectName(all[0].kind) + "/1"))
}

// ownKey describes how an effect gets a key of its own.
func (s *trial) ownKey(name string) string {
	how := `key=$(printf %s "$SEMEL_EFFECT_KEY/` + name + `" | sha256sum | cut -c1-64)`
	if s.HTTP != "" {
		how = "the SHA-256, in hex, of the request's Idempotency-Key followed by /" + name
	}
	if first, ok := strings.CutSuffix(name, "/1"); ok {
		how += ", with " + first + "/2 for the next"
	}
	return "give each effect a name, and a key of its own: " + how + `. In Go that is a.EffectKey("` + name +
		`"); docs/worker.md has other languages`
}

// effectName is a name for a kind of effect: the last word of its path.
func effectName(kind string) string {
	words := strings.FieldsFunc(kind, func(r rune) bool { return strings.ContainsRune(" /{}", r) })
	for _, w := range slices.Backward(words) {
		if w != "key" && w != "id" && plainName.MatchString(w) {
			return w
		}
	}
	return "charge"
}

var plainName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,39}$`)

// noteShared adds a note about two requests of one plain run with one key at different paths. This service treats them as
// different.
func (s *trial) noteShared(o *observed, res *Result) {
	if s.attack.name != plain {
		return
	}
	kinds := map[string]string{}
	for _, e := range o.effects {
		if e.idem == "" || e.natural {
			continue
		}
		if was, ok := kinds[e.idem]; ok && was != e.kind {
			res.Notes = append(res.Notes, fmt.Sprintf("%s and %s have one %s: a service that compares the key alone refuses the "+
				"second, or takes it for a repeat. If they go to one service, %s", was, e.kind, s.KeyHeader, s.ownKey(effectName(e.kind))))
			return
		}
		kinds[e.idem] = e.kind
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func shown(command string) string {
	if r := []rune(command); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return command
}
