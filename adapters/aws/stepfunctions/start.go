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

// callTimeout bounds one request: a connection on which nothing comes any more is given up.
const callTimeout = 10 * time.Second

// word is what an answer of the service means.
type word uint8

const (
	// refused: this input or name will never be taken. notNow: nothing was done, and somebody or time can fix it: throttling,
	// quotas, permissions, a machine that is not there. unanswered: nobody knows. exists: the name is taken.
	refused word = iota + 1
	notNow
	unanswered
	exists
	unlike   // an execution of this name has another input
	unproven // there is an execution of this name, and its input cannot be read
)

// startError is a start that did not end well, with what is known of it.
type startError struct {
	word word
	err  error
	// doubt: an earlier try of the same call was not answered.
	doubt bool
	// throttled: it is worth another try at once.
	throttled bool
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// listen classifies an error of the service.
func listen(err error) *startError {
	var api smithy.APIError
	var res *awshttp.ResponseError
	status, code := 0, ""
	if errors.As(err, &res) {
		status = res.HTTPStatusCode()
	}
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	e := &startError{word: notNow, err: err}
	switch {
	case code == "" || status < 400 || status >= 500 || status == http.StatusRequestTimeout:
		e.word, e.err = unanswered, errors.Join(semel.ErrNoResponse, err)
	case code == "ExecutionAlreadyExists":
		e.word = exists
	case code == "InvalidName", code == "InvalidExecutionInput":
		e.word = refused
	case status == http.StatusTooManyRequests, code == "ThrottlingException", code == "TooManyRequestsException",
		code == "RequestLimitExceeded", code == "KmsThrottlingException", code == "ExecutionLimitExceeded":
		e.throttled = true
	}
	return e
}

// start starts the execution of a name. What is not answered is the same call again (law 4), with the same bytes; the name
// makes that safe, and EXPRESS machines, which have none, are asked once. known: it was there before, and is closed.
func (s *Starter) start(ctx context.Context, name, input string) (e Execution, known bool, err error) {
	patience := s.Patience
	if patience == 0 {
		patience = DefaultPatience
	}
	began, doubt := time.Now(), false
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		e, known, problem := s.once(ctx, name, input)
		if problem == nil {
			return e, known, nil
		}
		problem.doubt = doubt
		doubt = doubt || problem.word == unanswered
		again := !s.express() && (problem.word == unanswered || problem.throttled)
		if !again || time.Since(began)+pause > patience || !wait(ctx, pause) {
			return Execution{}, false, problem
		}
	}
}

// wait waits, and reports whether ctx goes on.
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
	if problem = listen(err); problem.word == exists {
		return s.verify(ctx, name, input)
	}
	return Execution{}, false, problem
}

// verify looks at the execution that has the name: ours, or somebody else's.
func (s *Starter) verify(ctx context.Context, name, input string) (e Execution, known bool, problem *startError) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	arn := s.executionARN(name)
	out, err := s.Client.DescribeExecution(call, &sfn.DescribeExecutionInput{ExecutionArn: &arn}, noRetries)
	if missing := (*types.ExecutionDoesNotExist)(nil); errors.As(err, &missing) {
		// Descriptions lag behind, or the name became free this moment: starting it again finds out.
		return e, false, &startError{word: unanswered, err: fmt.Errorf("%w: the name is taken, and its execution is not there: %w",
			semel.ErrNoResponse, err)}
	}
	if err != nil {
		problem = listen(err)
		problem.err = fmt.Errorf("look at the execution that has the name %s (states:DescribeExecution): %w", name, problem.err)
		if problem.word == refused {
			problem.word = notNow
		}
		return e, false, problem
	}
	if out.Input == nil {
		return e, false, &startError{word: unproven, err: fmt.Errorf(
			"execution %s exists, and its input cannot be read: allow kms:Decrypt for the key of the state machine", arn)}
	}
	if theirs, err := key.CanonicalJSON([]byte(*out.Input)); *out.Input != input && (err != nil || string(theirs) != input) {
		return e, false, &startError{word: unlike, err: fmt.Errorf("%w: execution %s has another input", semel.ErrMismatch, arn)}
	}
	return Execution{ARN: arn, Name: name, Started: aws.ToTime(out.StartDate)}, true, nil
}

func noRetries(o *sfn.Options) { o.Retryer = aws.NopRetryer{} }

// canonical is the input as it is sent: byte for byte the same for the same value.
func canonical(input []byte) (string, error) {
	if input == nil {
		return "{}", nil
	}
	b, err := key.CanonicalJSON(input)
	if err != nil {
		return "", fmt.Errorf("input: %w (give JSON; a string is written in quotes)", err)
	}
	if len(b) > MaxInput {
		return "", fmt.Errorf("input: has %d bytes, more than %d: store it, and give its place and version", len(b), MaxInput)
	}
	return string(b), nil
}

// fingerprint is that of the canonical input, under a recipe of its own.
func fingerprint(input string) semel.Fingerprint {
	sum := sha256.Sum256([]byte(input))
	return semel.Fingerprint("sfn1" + string(sum[:]))
}

// json is the result of the record.
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

// applied tells that the call may have started something of this key.
func (e *startError) applied() bool { return e.doubt || e.word == unanswered || e.word == unproven }

// mark tells Do what an error leaves behind. Nothing is failed for good: there is no dead letter that would tell anybody, and
// whoever asks again is told again.
func mark(err error) error {
	var e *startError
	if errors.As(err, &e) && !e.applied() {
		return semel.NotApplied(err)
	}
	return err
}

// markForConsumer tells a consumer what becomes of the message: a dead letter for what can never be started, another delivery
// without a spent attempt for what is the service's or the configuration's fault, a person for what EXPRESS leaves open.
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
	if e.word == refused || e.word == unlike {
		return semel.Permanent(err)
	}
	return semel.Unavailable(err)
}
