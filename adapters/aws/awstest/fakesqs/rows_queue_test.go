package fakesqs_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// status is the HTTP status of an error.
func status(err error) int {
	var e *awshttp.ResponseError
	if errors.As(err, &e) {
		return e.HTTPStatusCode()
	}
	return http.StatusOK
}

func (w *fixture) set(name, value string) {
	_, err := w.c.SetQueueAttributes(w.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: w.url, Attributes: map[string]string{name: value},
	})
	w.say("%s", code(err))
}

func (w *fixture) purge() {
	_, err := w.c.PurgeQueue(w.Context(), &sqs.PurgeQueueInput{QueueUrl: w.url})
	w.say("%s", code(err))
}

func (w *fixture) drop() {
	_, err := w.c.DeleteQueue(w.Context(), &sqs.DeleteQueueInput{QueueUrl: w.url})
	w.say("%s", code(err))
}

// queueRows are about queues.
var queueRows = []row{
	{
		name: "create again with the same attributes", source: api + "CreateQueue.html",
		steps: func(w *fixture) {
			a, b, c := w.queue("", "DelaySeconds", "7"), w.queue("", "DelaySeconds", "7"), w.queue("")
			w.say("%t %t", *a == *b, *a == *c)
		}, want: "true true",
	},
	{
		name: "create again with other attributes", source: api + "CreateQueue.html",
		steps: func(w *fixture) {
			w.queue("", "DelaySeconds", "7")
			w.queue("", "DelaySeconds", "8")
		}, want: "QueueAlreadyExists",
	},
	{
		name: "create with a bad name", source: api + "CreateQueue.html",
		steps: func(w *fixture) { w.queue(" x") }, want: "InvalidParameterValue",
	},
	{
		name: "create within a minute of the delete", source: api + "DeleteQueue.html", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.drop()
			w.queue("")
			w.pass(time.Minute)
			w.queue("")
			w.receive()
		}, want: "ok AWS.SimpleQueueService.QueueDeletedRecently -",
	},
	{
		name: "attributes out of range", source: api + "CreateQueue.html",
		moto: "it stores values out of range",
		steps: func(w *fixture) {
			w.queue("")
			for _, p := range []string{
				"VisibilityTimeout=43201", "DelaySeconds=901", "MessageRetentionPeriod=59", "MessageRetentionPeriod=1209601",
				"MaximumMessageSize=1023", "MaximumMessageSize=1048577", "ReceiveMessageWaitTimeSeconds=21",
			} {
				k, v, _ := strings.Cut(p, "=")
				w.set(k, v)
			}
		}, want: strings.TrimSpace(strings.Repeat("InvalidAttributeValue ", 7)),
	},
	{
		name: "an attribute that does not exist", source: api + "SetQueueAttributes.html",
		moto: "it stores any attribute",
		steps: func(w *fixture) {
			w.queue("")
			w.set("Colour", "red")
		}, want: "InvalidAttributeName",
	},
	{
		name: "defaults", source: api + "CreateQueue.html",
		steps: func(w *fixture) {
			w.queue("")
			w.attribute("VisibilityTimeout", "DelaySeconds", "MessageRetentionPeriod", "MaximumMessageSize", "ReceiveMessageWaitTimeSeconds")
		}, want: "30 0 345600 1048576 0",
	},
	{
		name: "a queue that does not exist", source: api + "GetQueueUrl.html",
		steps: func(w *fixture) {
			_, err := w.c.GetQueueUrl(w.Context(), &sqs.GetQueueUrlInput{QueueName: &w.name})
			var typed *types.QueueDoesNotExist
			w.say("%s %d %t", code(err), status(err), errors.As(err, &typed))
		}, want: "AWS.SimpleQueueService.NonExistentQueue 400 true",
	},
	{
		name: "a name instead of a queue's URL", source: api + "SendMessage.html", moto: "it takes the last part of anything",
		steps: func(w *fixture) {
			url := *w.queue("")
			w.url = &w.name
			w.send("a")
			base, _, _ := strings.Cut(url, "/000000000000/")
			w.url = &base
			w.send("a")
		}, want: "InvalidAddress InvalidAddress",
	},
	{
		name: "messages to a queue that was deleted", source: api + "DeleteQueue.html",
		steps: func(w *fixture) {
			w.queue("")
			w.drop()
			w.send("a")
			w.receive()
		}, want: "ok AWS.SimpleQueueService.NonExistentQueue AWS.SimpleQueueService.NonExistentQueue",
	},
	{
		name: "listing by prefix and page", source: api + "ListQueues.html", moto: "it gives all queues on one page",
		steps: func(w *fixture) {
			w.queue("-1")
			w.queue("-2")
			w.queue("-3")
			var token *string
			for {
				out, err := w.c.ListQueues(w.Context(), &sqs.ListQueuesInput{
					QueueNamePrefix: &w.name, MaxResults: aws.Int32(2), NextToken: token,
				})
				if err != nil {
					w.Fatal(err)
				}
				w.say("%d", len(out.QueueUrls))
				if token = out.NextToken; token == nil {
					return
				}
			}
		}, want: "2 1",
	},
}

var moreQueueRows = []row{
	{
		name: "counts of messages", source: guide + "sqs-resources-required-process-messages.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			w.send("b")
			w.send("c", func(in *sqs.SendMessageInput) { in.DelaySeconds = 60 })
			w.c.ReceiveMessage(w.Context(), &sqs.ReceiveMessageInput{QueueUrl: w.url, MaxNumberOfMessages: 1})
			w.attribute(counts...)
		}, want: "1 1 1",
	},
	{
		name: "purge removes messages in flight and delayed ones too", source: api + "PurgeQueue.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			w.send("b", func(in *sqs.SendMessageInput) { in.DelaySeconds = 60 })
			w.receive()
			w.purge()
			w.attribute(counts...)
		}, want: "a ok 0 0 0",
	},
	{
		name: "purge twice in a minute", source: api + "PurgeQueue.html", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.purge()
			w.purge()
			w.pass(time.Minute)
			w.purge()
		}, want: "ok AWS.SimpleQueueService.PurgeQueueInProgress ok",
	},
	{
		name: "tags", source: api + "TagQueue.html",
		steps: func(w *fixture) {
			w.queue("")
			_, err := w.c.TagQueue(w.Context(), &sqs.TagQueueInput{QueueUrl: w.url, Tags: map[string]string{"a": "1", "b": "2"}})
			w.say("%s", code(err))
			_, err = w.c.UntagQueue(w.Context(), &sqs.UntagQueueInput{QueueUrl: w.url, TagKeys: []string{"a"}})
			w.say("%s", code(err))
			out, err := w.c.ListQueueTags(w.Context(), &sqs.ListQueueTagsInput{QueueUrl: w.url})
			if err != nil {
				w.Fatal(err)
			}
			var keys []string
			for k := range out.Tags {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			w.say("%v", keys)
		}, want: "ok ok [b]",
	},
	{
		name: "retention ends", source: api + "SetQueueAttributes.html", clock: true,
		steps: func(w *fixture) {
			w.queue("", "MessageRetentionPeriod", "60")
			w.send("a")
			w.pass(59 * time.Second)
			w.attribute(counts[0])
			w.pass(time.Second)
			w.attribute(counts[0])
		}, want: "1 0",
	},
	{
		name: "retention ends for a message in flight", source: guide + "sqs-basic-architecture.html", clock: true,
		steps: func(w *fixture) {
			w.queue("", "MessageRetentionPeriod", "60")
			w.send("a")
			h := handle(w.receive(visibility(600)))
			w.pass(time.Minute)
			w.attribute(counts[1])
			w.hide(h, 10)
		}, want: "a 0 InvalidParameterValue",
	},
}
