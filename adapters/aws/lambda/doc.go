// Package semellambda runs semel inside of AWS Lambda: on the batches of an SQS queue, on single events of S3, EventBridge
// and SNS, and behind API Gateway and function URLs.
//
//	h, err := semellambda.NewSQS(semel.Config{
//		Store: store, Handler: semel.HandlerFunc(charge), Key: key.FromJSON("/order_id"),
//	}, semellambda.Options{DeadLetters: deadLetters})
//	if err != nil {
//		log.Fatal(err)
//	}
//	lambda.Start(h.Handle)
//
// # A batch of SQS
//
// The event source mapping needs ReportBatchItemFailures. What was done, or had been done before, is not reported, and
// Lambda deletes it; everything else is named in batchItemFailures, and comes back when the queue's visibility timeout ends:
// failed runs, duplicates of a key that is busy, what was not begun. An error is returned only for an event that cannot be
// answered item by item (a record without an id, records of two queues): then all of it comes back, and what is done is
// answered from its record.
//
// Of a FIFO queue's group nothing is begun behind the first message that failed, and all that stand behind it are
// reported with it; other groups go on.
//
// Sources: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html (an empty or null list is success;
// an unknown, empty or null identifier and an error fail the whole batch; FIFO: stop at the first failure) and
// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html (a visibility of six times the function's
// timeout; a receive count of five or more before the queue itself sets messages aside).
//
// # The end of an invocation
//
// A process that has answered, or ran out of time, is frozen: it can renew nothing. So no lease reaches more than a second
// beyond the invocation's deadline, and nothing is begun when less time is left than work took before: the 99th percentile of
// run and commit, learnt from invocation to invocation, no less than Options.Floor and no more than nine tenths of the time that an
// invocation has. What was not begun by then is reported, and has spent no attempt. What runs is cancelled
// Options.Margin before the deadline (cause semel.ErrDraining; semel.ErrTimeout, and an attempt spent, where the run had
// nearly all of the invocation). Handle does not return while a handler runs. If one ignores its cancellation there is
// one way left to keep it from running on in a later invocation, when its lease is over: the process ends (Options.Exit)
// shortly before the deadline, Lambda starts another, the whole batch comes back, and the claim of that key stays until
// its lease ends by itself.
//
// https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html (what runs behind the answer is frozen, and goes
// on with the next invocation; a crash or a timeout resets the environment).
//
// # Dead letters
//
// With Options.DeadLetters what ended for good is written there, and is then a success to SQS. A dead letter that cannot be written
// leaves its message in the queue. Without a place for dead letters what failed for good is reported as failed each time, without
// a run, until the queue's redrive policy takes it: that needs such a policy, which is said with Options.RedrivePolicy. A
// message of which neither is true would be lost at the end of its retention, so NewSQS refuses that.
//
// # What Lambda cannot do
//
// The queue decides when a failed message comes back: backoff is the queue's visibility timeout. A record whose next attempt
// is due later than that (semel.RetryAfter) finds itself busy until then, and each time costs a receive.
package semellambda
