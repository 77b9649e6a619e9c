package story

import (
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// left says which effects a key that failed may have left: those of its steps, if it has any.
func (k *Known) left(r *driver.Record) string {
	steps, undone := 0, 0
	for _, s := range k.Steps {
		switch s.State {
		case driver.RunCompensating:
			continue
		case driver.StepUndone:
			undone++
		}
		steps++
	}
	switch {
	case extra(r) > 0 || steps == 0:
		return soFar(r)
	case steps == undone:
		return "every step that was done was compensated"
	}
	return "steps that were not compensated may have had their effect"
}

// stepSentence tells what the journal of a run says of a step. A row knows when it was written last, so each step has one
// sentence: how far it came.
func stepSentence(r driver.Step) (text string, doubt bool) {
	switch r.State {
	case driver.StepRegistered:
		return fmt.Sprintf("Step %q began (token %d); the journal does not say that it is done: it may have happened.", r.Name, r.Token), true
	case driver.StepStarted:
		return fmt.Sprintf("Step %q, which runs at most once, was started (token %d): it may have happened.", r.Name, r.Token), true
	case driver.StepDone:
		return fmt.Sprintf("Step %q was done (token %d).", r.Name, r.Token), false
	case driver.StepUndoing:
		if r.Failures > 0 {
			return fmt.Sprintf("The compensation of step %q failed %s%s.", r.Name, times(r.Failures), because(r.Reason)), true
		}
		return fmt.Sprintf("The compensation of step %q began (token %d).", r.Name, r.Token), true
	case driver.StepUndone:
		return fmt.Sprintf("Step %q was compensated (token %d).", r.Name, r.Token), false
	case driver.RunCompensating:
		return fmt.Sprintf("The run was turned back (token %d)%s: from here on its steps are only undone.", r.Token, because(r.Reason)), false
	}
	return fmt.Sprintf("Step %q is %v.", r.Name, r.State), false
}
