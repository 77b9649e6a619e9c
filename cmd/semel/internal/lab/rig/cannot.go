package rig

import (
	"fmt"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// CannotError reports a scenario that a place cannot play. It is neither a verdict nor a failure: nothing was tried.
type CannotError struct{ Scenario, Why string }

func (e *CannotError) Error() string {
	return fmt.Sprintf("%s cannot be played here: %s", e.Scenario, e.Why)
}

// Plays answers a *CannotError when a run with this guard needs what the site does not have.
func (s *Site) Plays(c plan.Scenario, g plan.Guard) error {
	if name := map[string]string{"dynamodb": "DynamoDB", "redis": "Redis"}[s.store.scheme]; c.Designs[g] == plan.SemelOutbox && name != "" {
		return &CannotError{c.Name, name + " has no queue that a message could be put into in the transaction of the record"}
	}
	return nil
}
