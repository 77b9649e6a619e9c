package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/driver"
)

// retention is law 10: records outlive every copy of their message. What the queue knows of that New checks, too; with
// --horizon a person says what the queue cannot know.
func (x *exam) retention() {
	producers := time.Duration(x.w.Producers)
	need, why := x.q.LateBy(producers), lateParts(x.q, producers)
	kept, window := x.w.Retention.Shown(need), x.w.Retention.Window(need)
	if x.horizon > need {
		need, why = x.horizon, "--horizon"
	}
	switch {
	case need > 0 && window < need:
		x.note(levelDanger, "retention", fmt.Sprintf("--retention %s", config.Duration(need)),
			"records are kept for %s, duplicates come within %s (%s): a late one would run again", kept, config.Duration(need), why)
	case need > 0:
		x.note(levelOK, "retention", "", "records are kept for %s, duplicates come within %s (%s)", kept, config.Duration(need), why)
	case window < 24*time.Hour:
		x.note(levelWarning, "retention", "--retention 14d", "records are kept for %s: a duplicate that comes later runs again", kept)
	default:
		x.note(levelOK, "retention", "", "records are kept for %s; this queue knows no horizon: give --horizon to compare it with how late "+
			"duplicates come", kept)
	}
}

// lateParts is what a horizon is the sum of.
func lateParts(q driver.QueueFeatures, producers time.Duration) string {
	var parts []string
	for _, p := range []struct {
		d    time.Duration
		what string
	}{
		{q.Retention, "in the queue"},
		{q.Horizon - q.Retention, "more when the service moves it to its letters and back"},
		{producers, "of the producers' repetitions"},
	} {
		if p.d > 0 {
			parts = append(parts, config.Duration(p.d).String()+" "+p.what)
		}
	}
	return strings.Join(parts, ", ")
}
