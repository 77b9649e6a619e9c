package asltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Machine is a state machine, or a branch of a Parallel state.
type Machine struct {
	Comment string
	StartAt string
	States  map[string]*State
}

// State is one state. Which fields it may have depends on its type (Check).
type State struct {
	Type, Comment, Next, Resource, Default, SecondsPath, Error, Cause string
	End                                                               bool
	Parameters, ResultSelector, Result                                json.RawMessage
	// ResultPath is a path, null to drop the result, or absent.
	ResultPath              json.RawMessage
	Choices                 []Choice
	Seconds, TimeoutSeconds int
	Retry                   []Retrier
	Catch                   []Catcher
	Branches                []*Machine
}

// Choice is a rule of a Choice state: one comparison.
type Choice struct {
	Variable        string
	BooleanEquals   *bool
	StringEquals    *string
	NumericLessThan *float64
	Next            string
}

// Retrier says which errors are tried again, and when.
type Retrier struct {
	ErrorEquals                                   []string
	IntervalSeconds, MaxDelaySeconds, BackoffRate float64
	MaxAttempts                                   int
}

// Catcher says where errors lead.
type Catcher struct {
	ErrorEquals      []string
	ResultPath, Next string
}

// Load reads a machine from a file, and checks it.
func Load(path string) (*Machine, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(b)
}

// Parse reads a machine, and checks it. A member that is not known is an error.
func Parse(b []byte) (*Machine, error) {
	m := new(Machine)
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the machine")
	}
	return m, m.Check()
}

// StateError is an error of a state, with its name for retriers and catchers.
type StateError struct{ Name, Cause string }

func (e *StateError) Error() string { return fmt.Sprintf("%s: %s", e.Name, e.Cause) }

// The names of errors that have one in the language.
const (
	all       = "States.ALL"
	timeout   = "States.Timeout"
	path      = "States.ParameterPathFailure"
	branch    = "States.BranchFailed"
	intrinsic = "States.IntrinsicFailure"
	noChoice  = "States.NoChoiceMatched"
	socket    = "States.Http.Socket"
)
