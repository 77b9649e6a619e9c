package fakesqs_test

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func deletion(url *string, handle string) *sqs.DeleteMessageInput {
	return &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: &handle}
}

func entry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
}

// sendAll sends a batch and records which entries succeeded, and which failed with which code.
func (w *fixture) sendAll(entries ...types.SendMessageBatchRequestEntry) {
	out, err := w.c.SendMessageBatch(w.Context(), &sqs.SendMessageBatchInput{QueueUrl: w.url, Entries: entries})
	if err != nil {
		w.say("%s", code(err))
		return
	}
	for _, e := range out.Successful {
		w.say("%s:ok", *e.Id)
	}
	w.failures(out.Failed)
}

func (w *fixture) failures(failed []types.BatchResultErrorEntry) {
	for _, e := range failed {
		w.say("%s:%s:%t", *e.Id, *e.Code, e.SenderFault)
	}
}

// prefix is that of the codes that the query protocol had.
const prefix = "AWS.SimpleQueueService."

// batchRows are about batches.
var batchRows = []row{
	{
		name: "a batch of ten", source: api + "SendMessageBatch.html",
		steps: func(w *fixture) {
			w.queue("")
			var es []types.SendMessageBatchRequestEntry
			for i := range 10 {
				es = append(es, entry(fmt.Sprint(i), "x"))
			}
			w.sendAll(es...)
			w.sendAll(append(es, entry("10", "x"))...)
			w.attribute(counts[0])
		},
		want: "0:ok 1:ok 2:ok 3:ok 4:ok 5:ok 6:ok 7:ok 8:ok 9:ok " + prefix + "TooManyEntriesInBatchRequest 10",
	},
	{
		name: "an empty batch", source: api + "SendMessageBatch.html",
		steps: func(w *fixture) {
			w.queue("")
			_, err := w.c.SendMessageBatch(w.Context(), &sqs.SendMessageBatchInput{
				QueueUrl: w.url, Entries: []types.SendMessageBatchRequestEntry{},
			})
			w.say("%s", code(err))
		}, want: prefix + "EmptyBatchRequest",
	},
	{
		name: "ids that are not distinct or not valid", source: api + "SendMessageBatch.html",
		steps: func(w *fixture) {
			w.queue("")
			w.sendAll(entry("a", "1"), entry("a", "2"))
			w.sendAll(entry("a:b", "1"))
			w.sendAll(entry(strings.Repeat("a", 81), "1"))
			w.attribute(counts[0])
		}, want: prefix + "BatchEntryIdsNotDistinct " + prefix + "InvalidBatchEntryId " + prefix + "InvalidBatchEntryId 0",
	},
	{
		name: "a batch of more than a mebibyte", source: guide + "quotas-messages.html",
		steps: func(w *fixture) {
			w.queue("")
			w.sendAll(entry("a", strings.Repeat("a", 1<<19)), entry("b", strings.Repeat("a", 1<<19)))
			w.sendAll(entry("a", strings.Repeat("a", 1<<19)), entry("b", strings.Repeat("a", 1<<19+1)))
		}, want: "a:ok b:ok " + prefix + "BatchRequestTooLong",
	},
	{
		name: "entries fail alone", source: api + "SendMessageBatch.html",
		moto: "it carries every character",
		steps: func(w *fixture) {
			w.queue("")
			w.sendAll(entry("a", "1"), entry("b", "\x01"), entry("c", "3"))
			w.attribute(counts[0])
		}, want: "a:ok c:ok b:InvalidMessageContents:true 2",
	},
	{
		name: "an entry too long for its queue", source: "recorded: InvalidParameterValue of that entry",
		moto: "it refuses the whole batch",
		steps: func(w *fixture) {
			w.queue("", "MaximumMessageSize", "1024")
			w.sendAll(entry("a", "1"), entry("b", strings.Repeat("a", 1025)))
		}, want: "a:ok b:InvalidParameterValue:true",
	},
	{
		name: "a batch of deletes", source: api + "DeleteMessageBatch.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			out, err := w.c.DeleteMessageBatch(w.Context(), &sqs.DeleteMessageBatchInput{
				QueueUrl: w.url, Entries: []types.DeleteMessageBatchRequestEntry{
					{Id: aws.String("x"), ReceiptHandle: h}, {Id: aws.String("y"), ReceiptHandle: aws.String("garbage")},
				},
			})
			if err != nil {
				w.Fatal(err)
			}
			w.say("%d", len(out.Successful))
			w.failures(out.Failed)
		}, want: "a 1 y:ReceiptHandleIsInvalid:true",
	},
	{
		name: "a batch of changes of visibility", source: api + "ChangeMessageVisibilityBatch.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			out, err := w.c.ChangeMessageVisibilityBatch(w.Context(), &sqs.ChangeMessageVisibilityBatchInput{
				QueueUrl: w.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
					{Id: aws.String("x"), ReceiptHandle: h, VisibilityTimeout: 0},
					{Id: aws.String("y"), ReceiptHandle: h, VisibilityTimeout: 43201},
				},
			})
			if err != nil {
				w.Fatal(err)
			}
			w.say("%d", len(out.Successful))
			w.failures(out.Failed)
			w.receive()
		}, want: "a 1 y:InvalidParameterValue:true a",
	},
}
