// Package sqs is a queue on Amazon SQS, standard or FIFO.
//
//	client := awssqs.NewFromConfig(cfg)
//	queue, err := sqs.Open(ctx, client, "orders", sqs.Options{})
//
// [Create] makes a queue with a queue for its dead letters. The client, its region and its credentials are the caller's.
//
// # What SQS does not tell
//
// SQS gives no fencing: an old receipt handle of a standard queue still changes the visibility of whoever holds the
// message now, and an extension that comes too late is answered with success. Every delivery therefore has a deadline on
// our own monotonic clock, counted from the return of Receive less a guard, and moved by extensions that were answered
// before it. Past it a delivery is given up without a call (Lost); only acknowledgements are always sent, because the
// record is at its end then, whoever holds the message. A lost lease is the store's to notice. An answer that is lost, and
// an entry of a batch that failed by the service's fault, make an item Unknown, and shorten the deadline to the moment from
// which the message may be visible: the repetition cannot hit another holder. While a machine hibernates, Linux's monotonic
// clock stands still: then a stale handle may shorten another's visibility, and the store's lease decides who runs.
//
// The SDK's own repetitions are turned off for ReceiveMessage and ChangeMessageVisibility, for the same reasons, but for a
// request of which nothing was sent: servers close idle connections just as they are used again. On FIFO queues a receive
// whose answer was lost is asked again under its ReceiveRequestAttemptId. When its ctx ends, a receive waits a moment for an
// answer that is on its way.
//
// # Identity
//
// Messages that this package sends carry their ID in the attribute semel-id, and it is the ID wherever they are received:
// a redrive by the provider (StartMessageMoveTask) gives a message another MessageId. A message that has none of it has
// its MessageId, and a redrive by the provider makes another message of it: take the key from the content.
//
// # FIFO
//
// Message.Group is the MessageGroupId. One Receive may hand out several messages of a group (driver.QueueFeatures.Runs);
// SQS holds those back that are behind one that is hidden. A message that is returned may come again at once, while
// those behind it are still out: the engine gives them back too, and runs none of them before.
//
// # Dead letters
//
// A redrive policy makes its target the place for dead letters; Options.DeadLetters and Options.DeadLetterQueue name another. See
// [DeadLetterQueue]. With a policy the engine puts off duplicates of a busy key for longer and longer, up to its MaxRuntime,
// because deferrals are receives too: give maxReceiveCount 200 or so, and let the engine count attempts.
//
// # Permissions
//
// sqs:GetQueueUrl, GetQueueAttributes, ReceiveMessage, DeleteMessage and ChangeMessageVisibility for a worker,
// sqs:SendMessage to send, and all of these on the dead-letter queue. Purge needs sqs:PurgeQueue, [Create] sqs:CreateQueue.
package sqs
