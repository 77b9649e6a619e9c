package fakesfn_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
)

// row is a documented behaviour: the steps record what the service returned, and want is what it should return. The same
// rows run against the fake and against moto_server.
type row struct {
	name string
	// source is the page of the documentation, below docs.aws.amazon.com/step-functions/latest/apireference/API_;
	// "not recorded: …" marks a response whose text or code no page gives.
	source string
	// own: the row needs features that only the fake has: its clock, or an execution that ends.
	own bool
	// moto is why moto_server responds differently, "" if it does not.
	moto  string
	steps func(*fixture)
	want  string
}

// fixture is one service with the machine of a row, and what it returned.
type fixture struct {
	*testing.T
	c     *sfn.Client
	clock *awstest.Clock
	fake  *fakesfn.Server
	name  string
	arn   *string
	said  []string
}

func (w *fixture) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// code returns the code of an error, or "ok".
func code(err error) string {
	var e smithy.APIError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return e.ErrorCode()
	default:
		return err.Error()
	}
}

const definition = `{"StartAt":"A","States":{"A":{"Type":"Pass","End":true}}}`

// machine makes the row's machine, and records only a failure.
func (w *fixture) machine(kind types.StateMachineType, name ...string) {
	out, err := w.c.CreateStateMachine(w.Context(), &sfn.CreateStateMachineInput{
		Name: aws.String(w.name + strings.Join(name, "")), Definition: aws.String(definition), Type: kind,
		RoleArn: aws.String("arn:aws:iam::123456789012:role/any"),
	})
	if err != nil {
		w.say("%s", code(err))
		return
	}
	w.arn = out.StateMachineArn
}

// start starts an execution and returns its ARN; it records "ok" or the error.
func (w *fixture) start(name, input string) string {
	in := &sfn.StartExecutionInput{StateMachineArn: w.arn, Input: &input}
	if name != "" {
		in.Name = &name
	}
	out, err := w.c.StartExecution(w.Context(), in)
	w.say("%s", code(err))
	if err != nil {
		return ""
	}
	return *out.ExecutionArn
}

// describe records state and input of an execution.
func (w *fixture) describe(arn string) {
	out, err := w.c.DescribeExecution(w.Context(), &sfn.DescribeExecutionInput{ExecutionArn: &arn})
	if err != nil {
		w.say("%s", code(err))
		return
	}
	w.say("%s %s", out.Status, *out.Input)
}

func (w *fixture) stop(arn string) {
	_, err := w.c.StopExecution(w.Context(), &sfn.StopExecutionInput{ExecutionArn: &arn})
	w.say("%s", code(err))
}

// list records the names, newest first.
func (w *fixture) list(filter types.ExecutionStatus, most int32) {
	in := &sfn.ListExecutionsInput{StateMachineArn: w.arn, StatusFilter: filter, MaxResults: most}
	for {
		out, err := w.c.ListExecutions(w.Context(), in)
		if err != nil {
			w.say("%s", code(err))
			return
		}
		names := []string{"-"}
		for i, e := range out.Executions {
			names = append(names[:i], *e.Name)
		}
		w.say("%s", strings.Join(names, "+"))
		if out.NextToken == nil {
			return
		}
		in.NextToken = out.NextToken
	}
}

func (w *fixture) finish(arn, status string) {
	if err := w.fake.Finish(arn, status, "x"); err != nil {
		w.say("%v", err)
	}
}

func machineNameOf(r row) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, r.name)[:min(len(r.name), 60)]
}

func TestDocumentedResponses(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			clock := awstest.Frozen(time.Unix(1_700_000_000, 0))
			fake := fakesfn.New(fakesfn.Options{Clock: clock})
			w := &fixture{T: t, c: sfn.NewFromConfig(awstest.Config(fake)), clock: clock, fake: fake, name: machineNameOf(r)}
			r.steps(w)
			if got := strings.Join(w.said, " "); got != r.want {
				t.Errorf("got  %s\nwant %s\nsource: %s", got, r.want, r.source)
			}
		})
	}
}

// TestMotoAgrees compares with another emulator: if both agree, a mistake about the service is less likely. A known
// difference must still exist.
func TestMotoAgrees(t *testing.T) {
	client := sfn.NewFromConfig(moto.Config(moto.Start(t)))
	asked, differ := 0, 0
	for _, r := range rows {
		if r.own {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			w := &fixture{T: t, c: client, name: machineNameOf(r)}
			r.steps(w)
			asked++
			got := strings.Join(w.said, " ")
			switch {
			case got == r.want && r.moto != "":
				t.Errorf("moto says %s as documented, and no longer differs: %s", got, r.moto)
			case got != r.want && r.moto == "":
				t.Errorf("moto says %s\nwant      %s\nsource: %s", got, r.want, r.source)
			case r.moto != "":
				differ++
				t.Logf("DIFFERS: moto says %s, not %s: %s", got, r.want, r.moto)
			}
		})
	}
	fmt.Fprintf(os.Stderr, "moto was asked %d rows of %d and differs, as known, in %d\n", asked, len(rows), differ)
}
