package lab

// Run is the verdict of one run (contract section 5).
type Run struct {
	Scenario string `json:"scenario"`
	Guard    Guard  `json:"guard"`
	// Sent counts distinct keys, Delivered hand-offs by the queue, Executed handler runs, Effects rows of the ledger.
	Sent      int `json:"sent"`
	Delivered int `json:"delivered"`
	Executed  int `json:"executed"`
	Effects   int `json:"effects"`
	// Duplicated counts the effects beyond the first per key, Lost the keys that were sent and settled and have neither
	// effect nor letter nor parked record.
	Duplicated int `json:"duplicated"`
	Lost       int `json:"lost"`
	// Replayed counts the duplicates that were acked without running.
	Replayed int `json:"replayed"`
	Dead     int `json:"dead"`
	Parked   int `json:"parked"`
	// Kills counts the processes that ended by SIGKILL.
	Kills       int     `json:"kills"`
	DamageMinor int64   `json:"damage_minor"`
	Currency    string  `json:"currency"`
	Expected    Outcome `json:"expected"`
	Verdict     Outcome `json:"verdict"`
	Seed        uint64  `json:"seed"`
	ElapsedMS   int64   `json:"elapsed_ms"`
}

// The overall verdicts.
const (
	AsExpected = "as_expected"
	Unexpected = "unexpected"
)

// Verdict is the outcome of a scenario over its runs. It marshals as contract section 5 says.
type Verdict struct {
	Runs    []Run  `json:"runs"`
	Verdict string `json:"verdict"`
	// Report is the path of the HTML report, "" when none was written.
	Report string `json:"report,omitempty"`

	// Story is what the report and the text tell beyond the figures.
	Story *Story `json:"-"`
	// Kept is the folder of the databases and events files, "" when it was removed.
	Kept string `json:"-"`
	// KeptIn are the URLs of the schemas that were kept, that of the unguarded run first; nil with SQLite.
	KeptIn []string `json:"-"`
}

// OK reports that every run showed what was expected of it: exit code 0, otherwise 3.
func (v Verdict) OK() bool { return v.Verdict == AsExpected }

// judge makes the verdict of one run from what the ledger and the events files say. Kills and time are the runner's.
func judge(s Scenario, p Plan, t tally, aside setAside, entries []Entry) Run {
	r := Run{
		Scenario: s.Name, Guard: p.Guard, Sent: t.Sent, Effects: t.Effects, Duplicated: t.Duplicated, Lost: len(t.Lost),
		Dead: aside.Dead, Parked: aside.Parked, DamageMinor: t.Damage, Currency: s.Load.Currency,
		Expected: s.Expect[p.Guard], Verdict: Held, Seed: p.Seed,
	}
	for _, e := range entries {
		switch {
		case e.Kind == "received":
			r.Delivered++
		case e.Kind == "started":
			r.Executed++
		case e.Kind == "decided" && e.Decision == "replayed":
			r.Replayed++
		}
	}
	if t.Duplicated > 0 || len(t.Lost) > 0 || t.Strays > 0 {
		r.Verdict = Broken
	}
	return r
}

// overall compares every run with what was expected of it. No runs are no verdict.
func overall(runs []Run) string {
	for _, r := range runs {
		if r.Verdict != r.Expected {
			return Unexpected
		}
	}
	if len(runs) == 0 {
		return Unexpected
	}
	return AsExpected
}
