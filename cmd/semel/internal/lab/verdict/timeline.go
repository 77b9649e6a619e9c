package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// Timeline is what a report shows beyond the figures.
type Timeline struct {
	Scenario plan.Scenario
	Seed     uint64
	Repeat   string // the command line that makes the same schedule again
	Place    string // where queue, records and ledger were
	Runs     []RunTimeline
}

// RunTimeline is the timeline of one run.
type RunTimeline struct {
	Run     Run
	EndMS   float64
	Lanes   []*Lane
	Doubles []Double
	Kills   []Kill
	// Flow counts the deliveries by what became of them.
	Flow map[Fate]int
	// SharedKills is the number of planned kills that the unguarded run has too.
	SharedKills int
	// Lost are the keys without effect, dead letter or parked record, SetBack the keys with an older version over a newer one.
	Lost, SetBack []string
	// Outages are the times in which the database was out of reach.
	Outages []Frozen
	// Transcript is the workers' log, for scenarios whose one message has a name; nil for the others. Refused counts the
	// runs in it whose record was refused by its condition: the work was done, and the log has no line for it.
	Transcript []LogLine
	Refused    int

	history *history
}

// DoubleCause says why an order was charged again.
type DoubleCause string

// The causes, from the one that semel's own crash window explains to the one that is the producer's.
const (
	CauseKilled   DoubleCause = "killed"   // its worker was killed between effect and ack
	CauseOverrun  DoubleCause = "overrun"  // it was in flight for longer than its visibility
	CauseFrozen   DoubleCause = "frozen"   // its worker was frozen past the visibility
	CauseForgot   DoubleCause = "forgot"   // it was acked, and the queue delivered it again
	CauseProducer DoubleCause = "producer" // the producer sent it twice
	// CauseBatch: its message was tried again because of another item in it.
	CauseBatch   DoubleCause = "batch"
	CauseUnknown DoubleCause = "unknown"
)

// AllCauses in the order in which they are reported.
var AllCauses = []DoubleCause{CauseKilled, CauseFrozen, CauseOverrun, CauseForgot, CauseBatch, CauseUnknown, CauseProducer}

// Causes counts doubled keys by cause; nil when there are none.
func Causes(ds []Double) map[DoubleCause]int {
	if len(ds) == 0 {
		return nil
	}
	n := map[DoubleCause]int{}
	for _, d := range ds {
		n[d.Cause]++
	}
	return n
}

// Double is an order that was charged more than once.
type Double struct {
	Key     string
	Charges int
	Cause   DoubleCause // of the first extra charge
	Why     string
}

// Kill is one kill that happened.
type Kill struct {
	AtMS              float64
	Worker, Life, PID int
	Step              plan.Step
	Key               string
	// InFlight is the number of deliveries that the process held; Charges how often the order at the step is charged in
	// the end.
	InFlight, Charges int
}

// Fate is what became of a delivery.
type Fate string

// The fates of deliveries. Doubled: charged again, or an older version over a newer one. Cut: the process was killed.
const (
	Charged  Fate = "charge"
	Doubled  Fate = "double"
	Skipped  Fate = "skip"
	Deferred Fate = "defer"
	Cut      Fate = "cut"
	Other    Fate = "other"
)

// Fate is what became of the delivery.
func (s *Span) Fate() Fate {
	switch {
	case s.Charge > 1 && (s.Version == 0 || s.Back):
		return Doubled
	case s.Charge > 0:
		return Charged
	case s.Cut:
		return Cut
	case strings.HasPrefix(s.Decision, "replayed"):
		return Skipped
	case s.Decision == "busy_deferred", s.Action == "defer":
		return Deferred
	}
	return Other
}

// newTimeline makes the timeline of a run.
func newTimeline(s plan.Scenario, p plan.Plan, res crew.Result, run Run) RunTimeline {
	h := readHistory(res)
	t := RunTimeline{
		Run: run, EndMS: h.end, Lanes: h.lanes, Outages: h.outages, Transcript: transcript(s, p, res),
		Refused: refused(res.Entries), Flow: map[Fate]int{}, history: h,
	}
	for _, k := range p.Strikes {
		if !s.GuardOnly(k.ID) {
			t.SharedKills++
		}
	}
	charges := map[string][]place.Effect{}
	var order []string
	for _, e := range res.Effects {
		if len(charges[e.Key]) == 0 {
			order = append(order, e.Key)
		}
		charges[e.Key] = append(charges[e.Key], e)
	}
	for _, key := range order {
		if setBack(charges[key]) {
			t.SetBack = append(t.SetBack, key)
		}
		if n := len(charges[key]); n > 1 && charges[key][0].Version == 0 {
			cause, why := h.why(key, s.Workers.Visibility)
			t.Doubles = append(t.Doubles, Double{Key: key, Charges: n, Cause: cause, Why: why})
		}
	}
	for _, l := range h.lanes {
		for _, p := range l.Processes {
			if p.Killed {
				t.Kills = append(t.Kills, Kill{
					AtMS: p.To, Worker: p.Worker, Life: p.Life, PID: p.PID, Step: p.Step, Key: p.Key,
					InFlight: inFlight(p), Charges: len(charges[p.Key]),
				})
			}
		}
	}
	slices.SortFunc(t.Kills, func(a, b Kill) int { return int(a.AtMS*1000) - int(b.AtMS*1000) })
	for _, s := range h.spans {
		t.Flow[s.Fate()]++
	}
	return t
}

// setBack reports whether a version was applied that was not newer than the last.
func setBack(effects []place.Effect) bool {
	for i := 1; i < len(effects); i++ {
		if effects[i].Version > 0 && effects[i].Version <= effects[i-1].Version {
			return true
		}
	}
	return false
}

func inFlight(p *Process) (n int) {
	for _, s := range p.Spans {
		if s.Cut {
			n++
		}
	}
	return n
}

// why explains the extra charges of an order; the cause is that of the first one.
func (h *history) why(key string, visibility time.Duration) (DoubleCause, string) {
	var charged []*Span
	if orderOf(key) != key {
		return CauseBatch, "a bad item caused a retry of the whole message, and of the good ones with it"
	}
	for _, s := range h.byKey[key] {
		if s.Charge > 0 {
			charged = append(charged, s)
		}
	}
	slices.SortStableFunc(charged, func(a, b *Span) int { return a.Charge - b.Charge })
	if len(charged) < 2 {
		return CauseUnknown, "its events are missing"
	}
	cause, reasons := CauseUnknown, []string{}
	for i := range charged[1:] {
		c, reason := h.again(charged[:i+1], charged[i+1], visibility)
		if i == 0 {
			cause = c
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return cause, strings.Join(reasons, "; ")
}

// again explains one extra charge by the charges before it.
func (h *history) again(before []*Span, extra *Span, visibility time.Duration) (DoubleCause, string) {
	for _, first := range before {
		if first.Message != extra.Message {
			continue
		}
		if first.Cut {
			return CauseKilled, fmt.Sprintf("worker %d was killed after the effect, before the ack", first.Worker)
		}
		// Two workers had the same delivery: the older one held it past its visibility.
		old := first
		if extra.From < first.From {
			old = extra
		}
		if frozen := frozenFor(old, h.frozen[old.PID]); frozen > 0 {
			return CauseFrozen, fmt.Sprintf("worker %d was frozen for %s with it in flight, the visibility is %s",
				old.Worker, Seconds(frozen), visibility)
		}
		if old.Settled && old.Outcome == "applied" && old.To < extra.From {
			return CauseForgot, fmt.Sprintf("worker %d acked it, and the queue delivered it again", old.Worker)
		}
		if took := old.RunTo - old.RunFrom; took > float64(visibility.Milliseconds()) {
			return CauseOverrun, fmt.Sprintf("worker %d took %s, the visibility is %s", old.Worker, Seconds(took), visibility)
		}
		return CauseOverrun, fmt.Sprintf("it waited in the buffer of worker %d for %s, the visibility is %s",
			old.Worker, Seconds(old.RunFrom-old.From), visibility)
	}
	return CauseProducer, fmt.Sprintf("the producer sent it twice (%s, %s)", before[0].Message, extra.Message)
}

// frozenFor is for how long the process was stopped while it had the delivery in flight.
func frozenFor(s *Span, frozen []Frozen) (ms float64) {
	for _, f := range frozen {
		to := f.To
		if to < 0 {
			to = s.To
		}
		ms += max(0, min(to, s.To)-max(f.From, s.From))
	}
	return ms
}

// Seconds writes milliseconds for a person.
func Seconds(ms float64) string { return fmt.Sprintf("%.1f s", ms/1000) }

// Line is one line of an order's timeline.
type Line struct {
	AtMS float64
	Text string
	Tone string // "", "good", "bad", "quiet"
}

// Seconds is the time from the start of the run.
func (l Line) Seconds() float64 { return l.AtMS / 1000 }

// About is what happened to one order, or to the order of an item, in order of time.
func (t *RunTimeline) About(key string) []Line {
	var out []Line
	order := orderOf(key)
	for _, m := range t.history.sent[order] {
		text := "the producer sends " + m.Message
		if m.Copy > 1 {
			text = "the producer, not having seen the response, sends it again as " + m.Message
		}
		out = append(out, Line{AtMS: m.AtMS, Text: text, Tone: "quiet"})
	}
	for _, s := range t.history.byKey[order] {
		out = append(out, s.Lines()...)
	}
	slices.SortStableFunc(out, func(a, b Line) int { return int(a.AtMS*1000) - int(b.AtMS*1000) })
	return out
}

// Lines are what happened to the delivery.
func (s *Span) Lines() []Line {
	who := fmt.Sprintf("worker %d (pid %d)", s.Worker, s.PID)
	what := who + " receives " + s.Message
	if s.Count > 1 {
		what += fmt.Sprintf(", delivery %d", s.Count)
	}
	out := []Line{{AtMS: s.From, Text: what}}
	if s.Ran() {
		text := who + " starts the handler"
		if s.Takeover {
			text = who + " takes the run over and starts the handler"
		}
		out = append(out, Line{AtMS: s.RunFrom, Text: text})
	}
	end := s.RunEnd()
	switch {
	case s.Version > 0 && s.Back:
		out = append(out, Line{AtMS: end, Text: fmt.Sprintf("version %d is applied over a newer one", s.Version), Tone: "bad"})
	case s.Version > 0:
		out = append(out, Line{AtMS: end, Text: fmt.Sprintf("version %d is applied", s.Version), Tone: "good"})
	case s.Charge == 1:
		out = append(out, Line{AtMS: end, Text: "charged", Tone: "good"})
	case s.Charge > 1:
		out = append(out, Line{AtMS: end, Text: fmt.Sprintf("charged again: charge %d", s.Charge), Tone: "bad"})
	}
	if s.Trouble != "" && s.Charge == 0 {
		out = append(out, Line{AtMS: end, Text: "the handler fails: " + s.Trouble, Tone: "bad"})
	}
	switch n := len(s.Beats); n {
	case 0:
	case 1:
		out = append(out, Line{AtMS: s.Beats[0], Text: "a heartbeat keeps it invisible to others", Tone: "quiet"})
	default:
		out = append(out, Line{AtMS: s.Beats[0], Text: fmt.Sprintf("%d heartbeats keep it invisible to others", n), Tone: "quiet"})
	}
	if last, ok := s.last(who); ok {
		out = append(out, last)
	}
	return out
}

// last is the line about how the delivery ended.
func (s *Span) last(who string) (Line, bool) {
	l := Line{AtMS: s.To, Tone: "quiet"}
	switch {
	case s.Cut && s.Charge > 0:
		l.Text, l.Tone = who+" is killed before the ack is seen", "bad"
	case s.Cut:
		l.Text, l.Tone = who+" is killed", "bad"
	case strings.HasPrefix(s.Decision, "replayed") && s.Reason != "":
		l.Text = "skipped and acked: " + s.Reason
	case strings.HasPrefix(s.Decision, "replayed"):
		l.Text, l.Tone = "duplicate skipped and acked: "+causeText(s.Cause), "good"
	case s.Decision == "busy_deferred":
		l.Text = "put back: another worker is at it"
	case s.Decision == "fenced":
		l.Text, l.Tone = who+" comes too late: it lost the lease, and writes nothing", "good"
	case s.Decision == "stale":
		l.Text, l.Tone = "stale: a newer version is applied already", "good"
	case s.Decision == "dead_lettered":
		l.Text = "put aside as a dead letter, with its reason"
	case s.Action == "ack" && s.Outcome == "lost":
		l.Text, l.Tone = who+" acks too late: the queue has delivered it again", "bad"
	case s.Action == "ack":
		l.Text = "acked"
	case s.Action != "":
		l.Text = "returned (" + s.Action + ")"
	default:
		return l, false
	}
	return l, true
}

func causeText(cause string) string {
	switch cause {
	case "redelivery":
		return "the queue delivered it again, and it is done"
	case "producer_duplicate":
		return "the producer sent it twice, and it is done"
	case "raced_local":
		return "a local duplicate was at work in the same process, and is done"
	}
	return "it is done"
}
