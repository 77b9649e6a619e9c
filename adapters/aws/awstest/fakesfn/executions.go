package fakesfn

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxInput bounds the input of an execution, in bytes.
//
// https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html ("Maximum input or output size")
const maxInput = 256 << 10

// The states of an execution that tests meet.
const (
	Running   = "RUNNING"
	Succeeded = "SUCCEEDED"
	Failed    = "FAILED"
	Aborted   = "ABORTED"
	TimedOut  = "TIMED_OUT"
)

// execution is one run of a machine.
type execution struct {
	machine, arn, machineArn, name, input string
	status, output, problem, cause        string
	started, stopped                      time.Time
}

// gone reports that the service has forgotten an execution: its name is free, and it cannot be described.
func (s *Server) gone(e *execution) bool {
	return e.status != Running && s.o.Clock.Now().Sub(e.stopped) >= NameKept
}

// hidden reports that descriptions and lists do not show an execution yet.
func (s *Server) hidden(e *execution) bool {
	return s.o.Clock.Now().Sub(e.started) < s.o.Lag
}

type startInput struct {
	StateMachineArn, Name string
	Input                 *string
}

// startExecution: the same name and input as a running execution is that execution; a closed one, or another input, is an
// error for as long as the name is kept. EXPRESS machines start one more each time.
//
// https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html
func (s *Server) startExecution(_ context.Context, in startInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(in.StateMachineArn)
	if err != nil {
		return nil, err
	}
	input := "{}"
	if in.Input != nil {
		input = *in.Input
	}
	switch {
	case len(input) > maxInput:
		return nil, invalid("1 validation error detected: Value at 'input' failed to satisfy constraint: "+
			"Member must have length less than or equal to %d", maxInput)
	case !json.Valid([]byte(input)):
		return nil, modelled("InvalidExecutionInput", "Invalid State Machine Execution Input: '%.100s'", input)
	}
	if in.Name == "" {
		in.Name = drawn()
	}
	if err := checkName(in.Name); err != nil {
		return nil, err
	}
	e := m.named[in.Name]
	switch {
	case m.kind == Express, e == nil, s.gone(e):
		e = s.start(m, in.StateMachineArn, in.Name, input)
	case e.status != Running, e.input != input:
		return nil, modelled("ExecutionAlreadyExists", "Execution Already Exists: '%s'", e.arn)
	}
	return map[string]any{"executionArn": e.arn, "startDate": epoch(e.started)}, nil
}

func (s *Server) start(m *machine, machineArn, name, input string) *execution {
	e := &execution{
		machine: m.name, machineArn: machineArn, name: name, input: input, status: Running, started: s.o.Clock.Now(),
		arn: fmt.Sprintf("arn:aws:states:%s:%s:execution:%s:%s", s.o.Region, s.o.Account, m.name, name),
	}
	if m.kind == Express {
		e.arn = fmt.Sprintf("arn:aws:states:%s:%s:express:%s:%s:%s", s.o.Region, s.o.Account, m.name, name, drawn())
	} else {
		m.named[name] = e
	}
	m.all = append(m.all, e)
	return e
}

// drawn is a UUID.
func drawn() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	h := hex.EncodeToString(b[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// named finds the execution of an ARN. Those of EXPRESS machines cannot be asked for.
func (s *Server) named(arn, operation string) (*execution, error) {
	parts := strings.Split(arn, ":")
	switch {
	case len(parts) == 9 && parts[5] == "express":
		return nil, notForExpress(operation)
	case len(parts) != 8 || parts[0] != "arn" || parts[2] != "states" || parts[5] != "execution":
		return nil, invalidArn(arn)
	}
	if m := s.machines[parts[6]]; m != nil {
		if e := m.named[parts[7]]; e != nil && e.arn == arn && !s.gone(e) {
			return e, nil
		}
	}
	return nil, noExecution(arn)
}

type executionInput struct{ ExecutionArn, Error, Cause string }

func (s *Server) describeExecution(_ context.Context, in executionInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.named(in.ExecutionArn, "DescribeExecution")
	if err == nil && s.hidden(e) {
		err = noExecution(in.ExecutionArn)
	}
	if err != nil {
		return nil, err
	}
	out := map[string]any{
		"executionArn": e.arn, "stateMachineArn": e.machineArn, "name": e.name, "status": e.status, "input": e.input,
		"startDate": epoch(e.started), "inputDetails": map[string]bool{"included": true}, "redriveCount": 0,
	}
	if e.status != Running {
		out["stopDate"] = epoch(e.stopped)
	}
	for name, text := range map[string]string{"output": e.output, "error": e.problem, "cause": e.cause} {
		if text != "" {
			out[name] = text
		}
	}
	return out, nil
}

// stopExecution changes nothing about an execution that is closed already.
func (s *Server) stopExecution(_ context.Context, in executionInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.named(in.ExecutionArn, "StopExecution")
	if err != nil {
		return nil, err
	}
	if e.status == Running {
		e.status, e.stopped, e.problem, e.cause = Aborted, s.o.Clock.Now(), in.Error, in.Cause
	}
	return map[string]any{"stopDate": epoch(e.stopped)}, nil
}

type listInput struct {
	StateMachineArn, StatusFilter, NextToken string
	MaxResults                               int
}

// listExecutions has the newest first. The token of a page is the place where the next one begins.
func (s *Server) listExecutions(_ context.Context, in listInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(in.StateMachineArn)
	if err != nil {
		return nil, err
	}
	if m.kind == Express {
		return nil, notForExpress("ListExecutions")
	}
	from := 0
	if in.NextToken != "" {
		if from, err = strconv.Atoi(in.NextToken); err != nil || from < 0 {
			return nil, modelled("InvalidToken", "Invalid Token: '%s'", in.NextToken)
		}
	}
	if in.MaxResults == 0 {
		in.MaxResults = 100
	}
	if in.MaxResults < 0 || in.MaxResults > 1000 {
		return nil, invalid("Value '%d' at 'maxResults' failed to satisfy constraint: Member must be between 0 and 1000", in.MaxResults)
	}
	rows := []map[string]any{}
	for _, e := range slices.Backward(m.all) {
		if s.gone(e) || s.hidden(e) || in.StatusFilter != "" && in.StatusFilter != e.status {
			continue
		}
		row := map[string]any{
			"executionArn": e.arn, "stateMachineArn": e.machineArn, "name": e.name, "status": e.status, "startDate": epoch(e.started),
		}
		if e.status != Running {
			row["stopDate"] = epoch(e.stopped)
		}
		rows = append(rows, row)
	}
	from = min(from, len(rows))
	to := min(from+in.MaxResults, len(rows))
	out := map[string]any{"executions": rows[from:to]}
	if to < len(rows) {
		out["nextToken"] = strconv.Itoa(to)
	}
	return out, nil
}
