// Package fakesfn is AWS Step Functions in the process of a test, as far as the start of executions goes: state machines,
// executions and their names over the JSON protocol of the SDKs, on a clock that can be moved.
//
//	fake := fakesfn.New(fakesfn.Options{Clock: awstest.Frozen(start)})
//	arn := fake.Machine("csv", fakesfn.Standard)
//	client := sfn.NewFromConfig(awstest.Config(fake))
//
// It runs nothing: an execution is RUNNING until a test ends it (Finish, StopExecution). It is as weak as the service: a
// name is free again 90 days after its execution closed, names of EXPRESS executions are not unique, and with Options.Lag
// new executions cannot be described at first. A table of documented responses in this package's tests defines its
// behaviour.
//
// It lacks versions and aliases (a qualified ARN stands for its machine), Map runs, activities, histories, redrives, access
// control and quotas.
package fakesfn
