package story

import (
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// act tells what an operator did. A release leaves a doubt: the run that lost its claim may have had its effect.
func act(e driver.AuditEntry) (text string, doubt bool) {
	who := firstOf(e.By, "Somebody")
	switch e.Kind {
	case driver.Resolve:
		return fmt.Sprintf("%s decided about the key whose outcome was unknown: %s.", who, decision(e.To)), false
	case driver.Redrive:
		text = fmt.Sprintf("%s sent the message of the key again, which was %s", who, e.From)
		if e.Renewed && e.From == driver.Completed {
			text += ", to run it once more under a new effect key"
		} else if e.Verified {
			text += ", and vouched that the effect had not happened"
		}
		return text + ".", false
	case driver.Reopen:
		text = fmt.Sprintf("%s reopened the key, which was %s, to run it again at its next delivery", who, e.From)
		if e.From == driver.Completed {
			text += ", under a new effect key"
		}
		return text + because(e.Reason) + ".", false
	case driver.Erase:
		return fmt.Sprintf("%s erased the record of a key, which was %s%s.", who, e.From, because(e.Reason)), false
	case driver.Discard:
		return who + " discarded the dead letter of the key: later duplicates are just acknowledged.", false
	case driver.ForceRelease:
		return fmt.Sprintf("%s took the key away from the worker that had it (token %d), whose run may have had its effect.", who, e.Token), true
	}
	return fmt.Sprintf("%s did %s: %s became %s.", who, e.Kind, e.From, e.To), false
}

func decision(to driver.State) string {
	switch to {
	case driver.Completed:
		return "the effect happened"
	case driver.Released:
		return "it did not happen, and the message was sent again"
	case driver.FailedState:
		return "it is not to run any more"
	case driver.Absent, driver.InProgress, driver.Uncertain, driver.Expired:
	}
	return to.String()
}
