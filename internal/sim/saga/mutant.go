package saga

import (
	"slices"

	"github.com/semel-dev/semel/driver"
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
	mutants
)

// mistakes has the mutants' names, and the invariants of which each must violate one. If another invariant found it, that
// would be an accident of the simulator.
var mistakes = [...]struct{ name, breaks string }{
	noMutant:          {"", ""},
	mutLoserGoesOn:    {"saga: loser of a race goes on", "I15"},
	mutRegisteredLate: {"saga: compensation registered late", "I20"},
	mutForwardAgain:   {"saga: resume goes forward after compensation began", "I20"},
	mutForwardOrder:   {"saga: undone in forward order", "I20"},
	mutFailureDropped: {"saga: compensation failure dropped", "I20"},
	mutHalfFailed:     {"saga: parked half undone, failed instead", "I20"},
	mutNoTombstone:    {"saga: compensation without a tombstone", "I20"},
	mutWriteBlind:     {"saga: step write without token compare", "I7"},
	mutStartedLate:    {"saga: at-most-once step marked after its call", "I2'"},
}

// readMutated is what a read of the journal returns.
func (w *world) readMutated(rows []driver.Step) []driver.Step {
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
func (w *world) writesMutated(r *runner, ws []driver.StepWrite) (out []driver.StepWrite, skip bool) {
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
