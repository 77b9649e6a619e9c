package story

import (
	"fmt"

	"github.com/semel-dev/semel/driver"
)

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
