package sqs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/driver"
)

// TestFM73_NeverDue: a producer that writes microseconds instead of milliseconds sets a time long after the queue drops the
// message. If the message were hidden again and again, it would be lost silently, and block its group in a FIFO queue. It
// goes to the dead-letter queue with a warning, and the group goes on.
func TestFM73_NeverDue(t *testing.T) {
	for _, name := range []string{"orders", "orders.fifo"} {
		b := newBench(t, setup{name: name, frozen: true, o: Options{Wait: ShortPoll}})
		fifo := strings.HasSuffix(name, ".fifo")
		due := b.clock.Now().Add(time.Hour).UnixMicro() // microseconds
		in := awssqs.SendMessageInput{MessageBody: aws.String("far"), MessageAttributes: textAttributes(attrDue, due)}
		if fifo {
			in.MessageGroupId, in.MessageDeduplicationId = aws.String("g"), aws.String("far")
		}
		b.raw(in)
		b.send(driver.Message{ID: "behind", Group: "g"})
		var got []string
		for range 3 {
			ds, err := b.q.Receive(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range ds {
				got = append(got, d.ID)
				b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt})
			}
		}
		if len(got) != 1 || got[0] != "behind" {
			t.Errorf("%s: delivered %q, want only the one behind", name, got)
		}
		if visible, hidden, delayed := b.server.Count(name); visible+hidden+delayed != 0 {
			t.Errorf("%s: %d, %d, %d messages are left", name, visible, hidden, delayed)
		}
		ls, err := b.q.DeadLetters(t.Context(), 0)
		if err != nil || len(ls) != 1 {
			t.Fatalf("%s: dead letters %+v, %v", name, ls, err)
		}
		if l := ls[0]; string(l.Message.Body) != "far" || l.Kind != driver.DeadLetterFailed || !strings.Contains(l.Reason, attrDue) ||
			l.Message.Queue != name || l.Message.Header("idempotency-key") == "" || l.Message.Header(attrDue) != "" {
			t.Errorf("%s: dead letter %+v", name, l)
		}
		if log := b.log.String(); strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "dead-letter queue") {
			t.Errorf("%s: the log says %q", name, log)
		}
	}
}

// TestFM73_DueAtTheEndOfRetention: a message that the queue still has when it is due is no dead letter.
func TestFM73_DueAtTheEndOfRetention(t *testing.T) {
	b := newBench(t, setup{frozen: true, o: Options{Wait: ShortPoll}})
	end := b.clock.Now().Add(b.q.is.retention)
	b.raw(awssqs.SendMessageInput{MessageBody: aws.String("late"), MessageAttributes: textAttributes(attrDue, end.UnixMilli())})
	b.clock.Advance(13 * time.Hour)
	if ds, err := b.q.Receive(t.Context(), 10); err != nil || len(ds) != 0 {
		t.Fatalf("received %+v, %v", ds, err)
	}
	if ls, err := b.q.DeadLetters(t.Context(), 0); err != nil || len(ls) != 0 {
		t.Errorf("dead letters %+v, %v", ls, err)
	}
}

// refusing is a dead-letter queue that does not exist.
type refusing struct{ driver.DeadLetterQueue }

func (refusing) PutDeadLetter(context.Context, driver.DeadLetter) error {
	return errors.New("AccessDenied")
}

// TestFM73_NeverDueAndNoDeadLetterQueue: if the dead letter cannot be written, the message stays, and an error is logged.
func TestFM73_NeverDueAndNoDeadLetterQueue(t *testing.T) {
	b := newBench(t, setup{frozen: true, o: Options{Wait: ShortPoll}})
	b.raw(awssqs.SendMessageInput{MessageBody: aws.String("far"), MessageAttributes: textAttributes(attrDue, b.clock.Now().AddDate(9, 0, 0).UnixMilli())})
	b.q.dlq = refusing{}
	if ds, err := b.q.Receive(t.Context(), 10); err != nil || len(ds) != 0 {
		t.Fatalf("received %+v, %v", ds, err)
	}
	if visible, hidden, _ := b.server.Count("orders"); visible+hidden != 1 {
		t.Error("the message is gone")
	}
	if log := b.log.String(); !strings.Contains(log, "could not be moved to the dead-letter queue") {
		t.Errorf("the log says %q", log)
	}
}
