package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/internal/words"
)

// demoName is the scenario with texts of its own: its report is for readers who do not know semel.
const demoName = "demo"

// scenarioView is one scenario in the report.
type scenarioView struct {
	verdict.Verdict
	Name           string
	Demo           bool
	Headline, Lead string
	// Many: it is one of many; Before and After are its neighbours.
	Many          bool
	Before, After string
	Views         []*runView
	Off, On       *runView
	Keys          []keyView
	KeysLeftOut   int
}

// runView is one run in the report.
type runView struct {
	verdict.RunTimeline
	Name  string // "Guard off"
	Big   string // the main figure
	What  string // what it counts
	Chart chart
}

// keyView is a key that something happened to, step by step in both runs.
type keyView struct {
	Key, Fate, Why string
	Damage         string
	Off, On        []verdict.Line
}

func viewOfScenario(v verdict.Verdict, drawn, timelines int) *scenarioView {
	sc := &scenarioView{Verdict: v, Name: v.Timeline.Scenario.Name, Demo: v.Timeline.Scenario.Name == demoName}
	end := 1.0
	for _, t := range v.Timeline.Runs {
		end = max(end, t.EndMS*1.01)
	}
	for _, t := range v.Timeline.Runs {
		view := &runView{RunTimeline: t, Name: "Guard " + string(t.Run.Guard), Chart: draw(t, end, drawn)}
		sc.Views = append(sc.Views, view)
		switch t.Run.Guard {
		case plan.GuardOff:
			sc.Off = view
		case plan.GuardOn:
			sc.On = view
		}
	}
	sc.mainFigure()
	sc.headline()
	sc.keys(timelines)
	return sc
}

// neighbours sets the names of the scenarios before and after this one.
func (sc *scenarioView) neighbours(all []verdict.Verdict, i int) {
	if i > 0 {
		sc.Before = all[i-1].Timeline.Scenario.Name
	}
	if i+1 < len(all) {
		sc.After = all[i+1].Timeline.Scenario.Name
	}
}

// mainFigure chooses the main figure of the scenario, the same one for both runs: money, lost keys, or versions.
func (sc *scenarioView) mainFigure() {
	most := func(f func(verdict.Run) int64) (n int64) {
		for _, v := range sc.Views {
			n = max(n, f(v.Run))
		}
		return n
	}
	money := most(func(r verdict.Run) int64 { return r.DamageMinor })
	lost := most(func(r verdict.Run) int64 { return int64(r.Lost) })
	back := most(func(r verdict.Run) int64 { return int64(r.Regressed) })
	standing := most(func(r verdict.Run) int64 { return int64(r.Standing) })
	for _, v := range sc.Views {
		r := v.Run
		switch {
		case money == 0 && lost > 0:
			v.Big, v.What = words.Count(r.Lost, "order", "orders"), "lost: neither done nor put aside"
			if r.Lost == 0 {
				v.Big, v.What = "none", "lost"
			}
		case money == 0 && back > 0:
			v.Big, v.What = words.Count(r.Regressed, "time", "times"), "an older version was applied over a newer one"
			if r.Regressed == 0 {
				v.Big, v.What = "never", "was an older version applied over a newer one"
			}
		case money == 0 && standing > 0:
			v.Big, v.What = words.Count(r.Standing, "step", "steps"), "of failed sagas not undone"
		case r.Duplicated > 0:
			v.Big = Money(r.DamageMinor, r.Currency)
			v.What = "charged too much, in " + words.Count(r.Duplicated, "extra charge", "extra charges")
		default:
			v.Big = Money(r.DamageMinor, r.Currency)
			v.What = "charged too much: no order was charged twice"
		}
	}
}

// headline sets the result in one sentence, and what was done in another.
func (sc *scenarioView) headline() {
	if !sc.Demo {
		sc.Headline, sc.Lead = sc.Timeline.Scenario.Title, outcome(sc.Verdict)
		return
	}
	s := sc.Timeline.Scenario
	switch {
	case sc.Off != nil && sc.On != nil && sc.OK():
		sc.Headline = fmt.Sprintf("%s charged more than once. With the guard, none.",
			words.Count(len(sc.Off.Doubles), "order was", "orders were"))
	case sc.On != nil && sc.On.Run.Verdict == plan.Broken:
		sc.Headline = "The guard did not hold."
	case sc.Off != nil && sc.Off.Run.Verdict == plan.Held:
		sc.Headline = "Nothing broke, even without the guard."
	default:
		sc.Headline = "Every order was charged exactly once."
	}
	sc.Lead = fmt.Sprintf("%s of %s each, sent to %s over one queue. The producer sends some of them again, "+
		"and workers are killed with SIGKILL in the middle of their work.",
		words.Count(s.Load.Orders, "order", "orders"), Money(s.Load.Amount, s.Load.Currency),
		words.Count(s.Workers.Count, "worker process", "worker processes"))
	if sc.Off != nil && sc.On != nil {
		sc.Lead += " Once with a plain consumer, once with semel: the same load, the same faults."
	}
}

// keys chooses the keys that have a timeline: what was doubled, by cause, then what was lost or set back.
func (sc *scenarioView) keys(limit int) {
	for _, cause := range verdict.AllCauses {
		for _, view := range sc.Views {
			for _, d := range view.Doubles {
				if d.Cause == cause {
					sc.key(keyView{
						Key: d.Key, Fate: fmt.Sprintf("charged %d×", d.Charges), Why: d.Why,
						Damage: "+" + Money(int64(d.Charges-1)*sc.Timeline.Scenario.Load.Amount, view.Run.Currency),
					}, limit)
				}
			}
		}
	}
	for _, view := range sc.Views {
		for _, key := range view.Lost {
			sc.key(keyView{Key: key, Fate: "lost", Why: "no effect, no dead letter, and nothing left in the queue"}, limit)
		}
		for _, key := range view.SetBack {
			sc.key(keyView{Key: key, Fate: "set back", Why: "an older version was applied over a newer one"}, limit)
		}
	}
}

func (sc *scenarioView) key(k keyView, limit int) {
	if slices.ContainsFunc(sc.Keys, func(o keyView) bool { return o.Key == k.Key }) {
		return
	}
	if len(sc.Keys) == limit {
		sc.KeysLeftOut++
		return
	}
	if sc.Off != nil {
		k.Off = bounded(sc.Off.About(k.Key))
	}
	if sc.On != nil {
		k.On = bounded(sc.On.About(k.Key))
	}
	sc.Keys = append(sc.Keys, k)
}

// maxLines bounds the timeline of one key.
const maxLines = 80

func bounded(lines []verdict.Line) []verdict.Line {
	if over := len(lines) - maxLines; over > 0 {
		cut := verdict.Line{AtMS: lines[maxLines].AtMS, Text: fmt.Sprintf("and %d steps more", over), Tone: "quiet"}
		return append(lines[:maxLines:maxLines], cut)
	}
	return lines
}

// causeTexts name the causes of second charges.
var causeTexts = map[verdict.DoubleCause]string{
	verdict.CauseKilled:   "killed between effect and ack",
	verdict.CauseFrozen:   "stood still past the visibility",
	verdict.CauseOverrun:  "held for longer than the visibility",
	verdict.CauseForgot:   "acked, and delivered again by the queue",
	verdict.CauseBatch:    "tried again because of another item",
	verdict.CauseUnknown:  "for reasons that the events do not show",
	verdict.CauseProducer: "sent twice by the producer",
}

// struckView is one strike that happened.
type struckView struct {
	AtMS        float64
	Worker, PID int
	What        string
	Key         string
	Then, Tone  string
}

// struckOf lists what struck a run, in order of time.
func struckOf(t verdict.RunTimeline) (out []struckView) {
	for _, k := range t.Kills {
		s := struckView{AtMS: k.AtMS, Worker: k.Worker, PID: k.PID, What: "SIGKILL " + stepText(k.Step), Key: k.Key}
		switch {
		case k.Key == "":
			s.Then = fmt.Sprintf("%d in flight", k.InFlight)
		case k.Charges > 1:
			s.Then, s.Tone = fmt.Sprintf("charged %d×", k.Charges), "bad"
		case k.Charges == 1:
			s.Then, s.Tone = "charged once", "good"
		default:
			s.Then, s.Tone = "not charged", "bad"
		}
		out = append(out, s)
	}
	for _, l := range t.Lanes {
		for _, p := range l.Processes {
			for _, f := range p.Frozen {
				out = append(out, struckView{AtMS: f.From, Worker: p.Worker, PID: p.PID, What: "frozen " + lasting(f, p.To)})
			}
			if p.Asked > 0 {
				out = append(out, struckView{AtMS: p.Asked, Worker: p.Worker, PID: p.PID, What: "replaced by a deployment",
					Then: "gone after " + verdict.Seconds(p.To-p.Asked)})
			}
		}
	}
	for _, o := range t.Outages {
		out = append(out, struckView{AtMS: o.From, What: "database out of reach " + lasting(o, t.EndMS)})
	}
	slices.SortStableFunc(out, func(a, b struckView) int { return cmp.Compare(a.AtMS, b.AtMS) })
	return out
}
