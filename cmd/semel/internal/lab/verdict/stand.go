package verdict

import (
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
)

// Standing is the state of a run that goes on.
type Standing struct {
	Duplicated, Regressed int
	// Lost are the keys that are certainly lost already: those without effect, dead letter or parked record, less the messages
	// that are still in the queue. With an empty queue these are all of them.
	Lost int
	// Damage is in minor units.
	Damage int64
}

// Stand counts the state of a run, by its ledger.
func Stand(sends []plan.Send, effects []place.Effect, aside place.Aside, queue driver.QueueStats) Standing {
	t := count(sends, effects, aside.Keys)
	keys := 1 // of a message
	for _, s := range sends {
		keys = max(keys, len(s.Keys()))
	}
	open := int(queue.Visible+queue.InFlight+queue.Delayed) * keys
	return Standing{Duplicated: t.Duplicated, Regressed: t.Regressed, Lost: max(0, len(t.Lost)-open), Damage: t.Damage}
}
