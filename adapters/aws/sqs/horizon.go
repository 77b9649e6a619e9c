package sqs

import (
	"context"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// maxRetention is the longest that SQS keeps a message.
const maxRetention = 14 * 24 * time.Hour

// horizon is how long after it was first sent a copy of a message can still be delivered (law 10). The service moves a
// message that is received too often to the queue of the redrive policy. An operator may have it moved back
// (StartMessageMoveTask), which makes it a new message with the queue's full retention.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
func (q *Queue) horizon() time.Duration {
	return driver.LateBy(q.is.retention, driver.MovedBack(q.is.retention, q.movedKept, q.is.fifo), 0)
}

// readMoved finds out for how long the queue of the redrive policy keeps moved messages. If that is unknown, it assumes the
// longest retention of SQS.
func (q *Queue) readMoved(ctx context.Context) {
	if q.is.deadLetterARN == "" {
		return
	}
	if dlq, ok := q.dlq.(*DeadLetterQueue); ok && dlq.q.is.arn == q.is.deadLetterARN {
		q.movedKept = dlq.q.is.retention
		return
	}
	q.movedKept = maxRetention
	part := strings.Split(q.is.deadLetterARN, ":") // arn:aws:sqs:region:account:name
	if len(part) != 6 {
		return
	}
	url, err := q.find(ctx, part[5], part[4])
	if err == nil {
		var is attributes
		if is, err = (&Queue{client: q.client, url: url, name: part[5], region: q.region, o: q.o}).read(ctx); err == nil && is.retention > 0 {
			q.movedKept = is.retention
			return
		}
	}
	q.o.Logger.Warn("the queue of the redrive policy cannot be read: its retention is assumed to be 14 days",
		"queue", q.name, "dead_letters", part[5], "err", err)
}
