// Package verdict judges runs by their ledger, and makes timelines from their event logs.
package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// Run is the verdict of one run (contract section 5).
type Run struct {
	Scenario string     `json:"scenario"`
	Guard    plan.Guard `json:"guard"`
	// Sent counts distinct keys, Delivered deliveries by the queue, Executed handler runs, Effects rows of the ledger.
	Sent      int `json:"sent"`
	Delivered int `json:"delivered"`
	Executed  int `json:"executed"`
	Effects   int `json:"effects"`
	// Duplicated counts the effects beyond the first per key, Lost the keys that were sent and settled and have neither
	// effect nor dead letter nor parked record.
	Duplicated int `json:"duplicated"`
	Lost       int `json:"lost"`
	// Replayed counts the duplicates that were acked without running.
	Replayed int `json:"replayed"`
	Dead     int `json:"dead"`
	Parked   int `json:"parked"`
	// Kills counts the processes that ended by SIGKILL.
	Kills       int          `json:"kills"`
	DamageMinor int64        `json:"damage_minor"`
	Currency    string       `json:"currency"`
	Expected    plan.Outcome `json:"expected"`
	Verdict     plan.Outcome `json:"verdict"`
	Seed        uint64       `json:"seed"`
	ElapsedMS   int64        `json:"elapsed_ms"`

	// Design is the consumer, where it is not the demo's.
	Design plan.Design `json:"design,omitempty"`
	// Regressed counts the versions that were applied over a newer one.
	Regressed int `json:"regressed,omitempty"`
	// Standing counts the steps of failed sagas that were not undone, or undone too often.
	Standing int `json:"standing,omitempty"`
	// Busy counts deliveries that were put back because their key was at work elsewhere, TakenOver runs that followed one
	// of unknown outcome, Fenced results that came too late to count, Stale versions that came too late.
	Busy      int `json:"busy,omitempty"`
	TakenOver int `json:"taken_over,omitempty"`
	Fenced    int `json:"fenced,omitempty"`
	Stale     int `json:"stale,omitempty"`
	// Holders is the most handler runs of one key at the same time, in whichever processes. A killed process ends its runs.
	Holders int `json:"holders,omitempty"`
	// Causes counts the keys with a second effect by what brought it.
	Causes map[DoubleCause]int `json:"causes,omitempty"`
	// Transcript is the workers' log, line by line, for scenarios whose one message has a name.
	Transcript []string `json:"transcript,omitempty"`
	// Backlog is the most that waited or was in flight at once, Peak the most workers at once; Settled is 1 if the backlog
	// was worked off in less time than the load took to send. Only of scenarios that scale.
	Backlog int `json:"backlog,omitempty"`
	Peak    int `json:"workers_peak,omitempty"`
	Settled int `json:"settled,omitempty"`
	// Late is the longest time for which a process of the run could not go on.
	Late time.Duration `json:"-"`
	// Missed lists the figures that are not as expected.
	Missed []string `json:"missed,omitempty"`
}

// The overall verdicts.
const (
	AsExpected = "as_expected"
	Unexpected = "unexpected"
	// NotRun: the place supports none of the scenarios.
	NotRun = "not_run"
)

// Verdict is the outcome of a scenario over its runs. It marshals as contract section 5 says.
type Verdict struct {
	Runs    []Run  `json:"runs"`
	Verdict string `json:"verdict"`
	// NotRun names scenarios that the place does not support, and why: they have no result.
	NotRun []string `json:"not_run,omitempty"`
	// Report is the path of the HTML report, "" when none was written.
	Report string `json:"report,omitempty"`

	// Timeline is what the reports show beyond the figures.
	Timeline *Timeline `json:"-"`
	// Kept is the folder of the databases and events files, "" when it was removed.
	Kept string `json:"-"`
	// KeptIn are the URLs of what was kept: of each run the store's and then the queue's. nil where nothing can be kept.
	KeptIn []string `json:"-"`
}

// OK reports that every run showed what was expected of it: exit code 0, otherwise 3.
func (v Verdict) OK() bool { return v.Verdict == AsExpected }

// Add judges a run and adds it, with its timeline if there is a Timeline.
func (v *Verdict) Add(s plan.Scenario, p plan.Plan, res crew.Result) {
	run := judge(s, p, res)
	timeline := newTimeline(s, p, res, run)
	timeline.Lost = count(all(p), res.Effects, res.Aside.Keys).Lost
	run.Causes = Causes(timeline.Doubles)
	for _, one := range timeline.Transcript {
		run.Transcript = append(run.Transcript, one.Text)
	}
	timeline.Run = run
	v.Runs = append(v.Runs, run)
	if v.Timeline != nil {
		v.Timeline.Runs = append(v.Timeline.Runs, timeline)
	}
	v.Verdict = overall(v.Runs)
}

// all are the messages of a plan.
func all(p plan.Plan) []plan.Send { return append(p.Sends[:len(p.Sends):len(p.Sends)], p.Later...) }

// judge makes the verdict of one run. The ledger alone decides whether it is broken or held. The counts of what the workers
// did come from their events files.
func judge(s plan.Scenario, p plan.Plan, res crew.Result) Run {
	t := count(all(p), res.Effects, res.Aside.Keys)
	want := s.Expect[p.Guard]
	r := Run{
		Scenario: s.Name, Guard: p.Guard, Design: s.Designs[p.Guard], Sent: t.Sent, Effects: t.Effects,
		Duplicated: t.Duplicated, Lost: len(t.Lost), Regressed: t.Regressed, Standing: t.Standing, Dead: res.Aside.Dead, Parked: res.Aside.Parked,
		DamageMinor: t.Damage, Currency: s.Load.Currency, Expected: want.Verdict, Verdict: plan.Held, Seed: p.Seed,
		Kills: res.Kills, ElapsedMS: res.Elapsed.Milliseconds(), Late: eventlog.Late(res.Entries),
	}
	r.tally(res.Entries)
	if s.Workers.Scale.Backlog > 0 {
		r.scaled(res.Entries)
	}
	if t.Duplicated+len(t.Lost)+t.Strays+t.Regressed+t.Standing > 0 {
		r.Verdict = plan.Broken
	}
	for _, f := range want.Figures {
		n, ok := r.figure(f.Name)
		if !ok || n < f.Min || f.Max >= 0 && n > f.Max {
			r.Missed = append(r.Missed, fmt.Sprintf("%s is %d, expected %s", f.Name, n, f.Range()))
		}
	}
	return r
}

// tally counts what the workers logged.
func (r *Run) tally(entries []eventlog.Entry) {
	var held holders
	for _, e := range entries {
		held.add(e)
		r.Holders = max(r.Holders, held.of(e.Key))
		switch e.Kind {
		case "received":
			r.Delivered++
		case "started":
			r.Executed++
			if e.Takeover {
				r.TakenOver++
			}
		case "decided":
			switch e.Decision {
			case "replayed", "replayed_other_payload":
				r.Replayed++
			case "busy_deferred":
				r.Busy++
			case "fenced":
				r.Fenced++
			case "stale":
				r.Stale++
			}
		}
	}
}

// holders are the handler runs in progress.
type holders []eventlog.Entry

func (h *holders) add(e eventlog.Entry) {
	switch e.Kind {
	case "started":
		*h = append(*h, e)
	case "ended", "settled":
		*h = slices.DeleteFunc(*h, func(s eventlog.Entry) bool {
			return s.Worker == e.Worker && s.Life == e.Life && s.Message == e.Message
		})
	case eventlog.Exit:
		*h = slices.DeleteFunc(*h, func(s eventlog.Entry) bool { return s.Worker == e.Worker && s.Life == e.Life })
	}
}

// of counts those of a key.
func (h *holders) of(key string) (n int) {
	for _, s := range *h {
		if s.Key == key {
			n++
		}
	}
	return n
}

// scaled reads the samples of backlog and workers that the parent took while it sent the load, and whether the workers kept
// up: a backlog that grows as fast as one worker lets it takes longer to work off than the load took to send.
func (r *Run) scaled(entries []eventlog.Entry) {
	var first, last, done int64
	for _, e := range entries {
		switch e.Kind {
		case eventlog.Depth:
			r.Backlog, r.Peak = max(r.Backlog, e.Count), max(r.Peak, e.Workers)
		case eventlog.Sent:
			if first == 0 {
				first = e.At
			}
			first, last = min(first, e.At), max(last, e.At)
		case eventlog.Effect:
			done = max(done, e.At)
		}
	}
	if done > 0 && done-last < last-first {
		r.Settled = 1
	}
}

// figure is a number by its name in the JSON.
func (r *Run) figure(name string) (int, bool) {
	n, ok := map[string]int{
		"sent": r.Sent, "delivered": r.Delivered, "executed": r.Executed, "effects": r.Effects, "duplicated": r.Duplicated,
		"lost": r.Lost, "replayed": r.Replayed, "dead": r.Dead, "parked": r.Parked, "kills": r.Kills,
		"regressed": r.Regressed, "standing": r.Standing, "busy": r.Busy, "taken_over": r.TakenOver, "fenced": r.Fenced, "stale": r.Stale, "holders": r.Holders,
		"backlog": r.Backlog, "workers_peak": r.Peak, "settled": r.Settled,
	}[name]
	return n, ok
}

// overall compares every run with what was expected of it. No runs are no verdict.
func overall(runs []Run) string {
	for _, r := range runs {
		if r.Expected != "" && r.Verdict != r.Expected || len(r.Missed) > 0 {
			return Unexpected
		}
	}
	if len(runs) == 0 {
		return Unexpected
	}
	return AsExpected
}
