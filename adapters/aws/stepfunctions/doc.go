// Package stepfunctions starts workflows of AWS Step Functions once.
//
//	starter := &stepfunctions.Starter{Client: sfn.NewFromConfig(cfg), StateMachineARN: arn, Store: store}
//	execution, decision, err := starter.Start(ctx, key.Tuple(bucket, key, version), input)
//
// Whatever starts a workflow is itself called more than once: an upload matches two rules, a rule is delivered twice, a
// function is retried because its answer got lost. There are three levels of what can be done about it.
//
// Light: the name (Starter without a Store). Each key has one execution name ([Name]), legal and without collisions, and the
// service refuses a second execution of that name. What it refuses is looked at: the same input is our own start, another
// input is [semel.ErrMismatch]. That holds until 90 days after the execution closed ([NameKept]), for STANDARD machines only,
// and costs nothing but a permission (states:DescribeExecution).
//
// Medium: claim and name (Starter with a Store, or [Starter.Handler] in a consumer). A record per key remembers what was
// started for as long as it is kept, answers duplicates with the ARN without asking the service, and tells two payloads of
// one key apart before anything is started. A crash between claim and start, or between start and completion, is taken over:
// the same name and the same input again.
//
// Full: what the workflow does to the world carries a fencing token. That is a matter of the workflow: it claims or locks
// with POST /v1/claim of semel serve in its first state and hands the token to its tasks (deploy/aws/stepfunctions). Needed
// where two different executions must not touch the same resource at the same time.
//
// EXPRESS machines have no names: each StartExecution is one more execution. They are refused, unless
// [Starter.AcceptDoubt] says that a start nobody heard of is left to a person.
package stepfunctions
