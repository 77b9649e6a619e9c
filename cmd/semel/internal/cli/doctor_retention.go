package cli

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/advice"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// retention is law 10: records outlive every copy of their message. What the queue knows of that New checks, too; with
// --horizon a person says what the queue cannot know.
func (x *inspection) retention() {
	producers := time.Duration(x.w.Producers)
	late := advice.LateFor(x.q, producers)
	need, why := late.Horizon(), late.Parts()
	kept, window := x.w.Retention.Shown(need), x.w.Retention.Window(need)
	if x.horizon > need {
		need, why = x.horizon, "--horizon"
	}
	if l, ok := advice.LateAdvised(x.q, producers); ok {
		why += "; " + advice.Setting(l.Horizon()) + " once the dead-letter queue keeps messages for 14d"
	}
	switch {
	case need > 0 && window < need:
		x.note(levelDanger, "retention", "--retention "+advice.Setting(need), "records are kept for %s, duplicates come within %s (%s): a late one would run again",
			kept, advice.Setting(need), why)
	case need > 0:
		x.note(levelOK, "retention", "", "records are kept for %s, duplicates come within %s (%s)", kept, advice.Setting(need), why)
	case window < 24*time.Hour:
		x.note(levelWarning, "retention", "--retention "+config.Duration(advice.Retention(0)).String(),
			"records are kept for %s: a duplicate that comes later runs again", kept)
	default:
		x.note(levelOK, "retention", "", "records are kept for %s; this queue knows no horizon: give --horizon to compare it with how late "+
			"duplicates come", kept)
	}
}
