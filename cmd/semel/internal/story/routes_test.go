package story

import (
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestS204_TwoRoutes: the story of a key says that its event came by two routes, once, and only then.
func TestS204_TwoRoutes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	line := func(id, route string) Line {
		at = at.Add(time.Second)
		return Line{At: at, Kind: "received", Worker: "w", MessageID: id, Route: route}
	}
	for name, c := range map[string]struct {
		events []Line
		told   int
	}{
		"two rules":         {[]Line{line("1", "EventBridge"), line("1", "EventBridge"), line("2", "EventBridge"), line("3", "SNS arn")}, 1},
		"redelivered":       {[]Line{line("1", "EventBridge"), line("1", "EventBridge")}, 0},
		"sent by a person":  {[]Line{line("1", "EventBridge"), line(driver.RedriveID("l"), "EventBridge")}, 0},
		"no event":          {[]Line{line("1", ""), line("2", "")}, 0},
		"one of them is no": {[]Line{line("1", "EventBridge"), line("2", "")}, 0},
	} {
		s := Tell(Known{Events: c.events})
		told := 0
		for _, x := range s.Sentences {
			if strings.Contains(x.Text, "came by two routes: as message 1 (EventBridge) and as message 2 (EventBridge)") {
				told++
			}
		}
		if told != c.told {
			t.Errorf("%s: told %d times: %+v", name, told, s.Sentences)
		}
	}
}
