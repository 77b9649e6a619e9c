package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is what versions change about dead letters (protocol section 6): the record goes on with other versions, and a
// dead letter of one of them is overtaken, or still to come.

// Overtaken says that a newer version is applied: the dead letter was deleted, nothing sent.
const Overtaken Outcome = "overtaken"

// byVersion decides about the dead letter of a version. done: nothing is to be sent; send: the record is another version's and
// stays as it is; neither: the dead letter is the record's own.
func (q Queue) byVersion(ctx context.Context, l driver.DeadLetter, r driver.Record, o Options, res *Result) (done, send bool, err error) {
	w := &r.Watermark
	if l.Version == "" || o.Mode == Rerun && o.NewGeneration && r.State == driver.Completed && l.Version == w.Running {
		return false, false, nil
	}
	own := l.Version == w.Running && l.Kind != driver.DeadLetterLate
	_, g, _ := driver.DecideClaim(r, driver.Claim{Key: l.Key, Version: l.Version, Lease: time.Minute}, time.Now(), 0)
	switch {
	case !l.Version.Comparable(w.Running):
		*res = refuse(*res, "its key's record was made under another strategy: send the message under a key of its own, then discard the dead letter")
		return true, false, nil
	case g.Verdict == driver.Late && !own:
		*res = refuse(*res, "%s: bring its state in by hand, or discard it; or end the newer version first", g.Reason)
		return true, false, nil
	case l.Version < w.Applied, l.Version == w.Applied && r.Token == l.Token:
		res.Outcome, res.Why = Overtaken, fmt.Sprintf("version %s already processed (current: %s)", l.Version, w.Applied)
		return true, false, q.remove(ctx, l, o)
	case own && l.Version != w.Applied:
		return false, false, nil
	}
	res.Why = fmt.Sprintf("the record is %s with version %s, %s applied: version %s is sent again and takes its place or is skipped",
		r.State, w.Running, applied(w), l.Version)
	return false, true, nil
}

func applied(w *driver.Watermark) string {
	if w.Applied == "" {
		return "none"
	}
	return w.Applied.String()
}

// foreign tells that a dead letter is not about the version that its record is at: nothing of the record is to be changed.
func foreign(l driver.DeadLetter, r driver.Record) bool {
	return l.Version != "" && (l.Kind == driver.DeadLetterLate || l.Version != r.Watermark.Running)
}
