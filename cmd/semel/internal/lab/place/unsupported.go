package place

import (
	"fmt"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// UnsupportedError reports a scenario that cannot run in a place. It is neither a verdict nor a failure: nothing was tried.
type UnsupportedError struct{ Scenario, Why string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s cannot be run here: %s", e.Scenario, e.Why)
}

// Supports returns an *UnsupportedError if a run with this guard needs what the place does not have.
func (s *Setup) Supports(c plan.Scenario, g plan.Guard) error {
	if name := map[string]string{"dynamodb": "DynamoDB", "redis": "Redis"}[s.store.scheme]; c.Designs[g] == plan.SemelOutbox && name != "" {
		return &UnsupportedError{c.Name, name + " has no queue that a message could be put into in the transaction of the record"}
	}
	return nil
}
