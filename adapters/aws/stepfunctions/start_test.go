package stepfunctions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/key"

	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
	"github.com/semel-dev/semel/adapters/aws/stepfunctions"
	"github.com/semel-dev/semel/memory"
)

const machine = "csv"

// fixture is a state machine with its starters. store is nil at the level of the name.
type fixture struct {
	*testing.T
	fake  *fakesfn.Server
	clock *awstest.Clock
	arn   string
	store semel.Store
}

// levels runs a test in virtual time with the name alone, and with claim and name.
func levels(t *testing.T, test func(*fixture)) {
	for name, store := range map[string]func() semel.Store{
		"light": func() semel.Store { return nil }, "medium": func() semel.Store { return memory.NewStore() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(newFixture(t, fakesfn.Options{}, fakesfn.Standard, store())) })
		})
	}
}

func newFixture(t *testing.T, o fakesfn.Options, kind string, store semel.Store) *fixture {
	o.Clock = awstest.System()
	fake := fakesfn.New(o)
	return &fixture{T: t, fake: fake, clock: o.Clock, arn: fake.Machine(machine, kind), store: store}
}

// starter is a process that starts executions over a connection with faults.
func (s *fixture) starter(schedule ...awstest.Fault) *stepfunctions.Starter {
	faults := awstest.NewFaults(awstest.Plan{Schedule: schedule})
	s.Cleanup(faults.Wait)
	return &stepfunctions.Starter{
		Client: sfn.NewFromConfig(awstest.Config(s.fake, faults.Wrap)), StateMachineARN: s.arn, Store: s.store,
	}
}

// started returns the number of all executions.
func (s *fixture) started() int { return len(s.fake.Executions(machine)) }

func (s *fixture) mustHave(want int) {
	s.Helper()
	if got := s.fake.Executions(machine); len(got) != want {
		s.Errorf("%d executions were started, want %d: %+v", len(got), want, got)
	}
}

func (s *fixture) finish(arn string) {
	s.Helper()
	if err := s.fake.Finish(arn, fakesfn.Succeeded, "{}"); err != nil {
		s.Error(err)
	}
}

func code(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

var report = key.Tuple("bucket", "in/a b.csv", "v1")

const input = `{"bucket":"bucket","key":"in/a b.csv","version":"v1"}`

func TestOneStartOfManyCallers(t *testing.T) {
	levels(t, func(s *fixture) {
		var wg sync.WaitGroup
		arns := make([]string, 20)
		for i := range arns {
			wg.Go(func() {
				starter := s.starter() // each a process of its own
				for {
					// The same value, written by different programs.
					e, _, err := starter.Start(s.Context(), report, []byte([]string{
						input, ` { "key":"in/a b.csv", "version" : "v1","bucket":"\u0062ucket"}`,
					}[i%2]))
					if errors.Is(err, semel.ErrBusy) {
						time.Sleep(time.Second)
						continue
					}
					if err != nil {
						s.Error(err)
					}
					arns[i] = e.ARN
					return
				}
			})
		}
		wg.Wait()
		s.mustHave(1)
		for _, arn := range arns {
			if arn != s.fake.Executions(machine)[0].ARN {
				s.Errorf("a caller got %q", arn)
			}
		}
	})
}

func TestAStartOfAClosedExecution(t *testing.T) {
	levels(t, func(s *fixture) {
		first, d, err := s.starter().Start(s.Context(), report, []byte(input))
		if err != nil || d != semel.Executed {
			s.Fatal(d, err)
		}
		s.finish(first.ARN)
		again, d, err := s.starter().Start(s.Context(), report, []byte(input))
		if err != nil || d != semel.Replayed || again.ARN != first.ARN || again.Name != first.Name || !again.Started.Equal(first.Started) {
			s.Errorf("%+v %s %v, want %+v", again, d, err, first)
		}
		s.mustHave(1)
	})
}

// TestFM51_AnotherInput: a key that was used with another input is a mismatch, never a duplicate, and starts nothing.
func TestFM51_AnotherInput(t *testing.T) {
	levels(t, func(s *fixture) {
		first, _, err := s.starter().Start(s.Context(), report, []byte(input))
		if err != nil {
			s.Fatal(err)
		}
		for _, closed := range []bool{false, true} {
			e, d, err := s.starter().Start(s.Context(), report, []byte(`{"other":1}`))
			if !errors.Is(err, semel.ErrMismatch) || d != semel.Mismatched || e.ARN != "" {
				s.Errorf("closed %t: %+v %s %v", closed, e, d, err)
			}
			if !closed {
				s.finish(first.ARN)
			}
		}
		s.mustHave(1)
	})
}

// TestS2_07_StartTimesOutButSucceeded: whatever happens to requests and responses, there is one execution in the end, and
// the caller gets it.
func TestS2_07_StartTimesOutButSucceeded(t *testing.T) {
	fault := func(call int, kind awstest.Kind, done bool) awstest.Fault {
		return awstest.Fault{Operation: "StartExecution", Call: call, Kind: kind, Done: done, By: 3 * time.Second}
	}
	for name, plan := range map[string][]awstest.Fault{
		"response lost":                {fault(1, awstest.After, false)},
		"responses lost":               {fault(1, awstest.After, false), fault(2, awstest.After, false), fault(3, awstest.Torn, false)},
		"hangs, and was done":          {fault(1, awstest.Hang, true)},
		"hangs":                        {fault(1, awstest.Hang, false)},
		"done late, after the next":    {fault(1, awstest.Late, false)},
		"500, and was done":            {fault(1, awstest.Internal, true)},
		"transient fault":              {fault(1, awstest.Internal, false), fault(2, awstest.Unavailable, false)},
		"throttled":                    {fault(1, awstest.Throttled, false), fault(2, awstest.Throttled, false)},
		"network delay":                {{Operation: "StartExecution", Call: 1, Kind: awstest.Delay, By: 30 * time.Second, Done: true}},
		"done, then the look hangs":    {fault(1, awstest.After, false), {Operation: "DescribeExecution", Call: 1, Kind: awstest.Hang}},
		"connection breaks beforehand": {fault(1, awstest.Before, false)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, closed := range []bool{false, true} {
				levels(t, func(s *fixture) {
					if closed { // the execution ends before the request with the lost response is repeated
						go func() {
							for s.started() == 0 {
								time.Sleep(10 * time.Millisecond)
							}
							s.finish(s.fake.Executions(machine)[0].ARN)
						}()
					}
					e, _, err := s.starter(plan...).Start(s.Context(), report, []byte(input))
					synctest.Wait()
					time.Sleep(time.Minute) // what is late has arrived
					s.mustHave(1)
					if err != nil || e.ARN != s.fake.Executions(machine)[0].ARN {
						s.Errorf("%+v %v", e, err)
					}
				})
			}
		})
	}
}

// TestS2_07_PermissionLaterFixed: a refusal leaves nothing behind, and the same call starts it after the role is fixed.
func TestS2_07_PermissionLaterFixed(t *testing.T) {
	levels(t, func(s *fixture) {
		starter := s.starter()
		for _, op := range []string{"DescribeStateMachine", "StartExecution"} {
			s.fake.Deny(op, true)
			if e, _, err := starter.Start(s.Context(), report, []byte(input)); code(err) != "AccessDeniedException" || e.ARN != "" {
				s.Errorf("%s: %+v %v", op, e, err)
			}
			s.fake.Deny(op, false)
		}
		s.mustHave(0)
		for range 2 {
			if _, _, err := starter.Start(s.Context(), report, []byte(input)); err != nil {
				s.Error(err)
			}
		}
		s.mustHave(1)
	})
}

// TestUnreadableExecution: an execution with the name that cannot be read is no success, and no mismatch.
func TestUnreadableExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, fakesfn.Options{}, fakesfn.Standard, nil)
		first, _, err := s.starter().Start(t.Context(), report, []byte(input))
		if err != nil {
			t.Fatal(err)
		}
		s.finish(first.ARN)
		s.fake.Deny("DescribeExecution", true)
		_, d, err := s.starter().Start(t.Context(), report, []byte(input))
		if code(err) != "AccessDeniedException" || errors.Is(err, semel.ErrMismatch) || d != semel.Retried || !strings.Contains(err.Error(), "states:DescribeExecution") {
			t.Errorf("%s %v", d, err)
		}
		blind := s.starter()
		blind.Client = unreadable{blind.Client}
		s.fake.Deny("DescribeExecution", false)
		if _, _, err = blind.Start(t.Context(), report, []byte(input)); err == nil || !strings.Contains(err.Error(), "kms:Decrypt") {
			t.Errorf("an unreadable input: %v", err)
		}
	})
}

// unreadable is a service whose inputs are encrypted with a key that the caller must not use.
type unreadable struct{ stepfunctions.Client }

func (u unreadable) DescribeExecution(
	ctx context.Context, in *sfn.DescribeExecutionInput, f ...func(*sfn.Options),
) (*sfn.DescribeExecutionOutput, error) {
	out, err := u.Client.DescribeExecution(ctx, in, f...)
	if out != nil {
		out.Input = nil
	}
	return out, err
}

// TestDescriptionsLag: the service refuses the name before its descriptions show the execution.
func TestDescriptionsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, fakesfn.Options{Lag: 2 * time.Second}, fakesfn.Standard, nil)
		go func() {
			for s.started() == 0 {
				time.Sleep(time.Millisecond)
			}
			s.finish(s.fake.Executions(machine)[0].ARN)
		}()
		lost := awstest.Fault{Operation: "StartExecution", Call: 1, Kind: awstest.After}
		if e, d, err := s.starter(lost).Start(t.Context(), report, []byte(input)); err != nil || d != semel.Replayed || e.ARN == "" {
			t.Errorf("%+v %s %v", e, d, err)
		}
		s.mustHave(1)
	})
}

// TestRetryFor: a start is repeated for a while without a response. Then the outcome is unknown, and calling again is safe.
func TestRetryFor(t *testing.T) {
	levels(t, func(s *fixture) {
		faults := awstest.NewFaults(awstest.Plan{Operations: map[string]awstest.Rates{"StartExecution": {After: 1}}})
		starter := s.starter()
		starter.Client, starter.RetryFor = sfn.NewFromConfig(awstest.Config(s.fake, faults.Wrap)), 20*time.Second
		began := time.Now()
		_, d, err := starter.Start(s.Context(), report, []byte(input))
		if took := time.Since(began); !errors.Is(err, semel.ErrNoResponse) || d != semel.Retried || took < 10*time.Second || took > 20*time.Second {
			s.Errorf("%s %v after %v", d, err, took)
		}
		if e, _, err := s.starter().Start(s.Context(), report, []byte(input)); err != nil || e.ARN == "" {
			s.Errorf("%+v %v", e, err)
		}
		s.mustHave(1)
	})
}

// TestFM41_NamesAreForgotten: 90 days after its execution closed a name is free. A record that is kept longer still knows
// the key. The name alone does not, as Guarantee says.
func TestFM41_NamesAreForgotten(t *testing.T) {
	levels(t, func(s *fixture) {
		starter := s.starter()
		first, _, err := starter.Start(s.Context(), report, []byte(input))
		if err != nil {
			s.Fatal(err)
		}
		s.finish(first.ARN)
		again := func(want int) {
			s.Helper()
			if _, _, err := s.starter().Start(s.Context(), report, []byte(input)); err != nil {
				s.Error(err)
			}
			s.mustHave(want)
		}
		time.Sleep(stepfunctions.NameKept - time.Minute)
		again(1)
		time.Sleep(2 * time.Minute)
		if s.store == nil {
			again(2)
			if g := starter.Guarantee(); !strings.Contains(g, "until 90 days after it closed; afterwards") {
				s.Error(g)
			}
			return
		}
		again(1)
		if g := starter.Guarantee(); !strings.Contains(g, "while its record is kept (100 days)") {
			s.Error(g)
		}
	})
}

func TestRefusedInputs(t *testing.T) {
	levels(t, func(s *fixture) {
		full := `"` + strings.Repeat("x", stepfunctions.MaxInput-2) + `"`
		for name, c := range map[string]struct{ key, input, says string }{
			"no JSON":        {"a", `{"a":`, "input: json at byte"},
			"a name twice":   {"a", `{"a":1,"a":2}`, "input: json at byte"},
			"more behind it": {"a", full + " x", "input: json at byte"},
			"one byte more":  {"a", `"x` + full[1:], "has 262145 bytes, more than 262144"},
			"an empty key":   {"", `{}`, "the key is empty"},
			"a control byte": {"a\x00", `{}`, "control"},
		} {
			if _, _, err := s.starter().Start(s.Context(), c.key, []byte(c.input)); err == nil || !strings.Contains(err.Error(), c.says) {
				s.Errorf("%s: %v", name, err)
			}
		}
		s.mustHave(0)
		for i, in := range []string{full, " " + full + "\n", ""} {
			var raw []byte
			if in != "" {
				raw = []byte(in)
			}
			if _, _, err := s.starter().Start(s.Context(), fmt.Sprint("ok", i), raw); err != nil {
				s.Errorf("input %d: %v", i, err)
			}
		}
		s.mustHave(3)
	})
}

func TestConfigErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, fakesfn.Options{}, fakesfn.Standard, nil)
		for field, change := range map[string]func(*stepfunctions.Starter){
			"Client":          func(st *stepfunctions.Starter) { st.Client = nil },
			"StateMachineARN": func(st *stepfunctions.Starter) { st.StateMachineARN = "csv" },
			"WithRetention":   func(st *stepfunctions.Starter) { st.Store, st.Retention = memory.NewStore(), -1 },
			"WithLease":       func(st *stepfunctions.Starter) { st.Store, st.Lease = memory.NewStore(), -1 },
		} {
			starter := s.starter()
			change(starter)
			var bad *semel.ConfigError
			if _, _, err := starter.Start(t.Context(), report, nil); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		s.mustHave(0)
		alias := s.starter()
		alias.StateMachineARN += ":PROD"
		e, _, err := alias.Start(t.Context(), report, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.finish(e.ARN)
		if again, d, err := alias.Start(t.Context(), report, nil); err != nil || d != semel.Replayed || again.ARN != e.ARN {
			t.Errorf("of an alias: %+v %s %v", again, d, err)
		}
	})
}
