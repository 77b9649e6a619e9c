// Package semel makes each message take effect once, on the queue and the database that you already have.
//
// Queues deliver messages more than once. A [Consumer] takes deliveries from a [Queue] and keeps an idempotency record per
// [Key] in a [Store]. It takes each message through claim, run, complete and ack, in that order. A duplicate of a completed
// key is acked without a run. A duplicate of a running key is returned to the queue. If a worker dies, another worker takes
// over its run when the lease expires.
//
//	c, err := semel.New(semel.Config{Queue: queue, Store: store, Handler: handler})
//	…
//	err = c.Run(ctx) // until ctx is done, then drains
//
// The guarantee depends on where the effect goes. Effects that commit with the record ([InTx]) happen exactly once. Effects
// elsewhere happen exactly once if the other side deduplicates on [Attempt.EffectKey]. Otherwise the policies [Resume],
// [Probe] and [Once] decide about a run whose outcome is unknown. [Consumer.Guarantee] states the guarantee of a
// configuration.
//
// [Do] gives the same guarantee to any function, without a queue.
//
// Queues and stores are modules of their own, except memory:
//
//   - memory: tests and development
//   - adapters/sqlite: one file, several processes, no server
//   - adapters/postgres: a PostgreSQL database, with the program's pool if it has one
//   - adapters/aws/sqs: queues of Amazon SQS; adapters/aws/dynamodb: records in DynamoDB
//   - adapters/aws/lambda: functions; adapters/aws/stepfunctions: starts of workflows; adapters/aws/emf: CloudWatch
//
// Their contract is package driver; the conformance suites are package semeltest.
//
// On top of these:
//
//   - steps: durable steps and sagas
//   - outbox: a relay for messages that handlers emit ([Attempt.Emit])
//   - edge/http (package edgehttp): Idempotency-Key for HTTP, on both sides
//   - lock: locks with fencing tokens
//   - cache: a cache of completed keys in front of any store
//   - semeltest/verify: a test that runs a handler under every bad schedule
//   - contrib/prom: Prometheus metrics, alert rules, a dashboard
//   - contrib/otel (package semelotel): OpenTelemetry traces and metrics
//
// docs/guide.md in the repository introduces all of them. A test compiles every program in it.
package semel
