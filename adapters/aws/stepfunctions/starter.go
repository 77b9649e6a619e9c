package stepfunctions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
)

const (
	// MaxInput is the most bytes that the input of an execution may have.
	//
	// https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
	MaxInput = 256 << 10
	// DefaultRetention is how long records are kept. It is longer than NameKept, so that the record decides as long as the
	// name could.
	DefaultRetention = NameKept + 10*24*time.Hour
	// DefaultRetryFor is the default of Starter.RetryFor.
	DefaultRetryFor = time.Minute
)

// Client is the part of *sfn.Client that a Starter uses. It needs the permissions states:StartExecution,
// states:DescribeExecution and states:DescribeStateMachine.
type Client interface {
	StartExecution(context.Context, *sfn.StartExecutionInput, ...func(*sfn.Options)) (*sfn.StartExecutionOutput, error)
	DescribeExecution(context.Context, *sfn.DescribeExecutionInput, ...func(*sfn.Options)) (*sfn.DescribeExecutionOutput, error)
	DescribeStateMachine(context.Context, *sfn.DescribeStateMachineInput, ...func(*sfn.Options)) (*sfn.DescribeStateMachineOutput, error)
}

// Starter starts the executions of one state machine, one for each key. Its methods may be called concurrently; its fields
// must not change after the first call.
type Starter struct {
	// Client is a *sfn.Client. Its retries are switched off: a Starter must know the result of every try.
	Client Client
	// StateMachineARN is the ARN of the machine, or of a version or an alias of it. Names belong to the machine: two aliases
	// share them.
	StateMachineARN string
	// Store keeps a record for each key; nil = the name alone (see the package's comment). [Starter.Handler] uses the
	// consumer's store instead.
	Store semel.Store
	// Consumer is the scope of the records. Defaults to "stepfunctions:" and the machine's name. Tenant is that of the keys.
	Consumer, Tenant string
	// Retention is how long records are kept. Defaults to [DefaultRetention]. If it is shorter than [NameKept], later
	// duplicates are still recognised by the name.
	Retention time.Duration
	// Lease is how long a claim lasts without a heartbeat. Defaults to that of [semel.Do].
	Lease time.Duration
	// RetryFor is for how long a start that was throttled or got no response is repeated. Defaults to [DefaultRetryFor].
	RetryFor time.Duration
	// AcceptDoubt allows EXPRESS machines, which need a Store. The policy is then [semel.Once]: starts without a response
	// and runs whose lease expired are parked for a person, and nothing is repeated.
	AcceptDoubt bool

	mu   sync.Mutex
	kind types.StateMachineType
}

// Execution is a started execution.
type Execution struct {
	ARN  string `json:"arn"`
	Name string `json:"name"`
	// Started is by the service's clock.
	Started time.Time `json:"started"`
}

// Start starts the execution of a key, unless it was started before, and returns it. input is JSON, up to [MaxInput] bytes
// in its canonical form; nil = {}. It must be the same for every duplicate: derive it from the same data as the key, not
// from the event, whose ID and time differ between copies.
//
// Decisions:
//
//   - Executed: it was started. Without a Store also for a duplicate while the first execution runs: the service's responses
//     do not differ.
//   - Replayed: it was started before, whatever its outcome.
//   - Mismatched: the key was used with another input.
//
// Start blocks until the service has responded, at most for [Starter.RetryFor]. Errors:
//
//   - [semel.ErrMismatch]: the key was used with another input.
//   - [semel.ErrBusy]: another call is starting it. Try again later.
//   - [semel.ErrNoResponse]: it is unknown whether it was started. Calling again with the same key and input is safe.
//   - [semel.ErrUncertain], for EXPRESS machines: a person must decide.
//   - [semel.ErrResultNotStored]: it was started, but the record does not say which execution it is.
//   - *[semel.ConfigError], *[key.Error], and errors of the service.
//
// After every error except the first you may call Start again: that never starts an execution twice.
func (s *Starter) Start(ctx context.Context, raw string, input []byte) (Execution, semel.Decision, error) {
	var none Execution
	k := semel.Key{Consumer: s.consumer(), Tenant: s.Tenant, Raw: raw}
	if err := key.Check(raw); err != nil {
		return none, "", err
	}
	text, err := canonical(input)
	if err != nil {
		return none, "", fmt.Errorf("start key %q: %w", raw, err)
	}
	if err := s.check(ctx, s.Store != nil); err != nil {
		return none, "", fmt.Errorf("start key %q: %w", raw, err)
	}
	if s.Store == nil {
		e, known, err := s.start(ctx, Name(k), text)
		return e, decided(known, err), named(raw, err)
	}
	known := false
	run := func(ctx context.Context, a *semel.Attempt) (e Execution, err error) {
		e, known, err = s.start(ctx, nameOf(a.Hold()), text)
		return e, mark(err)
	}
	e, d, err := semel.Do(ctx, s.Store, k, run, s.options(text)...)
	if d == semel.Executed && known {
		d = semel.Replayed
	}
	if errors.Is(err, semel.ErrMismatch) {
		d = semel.Mismatched
	}
	return e, d, named(raw, err)
}

func (s *Starter) options(input string) []semel.DoOption {
	o := []semel.DoOption{semel.WithFingerprint(fingerprint(input)), semel.WithRetention(s.retention())}
	if s.Lease != 0 {
		o = append(o, semel.WithLease(s.Lease))
	}
	if s.express() {
		o = append(o, semel.WithTakeover(semel.Once))
	}
	return o
}

// Handler starts an execution for each message of a consumer. input makes its input from the message; nil = the message's
// body. The consumer's record keeps the execution as its result. Retention, takeover policy and attempts are the consumer's.
// With an EXPRESS machine set [semel.Config.Takeover] to [semel.Once]: the Starter parks a start that it finds interrupted,
// but cannot make the consumer park a run whose worker died.
func (s *Starter) Handler(input func(ctx context.Context, a *semel.Attempt) ([]byte, error)) semel.Handler {
	return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
		raw, err := a.Body, error(nil)
		if input != nil {
			raw, err = input(ctx, a)
		}
		if err != nil {
			return err
		}
		text, err := canonical(raw)
		if err != nil {
			return semel.NotApplied(semel.Permanent(err))
		}
		if err := s.check(ctx, true); err != nil {
			return semel.NotApplied(semel.Unavailable(err))
		}
		if s.express() && a.Unknown {
			return semel.Park(errors.New("an earlier run may have started it, and EXPRESS executions have no names"))
		}
		e, _, err := s.start(ctx, nameOf(a.Hold()), text)
		if err != nil {
			return s.markForConsumer(err)
		}
		a.SetResult(e.json())
		return nil
	})
}

// Guarantee describes in one sentence what this configuration guarantees.
func (s *Starter) Guarantee() string {
	switch {
	case s.AcceptDoubt:
		return "one start per key and record; EXPRESS executions have no names, so a start without a response waits for a person"
	case s.Store == nil:
		return "one execution per key until 90 days after it closed; afterwards the key starts another one"
	}
	return fmt.Sprintf("one execution per key while its record is kept (%s), and until 90 days after it closed", days(s.retention()))
}

func days(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.String()
}

func (s *Starter) consumer() string {
	if s.Consumer != "" {
		return s.Consumer
	}
	_, name, _ := s.machine()
	return "stepfunctions:" + name
}

func (s *Starter) retention() time.Duration {
	if s.Retention == 0 {
		return DefaultRetention
	}
	return s.Retention
}

// machine splits the ARN into the part before the resource and the machine's name without version or alias.
func (s *Starter) machine() (head, name string, ok bool) {
	parts := strings.Split(s.StateMachineARN, ":")
	if len(parts) < 7 || len(parts) > 8 || parts[0] != "arn" || parts[2] != "states" || parts[5] != "stateMachine" || parts[6] == "" {
		return "", "", false
	}
	return strings.Join(parts[:5], ":"), parts[6], true
}

// executionARN returns the ARN of the execution with a name.
func (s *Starter) executionARN(name string) string {
	head, machine, _ := s.machine()
	return head + ":execution:" + machine + ":" + name
}

// check refuses invalid configurations, and asks once for the type of the machine.
func (s *Starter) check(ctx context.Context, recorded bool) error {
	if s.Client == nil {
		return &semel.ConfigError{Field: "Client", Problem: "is nil", Hint: "use sfn.NewFromConfig"}
	}
	if _, _, ok := s.machine(); !ok {
		return &semel.ConfigError{
			Field: "StateMachineARN", Problem: fmt.Sprintf("%q is not that of a state machine", s.StateMachineARN),
			Hint: "use arn:aws:states:REGION:ACCOUNT:stateMachine:NAME, with :VERSION or :ALIAS if need be",
		}
	}
	kind, err := s.ask(ctx)
	switch {
	case err != nil:
		return err
	case kind != types.StateMachineTypeExpress:
		return nil
	case !s.AcceptDoubt:
		return &semel.ConfigError{
			Field: "StateMachineARN", Problem: "is an EXPRESS machine, whose executions have no names: every start is one more",
			Hint: "use a STANDARD machine, or set Store and AcceptDoubt: a start without a response then waits for a person",
		}
	case !recorded:
		return &semel.ConfigError{Field: "Store", Problem: "is nil, and the machine is EXPRESS", Hint: "set the store of the records"}
	}
	return nil
}

// ask asks for the machine's type, once.
func (s *Starter) ask(ctx context.Context) (types.StateMachineType, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind != "" {
		return s.kind, nil
	}
	out, err := s.Client.DescribeStateMachine(ctx, &sfn.DescribeStateMachineInput{
		StateMachineArn: &s.StateMachineARN, IncludedData: types.IncludedDataMetadataOnly,
	})
	if err != nil {
		return "", fmt.Errorf("ask for the type of the state machine (states:DescribeStateMachine): %w", err)
	}
	s.kind = out.Type
	return s.kind, nil
}

func (s *Starter) express() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kind == types.StateMachineTypeExpress
}
