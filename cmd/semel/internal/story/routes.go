package story

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// routes tells that one source event came as several messages, when it did: the time and the sentence of the second one.
// What is handed out again is the same message, and what a person sent again is no other route.
func routes(events []Line) (at time.Time, text string) {
	var first *Line
	for i := range events {
		e := &events[i]
		switch {
		case e.Kind != "received" || e.Route == "" || driver.IsRedrive(e.MessageID):
		case first == nil:
			first = e
		case e.MessageID != first.MessageID:
			return e.At, fmt.Sprintf("The same source event came by two routes: as message %s (%s) and as message %s (%s). "+
				"Look for rules, subscriptions or notifications that overlap.", first.MessageID, first.Route, e.MessageID, e.Route)
		}
	}
	return time.Time{}, ""
}
