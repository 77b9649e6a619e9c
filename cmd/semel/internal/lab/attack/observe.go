package attack

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/semeltest/verify"
)

// observed is what a trial left: what the judge gets, and what the notes are made of.
type observed struct {
	verify.Trial
	errs []string // of the runs, in their order; "" = it ended well
	took time.Duration
	// ends are the states of the messages' records, in lower case; a dead letter without a record has failed, too.
	ends map[string]string
}

const (
	completed = "completed"
	failed    = "failed"
)

func (s *trial) observe() (*observed, error) {
	o := &observed{ends: map[string]string{}}
	o.Schedule, o.Did, o.Struck = s.attack.Kind, s.attack.did, s.struck || !s.attack.faulty
	if s.HTTP != "" {
		o.Did = cmp.Or(s.attack.endpoint, o.Did)
	}
	if err := s.runs(o); err != nil {
		return nil, err
	}
	if err := s.recorded(o); err != nil {
		return nil, err
	}
	if err := s.effects(o); err != nil {
		return nil, err
	}
	for _, key := range s.keys {
		o.Samples = append(o.Samples, verify.Sample{ID: key, Done: o.ends[key] == completed})
	}
	for _, e := range slices.Backward(o.errs) {
		if e != "" {
			o.Reason = words.Printable(e, 600)
			break
		}
	}
	o.End, o.OtherKey, o.Limit = o.ends[s.keys[0]], s.keyFollowsID(), time.Since(s.began).Round(time.Second)
	switch {
	case s.attack.Kind != verify.Plain && s.unsettled:
		o.End = verify.Hanging
	case s.attack.Kind == verify.Plain && strings.Contains(o.Reason, "stopped"):
		o.End, o.Limit = verify.Hanging, s.timeout
	}
	return o, nil
}

// runs takes the runs and how they ended from what the workers wrote.
func (s *trial) runs(o *observed) error {
	lines, err := s.events()
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l.Kind == "ended" {
			o.Exits, o.errs = append(o.Exits, exitOf(l.Error)), append(o.errs, l.Error)
			o.took = max(o.took, time.Duration(l.ElapsedMS*float64(time.Millisecond)))
		}
	}
	if s.proxy != nil {
		o.Runs, _ = s.proxy.count()
	} else {
		o.Runs = len(s.shimRuns())
	}
	if s.attack.Kind == verify.KillBefore && !s.base.seen {
		o.Runs-- // that one never came to its first instruction
	}
	return nil
}

// effects takes the effects from the service and the journal.
func (s *trial) effects(o *observed) error {
	for i, e := range s.svc.got(s.scope) {
		if !e.applied && !e.repeat {
			continue
		}
		if s.attack.Kind != verify.Plain {
			e.Run = i + 1 // which run it was is not known; in a plain one it is the only one of its message
		}
		o.Effects = append(o.Effects, e.Effect)
	}
	lines, err := s.Journal.effects(s.ctx, s.texts)
	o.Effects = append(o.Effects, lines...)
	return err
}

// recorded takes endings from the records, and from dead letters of messages that have none.
func (s *trial) recorded(o *observed) error {
	for _, m := range s.sent {
		key := s.texts[m.ID]
		raw, err := s.rawKey(m)
		if err != nil {
			continue // a poisoned message may have lost its key
		}
		r, ok, err := s.store.Record(s.ctx, driver.Key{Consumer: queueName, Raw: raw})
		if err != nil {
			return fmt.Errorf("read the record: %w", err)
		}
		if !ok || o.ends[key] == completed {
			continue
		}
		o.ends[key] = strings.ToLower(r.State.String())
		o.Dropped = o.Dropped || o.ends[key] == completed && strings.HasPrefix(r.Reason, "dropped: ")
	}
	deadLetters, err := s.queue.DeadLetters(s.ctx, 0)
	if err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	for _, l := range deadLetters {
		if key := s.texts[l.Message.ID]; key != "" && o.ends[key] == "" {
			o.ends[key] = failed
		}
	}
	return nil
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

var (
	status = regexp.MustCompile(`handler (?:exited|responded) (\d+)`)
	said   = regexp.MustCompile(`handler said (\w+)`)
)

// exitOfOutcome is the exit status that means the same as an outcome of docs/pipe.md.
var exitOfOutcome = map[string]int{"retry": 1, "later": 75, "dead": 65, "busy": 75, "unavailable": 69}

// exitOf is the exit or HTTP status that a run ended with; -1 = a signal, a broken connection, or its worker stopped it.
func exitOf(err string) int {
	if err == "" {
		return 0
	}
	if m := said.FindStringSubmatch(err); m != nil {
		return exitOfOutcome[m[1]]
	}
	if m := status.FindStringSubmatch(err); m != nil {
		if code, err := strconv.Atoi(m[1]); err == nil {
			return code
		}
	}
	return -1
}

// notes are what broke nothing here, and may elsewhere.
func (s *trial) notes(o *observed) (out []string) {
	note := func(format string, args ...any) {
		out = append(out, s.attack.Name()+": "+fmt.Sprintf(format, args...))
	}
	kind, program := s.attack.Kind, s.HTTP == ""
	if len(o.Exits) > 0 && s.struck && program && (kind == verify.ResponseLost || kind == verify.ErrorAfter) {
		ended, unknown := fmt.Sprintf("exit %d", o.Exits[0]), "Exit 1"
		if s.Pipe {
			ended, unknown = map[int]string{75: "later", 65: "dead"}[o.Exits[0]], "Return retry"
		}
		switch o.Exits[0] {
		case 75:
			note("%s means that nothing was applied, but it was: with --takeover once or probe it would be repeated. "+
				"%s when the response does not say", ended, unknown)
		case 64, 65:
			note("%s means that nothing was applied, but it was. %s when the response does not say", ended, unknown)
		}
	}
	if kind != verify.Plain && o.ends[s.keys[0]] == failed && len(o.Effects) > 0 {
		text := "the message ended as a dead letter although its effect is there"
		if kind == verify.DuplicateRefused {
			text += ": a repeat that the service refuses (409) is done"
		}
		note("%s", text)
	}
	if kind == verify.Poison && o.ends[s.keys[0]] == failed && len(o.Effects) == 0 && o.Runs > 1 {
		word := "exit 65"
		switch {
		case s.Pipe:
			word = "the outcome dead"
		case !program:
			word = "return 422"
		}
		note("%s means that no attempt will help: the dead letter would be there after one run instead of %d", word, o.Runs)
	}
	if kind == verify.Plain && len(s.left) > 0 {
		note("the handler left processes behind when it had ended (%s): what they do is not waited for, and not repeated "+
			"when they fail. The attack killed them", words.Printable(s.left[0].name, 80))
	}
	return out
}
