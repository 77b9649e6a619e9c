package fakesfn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// maxName bounds the names of machines and executions, in characters.
//
// https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html (name: "Maximum length of 80")
const maxName = 80

// machine is one state machine.
type machine struct {
	name, kind, definition, role string
	created                      time.Time
	// named are the executions by name, all of them in the order of their starts; those of EXPRESS machines are in all only.
	named map[string]*execution
	all   []*execution
}

// epoch is a time as the protocol has it: seconds since 1970 with fractions.
func epoch(t time.Time) json.Number {
	return json.Number(fmt.Sprintf("%d.%03d", t.Unix(), t.Nanosecond()/int(time.Millisecond)))
}

func (s *Server) machineArn(name string) string {
	return fmt.Sprintf("arn:aws:states:%s:%s:stateMachine:%s", s.o.Region, s.o.Account, name)
}

// find returns the machine of an ARN, also of one that is qualified with a version or an alias.
func (s *Server) find(arn string) (*machine, error) {
	parts := strings.Split(arn, ":")
	switch {
	case arn == "":
		return nil, invalid("1 validation error detected: Value null at 'stateMachineArn' failed to satisfy constraint: Member must not be null")
	case len(parts) < 7 || len(parts) > 8 || parts[0] != "arn" || parts[2] != "states" || parts[5] != "stateMachine":
		return nil, invalidArn(arn)
	case strings.Contains(parts[6], "/"):
		return nil, invalid("the ARN of a Distributed Map state is not accepted: '%s'", arn)
	}
	m := s.machines[parts[6]]
	if m == nil || strings.Join(parts[:7], ":") != s.machineArn(m.name) {
		return nil, noMachine(arn)
	}
	return m, nil
}

// checkName refuses names that the reference forbids: white space, brackets, wildcards, special and control characters.
func checkName(name string) error {
	if n := len([]rune(name)); n < 1 || n > maxName {
		return invalid("1 validation error detected: Value '%s' at 'name' failed to satisfy constraint: "+
			"Member must have length between 1 and %d, inclusive", name, maxName)
	}
	for _, r := range name {
		if strings.ContainsRune("<>{}[]?*\"#%\\^|~`$&,;:/", r) || unicode.IsSpace(r) || unicode.IsControl(r) ||
			r == unicode.ReplacementChar || r >= 0xFFFE && r <= 0xFFFF || r == 0x10FFFF {
			return invalidName(name)
		}
	}
	return nil
}

type createInput struct{ Name, Definition, RoleArn, Type string }

// createStateMachine is idempotent over name, definition and type.
func (s *Server) createStateMachine(_ context.Context, in createInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkName(in.Name); err != nil {
		return nil, err
	}
	switch in.Type {
	case "":
		in.Type = Standard
	case Standard, Express:
	default:
		return nil, invalid("Value '%s' at 'type' failed to satisfy constraint: Member must satisfy enum value set: [STANDARD, EXPRESS]", in.Type)
	}
	m := s.machines[in.Name]
	switch {
	case m == nil:
		m = &machine{
			name: in.Name, kind: in.Type, definition: in.Definition, role: in.RoleArn, created: s.o.Clock.Now(), named: map[string]*execution{},
		}
		s.machines[in.Name] = m
	case m.kind != in.Type || m.definition != in.Definition:
		return nil, modelled("StateMachineAlreadyExists", "State Machine Already Exists: '%s'", s.machineArn(in.Name))
	}
	return map[string]any{"stateMachineArn": s.machineArn(m.name), "creationDate": epoch(m.created)}, nil
}

type machineInput struct{ StateMachineArn string }

func (s *Server) deleteStateMachine(_ context.Context, in machineInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(in.StateMachineArn)
	if m != nil {
		delete(s.machines, m.name)
		err = nil
	}
	if err != nil && strings.Contains(err.Error(), "DoesNotExist") {
		err = nil // deleting a missing one succeeds
	}
	return struct{}{}, err
}

func (s *Server) describeStateMachine(_ context.Context, in machineInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(in.StateMachineArn)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"stateMachineArn": in.StateMachineArn, "name": m.name, "type": m.kind, "status": "ACTIVE", "definition": m.definition,
		"roleArn": m.role, "creationDate": epoch(m.created),
	}, nil
}

// Machine makes a state machine of a type ("" = Standard) and returns its ARN. One of that name that is there already stays
// as it is.
func (s *Server) Machine(name, kind string) string {
	if kind == "" {
		kind = Standard
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machines[name] == nil {
		s.machines[name] = &machine{name: name, kind: kind, created: s.o.Clock.Now(), named: map[string]*execution{}}
	}
	return s.machineArn(name)
}
