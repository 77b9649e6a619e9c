package semel

import (
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// This file passes the traces of runs between their middleware (Attempt.SetTrace), their records, events and log lines.

// replayed keeps the trace of the run that ended the key of an item.
func (h *handle) replayed(it *machine.Item, effect driver.Traceparent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivery, h.trace, h.effect = it.Receipt, "", effect
}

func (h *handle) setTrace(t driver.Traceparent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trace = t
}

// tracesOf returns the traces of an item's present delivery.
func tracesOf(it *machine.Item) (trace, effect driver.Traceparent) {
	h, ok := it.Shell.(*handle)
	if !ok {
		return "", ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.delivery != it.Receipt {
		return "", ""
	}
	return h.trace, h.effect
}

// replays keeps the traces that grants name.
func replays(events []machine.Event) {
	for i := range events {
		for j, it := range events[i].Items {
			if g := events[i].Grants; j < len(g) && g[j].Trace != "" {
				handleOf(it).replayed(it, g[j].Trace)
			}
		}
	}
}

// traced adds the traces of runs to the ends that their records keep.
func traced(items []*machine.Item, works []driver.Work) {
	for i, it := range items {
		f := &works[i].Finish
		if t, _ := tracesOf(it); t != "" && f.Final != driver.Release {
			f.Reason = driver.AppendTrace(f.Reason, t)
		}
	}
}
