package stepfunctions_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
	"github.com/semel-dev/semel/adapters/aws/stepfunctions"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// The steps of a start at which a process can die.
const (
	beforeStart    = "between claim and start"
	afterStart     = "between start and completion"
	afterComplete  = "after the completion"
	beforeComplete = "before the completion is sent"
)

// mortal is a service, or a store, whose caller dies at a step: its goroutine ends, and releases and extends nothing.
type mortal struct {
	stepfunctions.Client
	semel.Store
	at string
}

type mortalClient struct{ mortal }

func (m mortalClient) StartExecution(
	ctx context.Context, in *sfn.StartExecutionInput, f ...func(*sfn.Options),
) (*sfn.StartExecutionOutput, error) {
	if m.at == beforeStart {
		runtime.Goexit()
	}
	out, err := m.Client.StartExecution(ctx, in, f...)
	if m.at == afterStart {
		runtime.Goexit()
	}
	return out, err
}

type mortalStore struct{ mortal }

func (m mortalStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	return m.Store.Claim(ctx, c...)
}

func (m mortalStore) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	return m.Store.Extend(ctx, lease, h...)
}

func (m mortalStore) Features() driver.StoreFeatures { return m.Store.Features() }

func (m mortalStore) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if m.at == beforeComplete {
		runtime.Goexit()
	}
	out, err := m.Store.Finish(ctx, f...)
	if m.at == afterComplete {
		runtime.Goexit()
	}
	return out, err
}

// die starts a key in a process that dies at a step.
func (s *fixture) die(at string, change func(*stepfunctions.Starter)) {
	s.Helper()
	ended := make(chan bool)
	go func() {
		survived := false
		defer func() { ended <- survived }()
		starter := s.starter()
		starter.Client = mortalClient{mortal{Client: starter.Client, at: at}}
		starter.Store = mortalStore{mortal{Store: s.store, at: at}}
		if change != nil {
			change(starter)
		}
		_, _, err := starter.Start(s.Context(), report, []byte(input))
		survived = true
		s.Errorf("%s: it did not die, and returned %v", at, err)
	}()
	<-ended
}

// TestS2_14_CrashBetweenClaimAndStart: in a published design the mark that is written before the start stays forever if the
// process dies, and the file is never processed. A claim is taken over, and the same name started.
func TestS2_14_CrashBetweenClaimAndStart(t *testing.T) {
	for at, before := range map[string]int{beforeStart: 0, afterStart: 1, beforeComplete: 1, afterComplete: 1} {
		for _, closed := range []bool{false, true} {
			t.Run(at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newFixture(t, fakesfn.Options{}, fakesfn.Standard, memory.NewStore())
					s.die(at, nil)
					s.mustHave(before)
					if at != afterComplete {
						_, d, err := s.starter().Start(t.Context(), report, []byte(input))
						if !errors.Is(err, semel.ErrBusy) || d != semel.BusyDeferred {
							t.Errorf("while the lease lasts: %s %v", d, err)
						}
					}
					if closed && before > 0 {
						s.finish(s.fake.Executions(machine)[0].ARN)
					}
					time.Sleep(30 * time.Second) // the lease has ended
					for i := range 2 {
						e, d, err := s.starter().Start(t.Context(), report, []byte(input))
						if err != nil || len(s.fake.Executions(machine)) == 0 || e.ARN != s.fake.Executions(machine)[0].ARN {
							t.Errorf("after the lease: %+v %s %v", e, d, err)
						}
						if (i > 0 || at == afterComplete) && d != semel.Replayed {
							t.Errorf("a duplicate is %s", d)
						}
					}
					s.mustHave(1)
				})
			})
		}
	}
}

// TestExpress: EXPRESS machines are refused. With AcceptDoubt a start with an unknown outcome is not repeated.
func TestExpress(t *testing.T) {
	doubt := func(st *stepfunctions.Starter) { st.AcceptDoubt = true }
	in := func(name string, test func(*fixture)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(newFixture(t, fakesfn.Options{}, fakesfn.Express, memory.NewStore())) })
		})
	}
	in("refused", func(s *fixture) {
		for _, store := range []semel.Store{nil, s.store} {
			starter := s.starter()
			starter.Store = store
			var bad *semel.ConfigError
			if _, _, err := starter.Start(s.Context(), report, []byte(input)); !errors.As(err, &bad) || bad.Field != "StateMachineARN" {
				s.Error(err)
			}
			starter.AcceptDoubt = true
			if _, _, err := starter.Start(s.Context(), report, []byte(input)); store == nil && (!errors.As(err, &bad) || bad.Field != "Store") {
				s.Error(err)
			}
		}
		s.mustHave(1) // of the one with a store that accepts the doubt
	})
	in("duplicates", func(s *fixture) {
		for i := range 3 {
			starter := s.starter()
			doubt(starter)
			_, d, err := starter.Start(s.Context(), report, []byte(input))
			if want := []semel.Decision{semel.Executed, semel.Replayed, semel.Replayed}[i]; err != nil || d != want {
				s.Errorf("%s %v, want %s", d, err, want)
			}
		}
		s.mustHave(1)
	})
	for _, kind := range []awstest.Kind{awstest.After, awstest.Hang, awstest.Internal} {
		in("no response: "+string(kind), func(s *fixture) {
			starter := s.starter(awstest.Fault{Operation: "StartExecution", Call: 1, Kind: kind, Done: true})
			doubt(starter)
			for i := range 2 {
				if _, d, err := starter.Start(s.Context(), report, []byte(input)); err == nil || d != semel.ParkedUncertain ||
					i > 0 && !errors.Is(err, semel.ErrUncertain) {
					s.Errorf("%s %v", d, err)
				}
			}
			s.mustHave(1)
		})
	}
	in("refused by the service", func(s *fixture) {
		starter := s.starter(awstest.Fault{Operation: "StartExecution", Call: 1, Kind: awstest.Throttled})
		doubt(starter)
		if _, d, err := starter.Start(s.Context(), report, []byte(input)); code(err) != "ThrottlingException" || d != semel.Retried {
			s.Errorf("%s %v", d, err)
		}
		if _, d, err := starter.Start(s.Context(), report, []byte(input)); err != nil || d != semel.Executed {
			s.Errorf("%s %v", d, err)
		}
		s.mustHave(1)
	})
	for at, before := range map[string]int{beforeStart: 0, afterStart: 1} {
		in("crash "+at, func(s *fixture) {
			s.die(at, doubt)
			time.Sleep(30 * time.Second)
			starter := s.starter()
			doubt(starter)
			if _, d, err := starter.Start(s.Context(), report, []byte(input)); !errors.Is(err, semel.ErrUncertain) || d != semel.ParkedUncertain {
				s.Errorf("%s %v", d, err)
			}
			s.mustHave(before)
		})
	}
}

// TestDoubtIsRecorded: a start that may have happened is not released as one that did not: neither after a lost response
// that a refusal follows, nor if the execution with the name cannot be read.
func TestDoubtIsRecorded(t *testing.T) {
	for name, wrap := range map[string]func(stepfunctions.Client) stepfunctions.Client{
		"refused after a lost response": func(c stepfunctions.Client) stepfunctions.Client { return &losing{Client: c} },
		"cannot be read":                func(c stepfunctions.Client) stepfunctions.Client { return unreadable{c} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				s := newFixture(t, fakesfn.Options{}, fakesfn.Standard, nil)
				first, _, err := s.starter().Start(t.Context(), report, []byte(input)) // without a record
				if err != nil {
					t.Fatal(err)
				}
				s.finish(first.ARN)
				starter := s.starter()
				starter.Store, starter.Client = store, wrap(starter.Client)
				if _, _, err := starter.Start(t.Context(), report, []byte(input)); err == nil {
					t.Fatal("started")
				}
				rs, err := store.Records(t.Context(), driver.RecordFilter{})
				if err != nil || len(rs) != 1 || rs[0].State != driver.Released || !rs[0].Unknown {
					t.Errorf("%+v, %v", rs, err)
				}
			})
		})
	}
}

// losing is a service that loses its first response, and then denies access.
type losing struct {
	stepfunctions.Client
	calls int
}

func (l *losing) StartExecution(
	context.Context, *sfn.StartExecutionInput, ...func(*sfn.Options),
) (*sfn.StartExecutionOutput, error) {
	if l.calls++; l.calls == 1 {
		return nil, errors.New("connection reset")
	}
	return nil, &smithy.OperationError{Err: &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusBadRequest}},
		Err:      &smithy.GenericAPIError{Code: "AccessDeniedException"},
	}}}
}
