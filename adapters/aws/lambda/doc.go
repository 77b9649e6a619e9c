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
// The event source mapping needs ReportBatchItemFailures. Lambda deletes the messages that are done, or were done before.
// The response names all others in batchItemFailures: failed runs, duplicates of busy keys, messages that were not begun.
// They are redelivered when the queue's visibility timeout ends. Handle returns an error only for an event whose items
// cannot be reported one by one (a record without an ID, records of two queues). Then the whole batch is redelivered, and
// finished messages replay their records.
//
// In a FIFO group nothing is begun behind the first message that failed, and the messages behind it are reported with it.
// Other groups go on.
//
// Sources: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html (an empty or null list is success;
// an unknown, empty or null identifier and an error fail the whole batch; FIFO: stop at the first failure) and
// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html (a visibility of six times the function's
// timeout; a receive count of five or more before the queue itself sets messages aside).
//
// # The end of an invocation
//
// A process that has responded, or ran out of time, is frozen: it can renew nothing. So no lease ends more than a second
// after the invocation's deadline, and nothing is begun when less time is left than earlier work took: the 99th percentile
// of run and commit over all invocations, at least Options.Floor and at most nine tenths of the invocation. Messages that
// were not begun are reported, and have spent no attempt. Running handlers are cancelled Options.Margin before the deadline
// (cause semel.ErrDraining; semel.ErrTimeout, with a spent attempt, if the run had nearly all of the invocation). Handle
// does not return while a handler runs. If a handler ignores its cancellation, it must not run on in a later invocation,
// when its lease has ended. So the process exits (Options.Exit) shortly before the deadline, Lambda starts another, the
// whole batch is redelivered, and the claim of that key stays until its lease ends.
//
// https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html (a process is frozen after its response, and goes
// on with the next invocation; a crash or a timeout resets the environment).
//
// # Dead letters
//
// With Options.DeadLetters a message that failed for good is written there, and is a success to SQS. If its dead letter
// cannot be written, the message stays in the queue. Without Options.DeadLetters the message is reported as failed each
// time, without a run, until the queue's redrive policy moves it. Confirm such a policy with Options.RedrivePolicy. Without
// either, the message would be lost at the end of its retention, so NewSQS refuses that.
//
// # Limits
//
// The queue decides when a failed message is redelivered: the backoff is the queue's visibility timeout. A record whose next
// attempt is due later (semel.RetryAfter) is busy until then, and each redelivery costs a receive.
package semellambda
