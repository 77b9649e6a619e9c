package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// Check is the outcome of one check of a guarantee. Level is [LevelOK], [LevelWarning] or [LevelDanger], Try how to fix it.
type Check struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	Detail string `json:"detail"`
	Try    string `json:"try,omitempty"`
}

// Guaranteed is the line of a guarantee that workers logged at their start.
type Guaranteed struct {
	Guarantee string   `json:"guarantee"`
	Workers   []string `json:"workers"`
}

// Assessment says whether the guarantee of a queue and its store holds now. Level is that of the worst check; without a worker that
// reports it is a warning, because the settings are not known.
type Assessment struct {
	Level      string       `json:"level"`
	Verdict    string       `json:"verdict"`
	Guarantees []Guaranteed `json:"guarantees"`
	Checks     []Check      `json:"checks"`
}

// Assess judges the reports of the workers of the queue and the keys of one consumer, together with checks that the caller made.
func (q Queue) Assess(ctx context.Context, consumer string, checks ...Check) (a Assessment, err error) {
	a = Assessment{Level: LevelOK, Verdict: "The guarantee holds", Guarantees: []Guaranteed{}, Checks: append([]Check{}, checks...)}
	workers, differ, err := Workers(ctx, q.store, q.Name)
	kept := !errors.Is(err, driver.ErrUnsupported)
	if kept && err != nil {
		return a, err
	}
	a.Checks = append(a.Checks, LiveChecks(q.features, q.CLI, workers, differ)...)
	for _, w := range workers {
		if !w.Silent && w.Guarantee != "" {
			a.add(w)
		}
	}
	if cases, ok := driver.As[driver.CaseLister](q.store); ok { // others would have to read all records
		n, err := cases.CountCases(ctx, consumer, driver.Uncertain, MostCounted)
		if err != nil {
			return a, err
		}
		if n > 0 {
			a.Checks = append(a.Checks, Check{
				"outcomes", LevelWarning, "the outcome of " + words.Count(n, "key") + " is unknown: these wait for a person",
				q.CLI.Records("ls", "--state", driver.Uncertain.String()),
			})
		}
	}
	a.judge(kept)
	return a, nil
}

func (a *Assessment) add(w Worker) {
	i := slices.IndexFunc(a.Guarantees, func(g Guaranteed) bool { return g.Guarantee == w.Guarantee })
	if i < 0 {
		i, a.Guarantees = len(a.Guarantees), append(a.Guarantees, Guaranteed{Guarantee: w.Guarantee})
	}
	a.Guarantees[i].Workers = append(a.Guarantees[i].Workers, w.Name)
}

// judge chooses the level and the verdict.
func (a *Assessment) judge(kept bool) {
	first := map[string]string{} // details by level
	for _, c := range a.Checks {
		first[c.Level] = cmp.Or(first[c.Level], c.Detail)
	}
	switch {
	case first[LevelDanger] != "":
		a.Level, a.Verdict = LevelDanger, "The guarantee is weakened: "+first[LevelDanger]
	case !kept:
		a.Level, a.Verdict = LevelWarning, "It is not known which guarantee the workers have: this store keeps no reports of them"
	case len(a.Guarantees) == 0:
		a.Level, a.Verdict = LevelWarning, "No worker reports: the guarantee is that of the next one to start"
	case first[LevelWarning] != "":
		a.Level, a.Verdict = LevelWarning, "The guarantee holds, but "+first[LevelWarning]
	}
}

// LiveChecks are the checks of what the workers of a queue report; semel doctor has them, too.
func LiveChecks(q driver.QueueFeatures, c *CLI, workers []Worker, differ []Difference) (out []Check) {
	list := words.Command("workers") + c.flags("store")
	for _, d := range differ {
		out = append(out, Check{"workers", LevelWarning, d.String(), list})
	}
	windows := map[time.Duration]bool{}
	for _, w := range workers {
		switch {
		case w.Silent:
			out = append(out, Check{"workers", LevelWarning, fmt.Sprintf("worker %s has not reported for %s: it was killed, hangs, or cannot reach "+
				"the store; it held %s", w.Name, words.About(time.Since(w.Seen).Truncate(time.Second)), words.Count(len(w.Holds), "key")), list})
		case w.Window > 0 && !windows[w.Window]:
			windows[w.Window] = true
			out = append(out, retentionCheck(q, w))
		}
	}
	return out
}

// retentionCheck compares how long a worker keeps records with how late a copy can come, as the queue is set now (law 10).
func retentionCheck(q driver.QueueFeatures, w Worker) Check {
	c := Check{Check: "retention", Level: LevelOK}
	late := LatenessOf(q, max(w.Horizon-q.LateBy(0), 0))
	need := late.Horizon()
	c.Detail = fmt.Sprintf("records are kept for %s", words.Duration(w.Window))
	switch {
	case need > w.Window:
		c.Level, c.Try = LevelDanger, "--retention "+words.Duration(need)
		c.Detail += fmt.Sprintf(", and a copy can come within %s (%s): a late one would run again", words.Duration(need), late.Parts())
	case need > 0:
		c.Detail += fmt.Sprintf(", and a copy can come within %s (%s)", words.Duration(need), late.Parts())
	default:
		c.Detail += "; this queue does not limit how late a copy can come"
	}
	return c
}
