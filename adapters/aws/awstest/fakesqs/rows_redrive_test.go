package fakesqs_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func policy(arn string, most int) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"%d"}`, arn, most)
}

// pair makes a queue with a dead-letter queue, and stays at the source queue.
func (w *fixture) pair(suffix string, most int, pairs ...string) (source, dead *string) {
	if suffix == ".fifo" {
		pairs = append(pairs, "FifoQueue", "true")
	}
	dead = w.queue("-dead"+suffix, pairs...)
	source = w.queue(suffix, append(pairs, "RedrivePolicy", policy(w.arn(dead), most))...)
	return source, dead
}

// deadLetter receives a message and returns it until it is a dead letter.
func (w *fixture) deadLetter(most int) {
	for range most {
		w.hide(handle(w.receive()), 0)
	}
	w.receive()
}

// redriveRows are about dead letters.
var redriveRows = []row{
	{
		name: "moved when it would be received once more", source: guide + "sqs-dead-letter-queues.html",
		steps: func(w *fixture) {
			_, dead := w.pair("", 2)
			id := *w.send("a").MessageId
			w.deadLetter(2)
			w.url = dead
			for _, m := range w.receive() {
				w.say("%t", *m.MessageId == id)
			}
		}, want: "a ok a ok - a true",
	},
	{
		name: "a dead letter names its source queue", source: api + "ReceiveMessage.html", clock: true,
		steps: func(w *fixture) {
			src, dead := w.pair("", 1)
			w.send("a")
			w.deadLetter(1)
			arn := w.arn(src)
			w.url = dead
			for _, m := range w.receive() {
				w.say("%t %s", m.Attributes["DeadLetterQueueSourceArn"] == arn, m.Attributes["ApproximateReceiveCount"])
			}
		}, want: "a ok - a true 2",
	},
	{
		name: "a dead letter keeps its age", source: guide + "sqs-dead-letter-queues.html", clock: true,
		steps: func(w *fixture) {
			_, dead := w.pair("", 1, "MessageRetentionPeriod", "100")
			w.send("a")
			w.pass(90 * time.Second)
			w.deadLetter(1)
			w.url = dead
			w.attribute(counts[0])
			w.pass(10 * time.Second)
			w.attribute(counts[0])
		}, want: "a ok - 1 0",
	},
	{
		name: "fifo dead letter starts its age anew and frees its group", source: guide + "sqs-dead-letter-queues.html", clock: true, moto: "fifo",
		steps: func(w *fixture) {
			_, dead := w.pair(".fifo", 1, "MessageRetentionPeriod", "100")
			w.group("1", "a", "b")
			w.pass(90 * time.Second)
			w.hide(handle(w.receive(most(1))), 0)
			w.receive()
			w.url = dead
			w.pass(20 * time.Second)
			w.attribute(counts[0])
		}, want: "a ok b 1",
	},
	{
		name: "the dead-letter queue of a FIFO queue is one", source: guide + "sqs-dead-letter-queues.html", moto: "fifo",
		steps: func(w *fixture) {
			arn := w.arn(w.queue("-dead"))
			w.fifo("RedrivePolicy", policy(arn, 1))
		}, want: "InvalidAttributeValue",
	},
	{
		name: "redrive policies that are refused", source: api + "SetQueueAttributes.html",
		moto: "it accepts any count, and returns 500 for invalid JSON",
		steps: func(w *fixture) {
			arn := w.arn(w.queue(""))
			w.set("RedrivePolicy", policy(arn, 0))
			w.set("RedrivePolicy", policy(arn, 1001))
			w.set("RedrivePolicy", policy(arn+"-none", 1))
			w.set("RedrivePolicy", "{")
			w.set("RedrivePolicy", fmt.Sprintf(`{"deadLetterTargetArn":%q}`, arn))
		}, want: strings.TrimSpace(strings.Repeat("InvalidAttributeValue ", 5)),
	},
	{
		name: "redrive allow policy", source: api + "SetQueueAttributes.html", moto: "it does not keep to it",
		steps: func(w *fixture) {
			dead := w.arn(w.queue("-dead", "RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`))
			w.queue("", "RedrivePolicy", policy(dead, 1))
		}, want: "InvalidAttributeValue",
	},
	{
		name: "sources of a dead-letter queue", source: api + "ListDeadLetterSourceQueues.html",
		steps: func(w *fixture) {
			src, dead := w.pair("", 1)
			out, err := w.c.ListDeadLetterSourceQueues(w.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: dead})
			if err != nil {
				w.Fatal(err)
			}
			w.say("%t", len(out.QueueUrls) == 1 && out.QueueUrls[0] == *src)
		}, want: "true",
	},
}

func (w *fixture) startMove(arn, to string, rate int32) *string {
	in := &sqs.StartMessageMoveTaskInput{SourceArn: &arn}
	if to != "" {
		in.DestinationArn = &to
	}
	if rate > 0 {
		in.MaxNumberOfMessagesPerSecond = &rate
	}
	out, err := w.c.StartMessageMoveTask(w.Context(), in)
	w.say("%s", code(err))
	if err != nil {
		return aws.String("")
	}
	return out.TaskHandle
}

func (w *fixture) tasks(arn string) {
	out, err := w.c.ListMessageMoveTasks(w.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: &arn, MaxResults: aws.Int32(10)})
	if err != nil {
		w.say("%s", code(err))
		return
	}
	for _, t := range out.Results {
		w.say("%s %d/%d", *t.Status, t.ApproximateNumberOfMessagesMoved, *t.ApproximateNumberOfMessagesToMove)
	}
}

// moveRows are about moves out of a dead-letter queue.
var moveRows = []row{
	{
		name: "moved messages are new", source: guide + "sqs-configure-dead-letter-queue-redrive.html", clock: true,
		steps: func(w *fixture) {
			src, dead := w.pair("", 1)
			id := *w.send("a", with(map[string]types.MessageAttributeValue{"k": text("v")})).MessageId
			w.deadLetter(1)
			w.pass(time.Second)
			arn := w.arn(dead)
			w.startMove(arn, "", 0)
			w.tasks(arn)
			w.url = src
			for _, m := range w.receive() {
				a := m.Attributes
				w.say("%t %s %s %s", *m.MessageId != id, a["ApproximateReceiveCount"], a["SentTimestamp"], *m.MessageAttributes["k"].StringValue)
			}
		}, want: "a ok - ok COMPLETED 1/1 a true 1 1700000001000 v",
	},
	{
		name: "moved at a rate, and cancelled", source: api + "CancelMessageMoveTask.html", clock: true,
		steps: func(w *fixture) {
			src, dead := w.pair("", 1)
			w.url = dead
			for range 5 {
				w.send("a")
			}
			arn := w.arn(dead)
			h := w.startMove(arn, w.arn(src), 1)
			w.startMove(arn, "", 1)
			w.pass(2 * time.Second)
			w.tasks(arn)
			out, err := w.c.CancelMessageMoveTask(w.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: h})
			if err != nil {
				w.Fatal(err)
			}
			w.say("%d", out.ApproximateNumberOfMessagesMoved)
			w.pass(time.Minute)
			w.tasks(arn)
			_, err = w.c.CancelMessageMoveTask(w.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: h})
			w.say("%s", code(err))
		}, want: "ok InvalidParameterValue RUNNING 2/5 2 CANCELLED 2/5 ResourceNotFoundException",
	},
	{
		name: "moves that are refused", source: "recorded",
		steps: func(w *fixture) {
			_, dead := w.pair("", 1)
			arn := w.arn(dead)
			w.startMove(arn+"-none", "", 0)
			w.startMove(arn, arn+"-none", 0)
			w.startMove(w.arn(w.queue("-lone")), "", 0)
			_, err := w.c.CancelMessageMoveTask(w.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: aws.String("garbage")})
			w.say("%s", code(err))
		}, want: "ResourceNotFoundException ResourceNotFoundException InvalidParameterValue InvalidParameterValue",
		moto: "it returns 500, or has no such operation",
	},
}
