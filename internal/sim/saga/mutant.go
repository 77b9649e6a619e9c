package saga

import (
	"slices"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
)

// mutant is a known way to get sagas wrong. It is planted between package steps and the model, or in the model; the
// package is never touched.
type mutant uint8

const (
	noMutant mutant = iota
	mutLoserGoesOn
	mutRegisteredLate
	mutForwardAgain
	mutForwardOrder
	mutFailureDropped
	mutHalfFailed
	mutNoTombstone
	mutWriteBlind
	mutStartedLate
)

// mistakes has the mutants' names, and the invariants of which each must violate one.
var mistakes = []virtual.Mistake{
	noMutant:          {},
	mutLoserGoesOn:    {Name: "loser of a race goes on", Invariants: "I15"},
	mutRegisteredLate: {Name: "compensation registered late", Invariants: "I20"},
	mutForwardAgain:   {Name: "resume goes forward after compensation began", Invariants: "I20"},
	mutForwardOrder:   {Name: "undone in forward order", Invariants: "I20"},
	mutFailureDropped: {Name: "compensation failure dropped", Invariants: "I20"},
	mutHalfFailed:     {Name: "parked half undone, failed instead", Invariants: "I20"},
	mutNoTombstone:    {Name: "compensation without a tombstone", Invariants: "I20"},
	mutWriteBlind:     {Name: "step write without token compare", Invariants: "I7"},
	mutStartedLate:    {Name: "at-most-once step marked after its call", Invariants: "I2'"},
}

// readMutated is what a read of the journal returns.
func (w *Simulation) readMutated(rows []driver.Step) []driver.Step {
	switch w.mut {
	case mutForwardAgain:
		return slices.DeleteFunc(rows, func(s driver.Step) bool { return s.State == driver.RunCompensating })
	case mutForwardOrder:
		if slices.ContainsFunc(rows, func(s driver.Step) bool { return s.State == driver.RunCompensating }) {
			slices.Reverse(rows)
		}
	}
	return rows
}

// writesMutated keeps writes back that should be durable first: they come with the attempt's next write. skip =
// nothing is written now, and the result is Applied.
func (w *Simulation) writesMutated(r *runner, ws []driver.StepWrite) (out []driver.StepWrite, skip bool) {
	var late driver.StepWriteKind
	switch w.mut {
	case mutRegisteredLate:
		late = driver.RegisterStep
	case mutStartedLate:
		late = driver.StartStep
	default:
		return ws, false
	}
	out = append(out, r.held...)
	r.held = nil
	for _, x := range ws {
		if x.Kind == late {
			r.held = append(r.held, x)
		} else {
			out = append(out, x)
		}
	}
	return out, len(out) == 0
}
