package fakesfn_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
)

// start starts an execution without the SDK's retries.
func start(t *testing.T, c *sfn.Client, arn string) error {
	t.Helper()
	_, err := c.StartExecution(t.Context(), &sfn.StartExecutionInput{
		StateMachineArn: &arn, Name: aws.String("n"), Input: aws.String("{}"),
	}, func(o *sfn.Options) { o.Retryer = aws.NopRetryer{} })
	return err
}

func TestDescriptionsLagBehind(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_700_000_000, 0))
	fake := fakesfn.New(fakesfn.Options{Clock: clock, Lag: time.Second})
	c, arn := sfn.NewFromConfig(awstest.Config(fake)), fake.Machine("m", fakesfn.Standard)
	if err := start(t, c, arn); err != nil {
		t.Fatal(err)
	}
	in := &sfn.DescribeExecutionInput{ExecutionArn: &fake.Executions("m")[0].ARN}
	for _, want := range []string{"ExecutionDoesNotExist", "ok"} {
		if _, err := c.DescribeExecution(t.Context(), in); code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
		clock.Advance(time.Second)
	}
}

func TestDeny(t *testing.T) {
	fake := fakesfn.New(fakesfn.Options{})
	c, arn := sfn.NewFromConfig(awstest.Config(fake)), fake.Machine("m", "")
	fake.Deny("StartExecution", true)
	if err := start(t, c, arn); code(err) != "AccessDeniedException" {
		t.Errorf("without permission: %v", err)
	}
	fake.Deny("StartExecution", false)
	if err := start(t, c, arn); err != nil || fake.Calls("StartExecution") != 2 || len(fake.Executions("m")) != 1 {
		t.Errorf("with permission: %v; %v calls, %v", err, fake.AllCalls(), fake.Executions("m"))
	}
}

// TestFaultsOnTheWire: awstest.Faults works with this service.
func TestFaultsOnTheWire(t *testing.T) {
	for kind, want := range map[awstest.Kind]struct {
		code    string
		started int
	}{
		awstest.Throttled: {"ThrottlingException", 0}, awstest.Unavailable: {"ServiceUnavailableException", 0},
		awstest.Internal: {"InternalFailure", 0},
	} {
		fake := fakesfn.New(fakesfn.Options{})
		faults := awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{{Operation: "StartExecution", Call: 1, Kind: kind}}})
		c, arn := sfn.NewFromConfig(awstest.Config(fake, faults.Wrap)), fake.Machine("m", "")
		if err := start(t, c, arn); code(err) != want.code || len(fake.Executions("m")) != want.started {
			t.Errorf("%s: %v, %v", kind, err, fake.Executions("m"))
		}
	}
	fake := fakesfn.New(fakesfn.Options{})
	faults := awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{{Operation: "StartExecution", Call: 1, Kind: awstest.After}}})
	c, arn := sfn.NewFromConfig(awstest.Config(fake, faults.Wrap)), fake.Machine("m", "")
	if err := start(t, c, arn); err == nil || len(fake.Executions("m")) != 1 {
		t.Errorf("a lost response: %v, %v", err, fake.Executions("m"))
	}
}
