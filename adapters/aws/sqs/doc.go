// Package sqs is a queue on Amazon SQS, standard or FIFO.
//
//	client := awssqs.NewFromConfig(cfg)
//	queue, err := sqs.Open(ctx, client, "orders", sqs.Options{})
//
// [Create] creates a queue with a dead-letter queue. The client, its region and its credentials are the caller's.
//
// # Deadlines
//
// SQS has no fencing: an old receipt handle of a standard queue still changes the visibility of a message that another
// worker holds now, and an extension that arrives too late is reported as a success. Every delivery therefore has a deadline
// on our own monotonic clock, counted from the return of Receive less a guard, and moved by extensions that SQS confirmed
// before it. After the deadline a delivery is abandoned without a call (Lost). Only acknowledgements are always sent,
// because the record has ended by then, whoever holds the message. The store notices a lost lease. If a response is lost, or
// the service fails an entry of a batch, the item is Unknown, and its deadline is shortened to the time from which the
// message may be visible, so that a repetition cannot affect another holder. While a machine hibernates, Linux's monotonic
// clock stands still. Then a stale handle may shorten the visibility of another worker, and the lease in the store decides
// who runs.
//
// For the same reasons the SDK's retries are off for ReceiveMessage and ChangeMessageVisibility, except for requests that
// were not sent at all: servers may close an idle connection just when it is used again. On FIFO queues a receive whose
// response was lost is repeated with its ReceiveRequestAttemptId. When its ctx ends, a receive waits briefly for a response
// that is on its way.
//
// # Identity
//
// Messages that this package sends carry their ID in the attribute semel-id, because a redrive by the provider
// (StartMessageMoveTask) gives a message another MessageId. The ID of a message without that attribute is its MessageId, and
// after a redrive by the provider it is another message: take the key from the content.
//
// # FIFO
//
// Message.Group is the MessageGroupId. One Receive may return several messages of a group (driver.QueueFeatures.Runs). SQS
// holds back the messages behind a hidden one. A returned message may be delivered again at once, while those behind it are
// still in flight: the engine returns them too, and runs none of them before it.
//
// # Dead letters
//
// The target of the redrive policy keeps the dead letters, unless Options.DeadLetters or Options.DeadLetterQueue names
// another place. See [DeadLetterQueue]. With a policy the engine defers duplicates of a busy key for longer and longer, up
// to its MaxRuntime, because deferrals are receives too: set maxReceiveCount to about 200, and let the engine count
// attempts.
//
// # Permissions
//
// sqs:GetQueueUrl, GetQueueAttributes, ReceiveMessage, DeleteMessage and ChangeMessageVisibility for a worker,
// sqs:SendMessage to send, and all of these on the dead-letter queue. Purge needs sqs:PurgeQueue, [Create] sqs:CreateQueue.
package sqs
