package story

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Copies are what the store knows of the duplicates of a key.
type Copies struct {
	// Kept: the store keeps a log of duplicates. Total is how many it counted, Newest are those that it still has.
	Kept   bool
	Total  int64
	Newest []driver.Duplicate
}

// note says how much of it is known.
func (c *Copies) note() string {
	const background = "workers write duplicates down in the background, and under load or in a crash some are missing"
	switch {
	case !c.Kept:
		return "the store keeps no duplicates: only the events files of workers know them (semel work --events)"
	case c.Total == 0:
		return "none was written down; " + background
	case c.Total > int64(len(c.Newest)):
		return fmt.Sprintf("only the newest %d of %d are kept; %s", len(c.Newest), c.Total, background)
	}
	return background
}

// told reports that an events file has the duplicate, too.
func told(d *driver.Duplicate, events []Line) bool {
	for i := range events {
		e := &events[i]
		if e.Kind == "decided" && e.MessageID == d.MessageID && e.At.Sub(d.At).Abs() < time.Millisecond {
			return true
		}
	}
	return false
}

// copySentence tells one duplicate.
func copySentence(d *driver.Duplicate) string {
	text := decided(Line{MessageID: d.MessageID, Decision: d.Decision, Cause: d.Cause}, "Worker "+d.Worker)
	if text == "" {
		text = fmt.Sprintf("Message %s was a duplicate (%s).", d.MessageID, d.Decision)
	}
	text += fmt.Sprintf(" Worker %s had received it from queue %s", d.Worker, d.Queue)
	if d.Count > 1 {
		text += fmt.Sprintf(", for the %s time", ordinal(d.Count))
	}
	return text + "."
}
