package story

import (
	"fmt"
	"sort"

	"github.com/semel-dev/semel/driver"
)

// AddSteps tells what the journal of a run with steps says. A row knows when it was written last, so each step has one
// sentence: how far it came.
func (s *Story) AddSteps(rows []driver.Step) {
	for _, r := range rows {
		text, doubt := stepSentence(r)
		s.Sentences = append(s.Sentences, Sentence{At: r.UpdatedAt.UTC(), Text: text, Doubt: doubt})
	}
	sort.SliceStable(s.Sentences, func(i, j int) bool { return s.Sentences[i].At.Before(s.Sentences[j].At) })
}

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
