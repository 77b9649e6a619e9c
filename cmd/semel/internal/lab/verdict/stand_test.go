package verdict

import (
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
)

// TestStandCountsAsLostWhatTheQueueHasNoMore: what is still in the queue may yet be done.
func TestStandCountsAsLostWhatTheQueueHasNoMore(t *testing.T) {
	sends := []plan.Send{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}}
	effects := []place.Effect{{Key: "a", Amount: 5}, {Key: "a", Amount: 5}}
	aside := place.Aside{Keys: map[string]bool{"d": true}}
	for _, c := range []struct {
		queue driver.QueueStats
		lost  int
	}{{driver.QueueStats{}, 2}, {driver.QueueStats{InFlight: 1}, 1}, {driver.QueueStats{Visible: 1, Delayed: 1}, 0}, {driver.QueueStats{Visible: 9}, 0}} {
		if got := Stand(sends, effects, aside, c.queue); got != (Standing{Duplicated: 1, Damage: 5, Lost: c.lost}) {
			t.Errorf("%+v: %+v", c.queue, got)
		}
	}
	batch := []plan.Send{{Key: "a", Items: []string{"a/1", "a/2", "a/3"}}}
	if got := Stand(batch, nil, place.Aside{}, driver.QueueStats{InFlight: 1}); got.Lost != 0 {
		t.Errorf("items of a message that is in flight are lost: %+v", got)
	}
}
