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
	// DefaultRetention is how long records are kept: longer than a name, so that a record decides as long as one of both does.
	DefaultRetention = NameKept + 10*24*time.Hour
	// DefaultPatience is how long an unanswered or throttled start is repeated.
	DefaultPatience = time.Minute
)

// Client is what a Starter needs of *sfn.Client: the permissions states:StartExecution, states:DescribeExecution and
// states:DescribeStateMachine.
type Client interface {
	StartExecution(context.Context, *sfn.StartExecutionInput, ...func(*sfn.Options)) (*sfn.StartExecutionOutput, error)
	DescribeExecution(context.Context, *sfn.DescribeExecutionInput, ...func(*sfn.Options)) (*sfn.DescribeExecutionOutput, error)
	DescribeStateMachine(context.Context, *sfn.DescribeStateMachineInput, ...func(*sfn.Options)) (*sfn.DescribeStateMachineOutput, error)
}

// Starter starts the executions of one state machine, one for each key. Its methods may be called concurrently; its fields
// must not change after the first call.
type Starter struct {
	// Client is a *sfn.Client. Its own repetitions are not used: a Starter has to hear of every try.
	Client Client
	// StateMachineARN is that of the machine, or of a version or an alias of it. Names are the machine's: two aliases share
	// them.
	StateMachineARN string
	// Store keeps a record for each key; nil = the name alone (see the package's comment). [Starter.Handler] uses the
	// consumer's store instead.
	Store semel.Store
	// Consumer is the scope of the keys' records. Defaults to "stepfunctions:" and the machine's name. Tenant is the keys'.
	Consumer, Tenant string
	// Retention is how long records are kept. Defaults to [DefaultRetention]; shorter, and duplicates that come between its
	// end and that of the name are still recognised by the name.
	Retention time.Duration
	// Lease is how long a claim lasts without a heartbeat. Defaults to that of [semel.Do].
	Lease time.Duration
	// Patience is for how long a start is repeated that was not answered, or was throttled. Defaults to [DefaultPatience].
	Patience time.Duration
	// AcceptDoubt lets EXPRESS machines be started, which needs a Store: the policy is then [semel.Once], a start without an
	// answer and a run that went without a word are parked for a person, and nothing is repeated.
	AcceptDoubt bool

	mu   sync.Mutex
	kind types.StateMachineType
}

// Execution is what was started.
type Execution struct {
	ARN  string `json:"arn"`
	Name string `json:"name"`
	// Started is by the service's clock.
	Started time.Time `json:"started"`
}

// Start starts the execution of a key, unless that was done before, and answers which one it is. input is JSON, up to
// [MaxInput] bytes in its canonical form; nil = {}. It has to say the same for every duplicate: make it of what the key is
// made of, not of the event that brought it, whose id and time differ from copy to copy.
//
// Decisions: Executed (with no Store also for a duplicate that came while the first one still ran: the service answers both
// alike); Replayed: it was started before, whatever became of it; Mismatched. It blocks until the service has answered, for
// [Starter.Patience] at the most.
//
// Errors: [semel.ErrMismatch], the key was used with another input; [semel.ErrBusy], somebody else is at it: come back;
// [semel.ErrNoResponse], nobody knows whether it was started: call it again with the same key and input, which is safe;
// [semel.ErrUncertain], of EXPRESS machines: a person has to look; [semel.ErrResultNotStored], it is done, and
// the record does not tell which execution it was; *[semel.ConfigError]; *[key.Error]; what the service
// says. Call it again after each of them but the first: nothing is ever started twice by that.
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

// Handler starts an execution for each message of a consumer. input makes its input out of the message; nil = the message's
// body. The consumer's record remembers the execution as the result; Retention, takeover policy and attempts are the
// consumer's. With an EXPRESS machine set [semel.Config.Takeover] to [semel.Once]: what the Starter finds interrupted it
// parks, but it cannot make the consumer do so for a run that died.
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

// Guarantee says what this configuration gives, in a sentence, and no more.
func (s *Starter) Guarantee() string {
	switch {
	case s.AcceptDoubt:
		return "one start per key and record; EXPRESS executions have no names, so a start without an answer waits for a person"
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

// machine splits the ARN: what comes before the resource, and the machine's name without version or alias.
func (s *Starter) machine() (head, name string, ok bool) {
	parts := strings.Split(s.StateMachineARN, ":")
	if len(parts) < 7 || len(parts) > 8 || parts[0] != "arn" || parts[2] != "states" || parts[5] != "stateMachine" || parts[6] == "" {
		return "", "", false
	}
	return strings.Join(parts[:5], ":"), parts[6], true
}

// executionARN is that of the execution of a name.
func (s *Starter) executionARN(name string) string {
	head, machine, _ := s.machine()
	return head + ":execution:" + machine + ":" + name
}

// check refuses what cannot hold, and asks once which type the machine has.
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
			Hint: "use a STANDARD machine, or set Store and AcceptDoubt: a start without an answer then waits for a person",
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
