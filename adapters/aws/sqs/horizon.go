package sqs

import (
	"context"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// maxRetention is the longest that SQS keeps a message.
const maxRetention = 14 * 24 * time.Hour

// horizon is how long after it was first sent a copy of a message can still be delivered (law 10): the service moves what is
// received too often to the queue of the redrive policy, and a person may have it moved back (StartMessageMoveTask), which
// makes a new message of it with the queue's whole retention before it.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
func (q *Queue) horizon() time.Duration {
	return driver.LateBy(q.is.retention, driver.MovedBack(q.is.retention, q.movedKept, q.is.fifo), 0)
}

// readMoved finds out for how long the queue of the redrive policy keeps what is moved there. One that cannot be asked is
// taken for one that keeps messages as long as SQS can.
func (q *Queue) readMoved(ctx context.Context) {
	if q.is.deadLetterARN == "" {
		return
	}
	if box, ok := q.box.(*DeadLetterQueue); ok && box.q.is.arn == q.is.deadLetterARN {
		q.movedKept = box.q.is.retention
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
	q.o.Logger.Warn("nothing is known of the queue of the redrive policy: its messages are taken to be kept for 14 days",
		"queue", q.name, "dead_letters", part[5], "err", err)
}
