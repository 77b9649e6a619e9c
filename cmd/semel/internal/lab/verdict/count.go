package verdict

import (
	"maps"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
)

// tally is what the ledger has of the keys that were sent.
type tally struct {
	Sent, Effects int
	// Duplicated counts the effects beyond the first of each key, Damage what they cost in minor units.
	Duplicated int
	Damage     int64
	// Lost are keys without effect, dead letter or parked record; Strays are effects of keys that were not sent.
	Lost   []string
	Strays int
	// Standing counts the keys of failed sagas of which something stands, and the keys that were undone too often.
	Standing int
	// Regressed counts, for keys with versions, the effects that came after one of the same or a newer version; each key
	// whose newest version is not in the ledger is lost.
	Regressed int
}

// count compares the ledger with the keys that were sent. excused are the keys that have a dead letter or a parked record:
// without an effect they are not lost: a person decides. It must be called when the queue is empty, so that every key
// is settled.
func count(sends []plan.Send, effects []place.Effect, excused map[string]bool) tally {
	t := tally{Effects: len(effects)}
	aside := map[string]bool{}
	maps.Copy(aside, excused)
	newest := map[string]int{}  // by key: the newest version that was sent
	undone := map[string]bool{} // keys of which nothing may stand
	var keys []string
	for _, s := range sends {
		for _, key := range s.Keys() {
			if _, known := newest[key]; !known {
				keys = append(keys, key)
			}
			newest[key] = max(newest[key], s.Version)
			undone[key] = s.Saga && s.Poison
			if excused[s.Key] {
				aside[key] = true
			}
		}
	}
	t.Sent = len(keys)
	seen, applied := map[string]int{}, map[string]int{}
	for _, e := range effects {
		if e.Amount < 0 {
			seen[e.Key]--
			continue
		}
		seen[e.Key]++
		if _, sent := newest[e.Key]; !sent {
			t.Strays++
		}
		switch {
		case newest[e.Key] > 0 && seen[e.Key] > 1 && e.Version <= applied[e.Key]:
			t.Regressed++
		case newest[e.Key] == 0 && seen[e.Key] > 1 && !undone[e.Key]:
			t.Duplicated++
			t.Damage += e.Amount
		}
		applied[e.Key] = max(applied[e.Key], e.Version)
	}
	for _, key := range keys {
		if undone[key] {
			if seen[key] != 0 {
				t.Standing++
			}
			continue
		}
		if (seen[key] == 0 || applied[key] < newest[key]) && !aside[key] {
			t.Lost = append(t.Lost, key)
		}
	}
	return t
}

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
