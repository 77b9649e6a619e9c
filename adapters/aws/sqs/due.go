package sqs

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// neverDue reports that the queue drops a message before it is due: its sender set a time beyond the retention, most often
// by using another unit than milliseconds. If the message were hidden again and again, it would be lost silently, and in a
// FIFO queue it would block its group until then.
func (q *Queue) neverDue(in *types.Message, due, now time.Time) bool {
	kept := q.is.retention
	if kept <= 0 {
		kept = maxRetention
	}
	sent := millis(in.Attributes["SentTimestamp"])
	if sent.IsZero() || sent.After(now) {
		sent = now
	}
	return due.After(sent.Add(kept))
}

// deadLetterNeverDue moves a message that is never due to the dead-letter queue. done is false if the message is still in
// the queue. The id of the dead letter is derived from the message's, so that two workers write one.
func (q *Queue) deadLetterNeverDue(ctx context.Context, in *types.Message, rc *receipt, due time.Time) (done bool) {
	m := q.unpack(in)
	log := q.o.Logger.With("queue", q.name, "message_id", m.ID, "not_before", due.Format(time.RFC3339))
	if q.dlq == nil {
		log.Error("a message becomes due after the queue drops it, and there is no dead-letter queue for it")
		return false
	}
	l := withoutKey(in, m)
	l.ID = "undue-" + deref(in.MessageId)
	l.Reason = fmt.Sprintf("its attribute %s says not before %s, and the queue drops it before that: use milliseconds since 1970, "+
		"within the retention; its key is unknown", attrDue, due.Format(time.RFC3339))
	ctx, cancel := q.bounded(context.WithoutCancel(ctx))
	defer cancel()
	out := []driver.Outcome{driver.Unknown}
	err := q.dlq.PutDeadLetter(ctx, l)
	if err == nil {
		err = q.remove(ctx, []change{{rc: rc, action: driver.Dead}}, out)
	}
	if err != nil || out[0] != driver.Applied {
		log.Error("a message becomes due after the queue drops it, and could not be moved to the dead-letter queue",
			"dead_letter", l.ID, "err", err)
		return false
	}
	log.Warn("a message that becomes due after the queue drops it was moved to the dead-letter queue", "dead_letter", l.ID, "reason", l.Reason)
	return true
}
