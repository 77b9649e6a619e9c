package verdict

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// LogLine is one line of a worker, as the document has it that the scenario comes from.
type LogLine struct {
	// Seconds is when, in the document's time: Load.Faster times the run's own.
	Seconds float64
	Worker  int
	Text    string
}

// transcript is the workers' log of a scenario of one named message. Every line is an event of the run. It is nil where the
// message has no name.
func transcript(s plan.Scenario, p plan.Plan, res crew.Result) (out []LogLine) {
	if s.Load.Name == "" || len(p.Sends) == 0 {
		return nil
	}
	faster := fasterThanDocument(s)
	sleep := float64(p.Sends[0].WorkMS) * faster / 1000
	for _, e := range res.Entries {
		if e.Key != s.Load.Name {
			continue
		}
		var text string
		switch {
		case e.Kind == "started":
			text = fmt.Sprintf("Start %s sleep %s", e.Key, strconv.FormatFloat(sleep, 'g', 3, 64))
		case e.Kind == eventlog.Recorded, e.Kind == "decided" && e.Decision == "executed":
			text = "✅ Completed " + e.Key
		case e.Kind == "decided" && strings.HasPrefix(e.Decision, "replayed"):
			text = "🔁 Duplicate detect. Skip: " + e.Key
		default:
			continue
		}
		at := float64(e.At-res.Began.UnixMicro()) / 1e6 * faster
		out = append(out, LogLine{Seconds: max(0, at), Worker: e.Worker, Text: text})
	}
	return out
}

// fasterThanDocument is by how much; 1 where there is no document.
func fasterThanDocument(s plan.Scenario) float64 {
	if s.Load.Faster <= 0 {
		return 1
	}
	return s.Load.Faster
}

// refused counts the runs whose record came too late: the work was done, and the log has no line for it.
func refused(entries []eventlog.Entry) (n int) {
	for _, e := range entries {
		if e.Kind == eventlog.Refused {
			n++
		}
	}
	return n
}
