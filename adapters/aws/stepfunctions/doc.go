// Package stepfunctions starts workflows of AWS Step Functions once.
//
//	starter := &stepfunctions.Starter{Client: sfn.NewFromConfig(cfg), StateMachineARN: arn, Store: store}
//	execution, decision, err := starter.Start(ctx, key.Tuple(bucket, key, version), input)
//
// A program that starts a workflow is itself called more than once: an upload matches two rules, an event is delivered
// twice, a function is retried because its response was lost. There are three levels of protection.
//
// Light: the name (Starter without a Store). Each key has one valid execution name without collisions ([Name]), and the
// service refuses a second execution with that name. Then the Starter reads the execution: with the same input it is our own
// start, with another input the result is [semel.ErrMismatch]. That holds until 90 days after the execution closed
// ([NameKept]), for STANDARD machines only, and costs nothing but a permission (states:DescribeExecution).
//
// Medium: claim and name (Starter with a Store, or [Starter.Handler] in a consumer). A record per key remembers the
// execution as long as the record is kept. Duplicates get the ARN without a call to the service, and two payloads of one key
// are distinguished before anything is started. After a crash between claim and start, or between start and completion,
// another worker takes over and starts the same name with the same input again.
//
// Full: the effects of the workflow carry a fencing token. That is up to the workflow: in its first state it claims or locks
// with POST /v1/claim of semel serve, and passes the token to its tasks (deploy/aws/stepfunctions). Use this if two
// different executions must not touch the same resource at the same time.
//
// EXPRESS executions have no names: each StartExecution is one more execution. EXPRESS machines are refused, unless
// [Starter.AcceptDoubt] parks starts with an unknown outcome for a person.
package stepfunctions
