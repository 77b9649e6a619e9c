package stepfunctions

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
)

// callTimeout bounds one request: a hanging connection is abandoned.
const callTimeout = 10 * time.Second

// class classifies the errors of the service.
type class uint8

const (
	// refused: this input or name will never be accepted. notNow: nothing was done, and time or a person can fix it:
	// throttling, quotas, permissions, a missing machine. noResponse: the outcome is unknown. exists: the name is taken.
	refused class = iota + 1
	notNow
	noResponse
	exists
	unlike   // an execution of this name has another input
	unproven // an execution of this name exists, but its input cannot be read
)

// startError is a failed start, with what is known about it.
type startError struct {
	class class
	err   error
	// doubt: an earlier try of the same call got no response.
	doubt bool
	// throttled: another try makes sense.
	throttled bool
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// classify classifies an error of the service.
func classify(err error) *startError {
	var api smithy.APIError
	var res *awshttp.ResponseError
	status, code := 0, ""
	if errors.As(err, &res) {
		status = res.HTTPStatusCode()
	}
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	e := &startError{class: notNow, err: err}
	switch {
	case code == "" || status < 400 || status >= 500 || status == http.StatusRequestTimeout:
		e.class, e.err = noResponse, errors.Join(semel.ErrNoResponse, err)
	case code == "ExecutionAlreadyExists":
		e.class = exists
	case code == "InvalidName", code == "InvalidExecutionInput":
		e.class = refused
	case status == http.StatusTooManyRequests, code == "ThrottlingException", code == "TooManyRequestsException",
		code == "RequestLimitExceeded", code == "KmsThrottlingException", code == "ExecutionLimitExceeded":
		e.throttled = true
	}
	return e
}

// start starts the execution of a name. A call without a response is repeated with the same bytes (law 4). The name makes
// that safe; for EXPRESS machines, which have none, the call is made once. known: the execution already existed, and has
// closed.
func (s *Starter) start(ctx context.Context, name, input string) (e Execution, known bool, err error) {
	retryFor := s.RetryFor
	if retryFor == 0 {
		retryFor = DefaultRetryFor
	}
	began, doubt := time.Now(), false
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		e, known, problem := s.once(ctx, name, input)
		if problem == nil {
			return e, known, nil
		}
		problem.doubt = doubt
		doubt = doubt || problem.class == noResponse
		again := !s.express() && (problem.class == noResponse || problem.throttled)
		if !again || time.Since(began)+pause > retryFor || !wait(ctx, pause) {
			return Execution{}, false, problem
		}
	}
}

// wait waits, and reports whether ctx is not done.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once is one try.
func (s *Starter) once(ctx context.Context, name, input string) (e Execution, known bool, problem *startError) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := s.Client.StartExecution(call, &sfn.StartExecutionInput{
		StateMachineArn: &s.StateMachineARN, Name: &name, Input: &input,
	}, noRetries)
	if err == nil {
		return Execution{ARN: aws.ToString(out.ExecutionArn), Name: name, Started: aws.ToTime(out.StartDate)}, false, nil
	}
	if problem = classify(err); problem.class == exists {
		return s.verify(ctx, name, input)
	}
	return Execution{}, false, problem
}

// verify reads the execution with the name: it is ours, or that of another input.
func (s *Starter) verify(ctx context.Context, name, input string) (e Execution, known bool, problem *startError) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	arn := s.executionARN(name)
	out, err := s.Client.DescribeExecution(call, &sfn.DescribeExecutionInput{ExecutionArn: &arn}, noRetries)
	if missing := (*types.ExecutionDoesNotExist)(nil); errors.As(err, &missing) {
		// Descriptions lag behind, or the name has just become free: another start shows which.
		return e, false, &startError{class: noResponse, err: fmt.Errorf("%w: the name is taken, but its execution is not found: %w",
			semel.ErrNoResponse, err)}
	}
	if err != nil {
		problem = classify(err)
		problem.err = fmt.Errorf("read the execution with the name %s (states:DescribeExecution): %w", name, problem.err)
		if problem.class == refused {
			problem.class = notNow
		}
		return e, false, problem
	}
	if out.Input == nil {
		return e, false, &startError{class: unproven, err: fmt.Errorf(
			"execution %s exists, but its input cannot be read: allow kms:Decrypt for the key of the state machine", arn)}
	}
	if theirs, err := key.CanonicalJSON([]byte(*out.Input)); *out.Input != input && (err != nil || string(theirs) != input) {
		return e, false, &startError{class: unlike, err: fmt.Errorf("%w: execution %s has another input", semel.ErrMismatch, arn)}
	}
	return Execution{ARN: arn, Name: name, Started: aws.ToTime(out.StartDate)}, true, nil
}

func noRetries(o *sfn.Options) { o.Retryer = aws.NopRetryer{} }

// canonical returns the input as it is sent: the same bytes for the same value.
func canonical(input []byte) (string, error) {
	if input == nil {
		return "{}", nil
	}
	b, err := key.CanonicalJSON(input)
	if err != nil {
		return "", fmt.Errorf("input: %w (give JSON; a string is written in quotes)", err)
	}
	if len(b) > MaxInput {
		return "", fmt.Errorf("input: has %d bytes, more than %d: store it, and pass its location and version", len(b), MaxInput)
	}
	return string(b), nil
}

// fingerprint returns the fingerprint of the canonical input, with a recipe of its own.
func fingerprint(input string) semel.Fingerprint {
	sum := sha256.Sum256([]byte(input))
	return semel.Fingerprint("sfn1" + string(sum[:]))
}

// json returns the result for the record.
func (e Execution) json() []byte {
	b, _ := json.Marshal(e) // strings and a time always encode
	return b
}

func decided(known bool, err error) semel.Decision {
	switch {
	case errors.Is(err, semel.ErrMismatch):
		return semel.Mismatched
	case err != nil:
		return semel.Retried
	case known:
		return semel.Replayed
	}
	return semel.Executed
}

func named(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("start key %q: %w", key, err)
}

// applied reports that the call may have started an execution of this key.
func (e *startError) applied() bool { return e.doubt || e.class == noResponse || e.class == unproven }

// mark tells Do whether the start may have been applied. No error is permanent: without a dead letter it would go unnoticed,
// and a caller that tries again gets the error again.
func mark(err error) error {
	var e *startError
	if errors.As(err, &e) && !e.applied() {
		return semel.NotApplied(err)
	}
	return err
}

// markForConsumer tells a consumer what to do with the message: dead-letter a start that can never succeed, redeliver
// without a spent attempt if the service or the configuration is at fault, and park an EXPRESS start with an unknown
// outcome.
func (s *Starter) markForConsumer(err error) error {
	var e *startError
	if !errors.As(err, &e) {
		return err
	}
	if !e.applied() {
		err = semel.NotApplied(err)
	} else if s.express() {
		return semel.Park(err)
	}
	if e.class == refused || e.class == unlike {
		return semel.Permanent(err)
	}
	return semel.Unavailable(err)
}
