// Package semel makes each message take effect once, on the queue and the database that are already there.
//
// Every queue delivers a message more than once. A [Consumer] takes deliveries from a [Queue], keeps an idempotency
// record per [Key] in a [Store], and takes each message through claim, run, complete, ack, in that order: a duplicate of
// a completed key is acked without a run, a duplicate of a running key is returned, a run that went without a word is
// taken over.
//
//	c, err := semel.New(semel.Config{Queue: queue, Store: store, Handler: handler})
//	…
//	err = c.Run(ctx) // until ctx is done, then drains
//
// What can be promised depends on where the effect goes. Effects that commit with the record ([InTx]) happen exactly
// once. Effects elsewhere happen exactly once if the other side deduplicates on [Attempt.EffectKey]; otherwise the
// policies [Resume], [Probe] and [Once] say what becomes of a run whose outcome nobody knows. [Consumer.Guarantee] says
// which of these a configuration gives, and no more.
//
// [Do] gives the same guarantee to any function, without a queue.
//
// Queues and stores, each but memory a module of its own:
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
//   - front: a cache of completed keys before any store
//   - semeltest/verify: a test that plays every bad schedule on a handler
//   - contrib/prom: Prometheus metrics, alert rules, a dashboard
//
// docs/guide.md in the repository introduces all of it; every program there is compiled by a test.
package semel
