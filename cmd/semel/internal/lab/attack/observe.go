package attack

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// ending is how a message ended.
type ending string

const (
	endDone       ending = "completed"
	endDropped    ending = "dropped"
	endDeadLetter ending = "dead letter"
	endParked     ending = "parked"
	endOpen       ending = "open" // not at its end
)

// exit is how a run of the handler ended, as its worker saw it.
type exit struct {
	code int // exit or HTTP status; -1 = a signal, a broken connection, or the worker stopped it
	text string
	took time.Duration
}

// observed is what a trial left.
type observed struct {
	keys       []string
	deliveries int
	runs       int
	exits      []exit
	effects    []effect
	journal    map[string]map[string]int
	endings    map[string]ending
	reasons    map[string]string
}

func (s *trial) observe() (*observed, error) {
	o := &observed{keys: s.keys, effects: s.svc.got(s.scope), endings: map[string]ending{}, reasons: map[string]string{}}
	var err error
	if o.journal, err = s.Journal.count(s.ctx, s.texts); err != nil {
		return nil, err
	}
	lines, err := s.events()
	if err != nil {
		return nil, err
	}
	for _, l := range lines {
		switch l.Kind {
		case "received":
			o.deliveries++
		case "ended":
			e := exitOf(l.Error)
			e.took = time.Duration(l.ElapsedMS * float64(time.Millisecond))
			o.exits = append(o.exits, e)
		case "decided":
			s.naiveEnding(o, l.MessageID, l.Decision, l.Reason)
		}
	}
	if s.proxy != nil {
		o.runs, _ = s.proxy.count()
	} else {
		o.runs = len(s.shimPIDs())
	}
	if s.guard == guardOn {
		return o, s.recorded(o)
	}
	return o, nil
}

// naiveEnding takes the ending of a message from what the naive consumer wrote: it has no records.
func (s *trial) naiveEnding(o *observed, id, decision, reason string) {
	key, ok := s.texts[id]
	if s.guard == guardOn || !ok {
		return
	}
	switch decision {
	case "executed":
		o.endings[key] = endDone
	case "dead_lettered":
		o.endings[key], o.reasons[key] = endDeadLetter, reason
	}
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
		if !ok || o.endings[key] == endDone {
			continue
		}
		o.reasons[key] = r.Reason
		switch {
		case r.State == driver.Completed && strings.HasPrefix(r.Reason, "dropped: "):
			o.endings[key] = endDropped
		case r.State == driver.Completed:
			o.endings[key] = endDone
		case r.State == driver.FailedState:
			o.endings[key] = endDeadLetter
		case r.State == driver.Uncertain:
			o.endings[key] = endParked
		default:
			o.endings[key] = endOpen
		}
	}
	deadLetters, err := s.queue.DeadLetters(s.ctx, 0)
	if err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	for _, l := range deadLetters {
		if key := s.texts[l.Message.ID]; key != "" && o.endings[key] == "" {
			o.endings[key], o.reasons[key] = endDeadLetter, l.Reason
		}
	}
	return nil
}

var (
	exited    = regexp.MustCompile(`handler exited (\d+)`)
	responded = regexp.MustCompile(`handler responded (\d+)`)
)

func exitOf(err string) exit {
	if err == "" {
		return exit{}
	}
	for _, re := range []*regexp.Regexp{exited, responded} {
		if m := re.FindStringSubmatch(err); m != nil {
			code, convErr := strconv.Atoi(m[1])
			if convErr == nil {
				return exit{code: code, text: err}
			}
		}
	}
	return exit{code: -1, text: err}
}

// totals counts the effects that happened, by kind.
func (o *observed) totals() map[string]int {
	out := map[string]int{}
	for _, e := range o.effects {
		if e.applied {
			out[e.kind]++
		}
	}
	for kind, keys := range o.journal {
		for _, n := range keys {
			out[kind] += n
		}
	}
	return out
}

// ofKey counts the effects of one message, by kind; ok = false: some do not say whose they are.
func (o *observed) ofKey(key string) (out map[string]int, ok bool) {
	out = map[string]int{}
	for _, e := range o.effects {
		if e.key == "" {
			return nil, false
		}
		if e.applied && e.key == key {
			out[e.kind]++
		}
	}
	for kind, keys := range o.journal {
		out[kind] += keys[key]
	}
	return out, true
}

// swallowed are the requests that repeat one of the same message. In a plain run, in which every message is delivered once
// and nothing fails, they are effects that are never made.
func (o *observed) swallowed() (out []effect) {
	for _, e := range o.effects {
		if e.swallowed && e.key != "" && e.first.key == e.key {
			out = append(out, e)
		}
	}
	return out
}

// baseline takes what one message does from a plain run.
func (o *observed) baseline() baseline {
	b := baseline{kinds: map[string]int{}, ok: true}
	for kind, n := range o.totals() {
		b.kinds[kind] = share(n, len(o.keys))
	}
	b.requests = share(len(o.effects), len(o.keys))
	for _, key := range o.keys {
		b.ok = b.ok && o.endings[key] == endDone
	}
	for _, e := range o.exits {
		b.took = max(b.took, e.took)
	}
	return b
}
