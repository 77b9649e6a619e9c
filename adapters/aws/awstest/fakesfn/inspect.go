package fakesfn

import (
	"fmt"
	"time"
)

// Execution is what a test sees of an execution.
type Execution struct {
	ARN, Name, Input, Status string
	Started                  time.Time
}

// Executions returns all executions of a machine in the order of their starts, including those that the service has
// forgotten. A missing machine has none.
func (s *Server) Executions(machine string) (out []Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[machine]
	if m == nil {
		return nil
	}
	for _, e := range m.all {
		out = append(out, Execution{ARN: e.arn, Name: e.name, Input: e.input, Status: e.status, Started: e.started})
	}
	return out
}

// Finish ends an execution that runs: as Succeeded with an output, or as Failed, TimedOut or Aborted with an error of that
// text. It fails when no such execution runs.
func (s *Server) Finish(arn, status, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		for _, e := range m.all {
			if e.arn != arn || e.status != Running {
				continue
			}
			e.status, e.stopped = status, s.o.Clock.Now()
			if status == Succeeded {
				e.output = text
			} else {
				e.problem = text
			}
			return nil
		}
	}
	return fmt.Errorf("finish %s: no such execution runs", arn)
}
