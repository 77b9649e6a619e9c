package fakesqs_test

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func text(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
}

func with(attributes map[string]types.MessageAttributeValue) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) { in.MessageAttributes = attributes }
}

func delay(n int32) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) { in.DelaySeconds = n }
}

// messageRows are about sending, and what arrives. The SDK compares the MD5 of bodies and attributes in each of them.
var messageRows = []row{
	{
		name: "a body of every legal kind", source: api + "SendMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("\t\n\r ~\u00e9\u2028\ufffd\U0001F600<&>\"")
			w.receive()
		}, want: "\t\n\r ~\u00e9\u2028\ufffd\U0001F600<&>\"",
	},
	{
		name: "characters that SQS does not carry", source: api + "SendMessage.html", moto: "it carries every character",
		steps: func(w *fixture) {
			w.queue("")
			for _, c := range []string{"\x00", "\x0b", "\x1f", "\ufffe", "\uffff"} {
				w.send("a" + c)
			}
		}, want: strings.TrimSpace(strings.Repeat("InvalidMessageContents ", 5)),
	},
	{
		name: "an empty body", source: "recorded: MissingParameter", moto: "it takes an empty body",
		steps: func(w *fixture) {
			w.queue("")
			w.send("")
		}, want: "MissingParameter",
	},
	{
		name: "the greatest message", source: guide + "quotas-messages.html", moto: "attributes do not count there",
		steps: func(w *fixture) {
			w.queue("")
			w.say("%d", len(*w.send(strings.Repeat("a", 1<<20)).MessageId))
			w.send(strings.Repeat("a", 1<<20+1))
			w.say("%d", len(*w.send(strings.Repeat("a", 1<<20-10), with(map[string]types.MessageAttributeValue{"a": text("123")})).MessageId))
			w.send(strings.Repeat("a", 1<<20-9), with(map[string]types.MessageAttributeValue{"a": text("123")}))
		}, want: "36 InvalidParameterValue 36 InvalidParameterValue",
	},
	{
		name: "a queue with smaller messages", source: api + "SetQueueAttributes.html",
		steps: func(w *fixture) {
			w.queue("", "MaximumMessageSize", "1024")
			w.send(strings.Repeat("a", 1024))
			w.send(strings.Repeat("a", 1025))
		}, want: "InvalidParameterValue",
	},
	{
		name: "attributes of every type", source: guide + "sqs-message-metadata.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a", with(map[string]types.MessageAttributeValue{
				"s": text("é"), "n": {DataType: aws.String("Number.int"), StringValue: aws.String("1.50")},
				"b": {DataType: aws.String("Binary.gif"), BinaryValue: []byte{0, 255}},
			}))
			for _, m := range w.receive() {
				w.say("%s %s %v %s", *m.MessageAttributes["s"].StringValue, *m.MessageAttributes["n"].StringValue,
					m.MessageAttributes["b"].BinaryValue, *m.MessageAttributes["b"].DataType)
			}
		}, want: "a é 1.50 [0 255] Binary.gif",
	},
	{
		name: "attributes that are refused", source: guide + "sqs-message-metadata.html",
		moto: "it looks at the characters of names only, not at prefixes, periods and length",
		steps: func(w *fixture) {
			w.queue("")
			for _, name := range []string{"a b", ".a", "a.", "a..b", "AWS.x", "amazon.x", strings.Repeat("a", 257)} {
				w.send("a", with(map[string]types.MessageAttributeValue{name: text("1")}))
			}
		}, want: strings.TrimSpace(strings.Repeat("InvalidParameterValue ", 7)),
	},
	{
		name: "an attribute without value or with another type", source: "recorded: InvalidParameterValue",
		moto: "it refuses one of the two only",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a", with(map[string]types.MessageAttributeValue{"a": text("")}))
			w.send("a", with(map[string]types.MessageAttributeValue{"a": {DataType: aws.String("Colour"), StringValue: aws.String("red")}}))
		}, want: "InvalidParameterValue InvalidParameterValue",
	},
	{
		name: "numbers in attributes", source: "recorded: InvalidParameterValue", moto: "it looks at no number",
		steps: func(w *fixture) {
			w.queue("")
			for _, n := range []string{"1", "-1.5e+3", ".5", "7.", "1a", "0x1", "1_0", "-", "NaN", " 1"} {
				out := w.send(n, with(map[string]types.MessageAttributeValue{
					"n": {DataType: aws.String("Number.of"), StringValue: &n},
				}))
				if *out.MessageId != "" {
					w.say("%s", n)
				}
			}
		}, want: "1 -1.5e+3 .5 7." + strings.Repeat(" InvalidParameterValue", 6),
	},
	{
		name: "eleven attributes", source: guide + "sqs-message-metadata.html", moto: "it takes any number",
		steps: func(w *fixture) {
			w.queue("")
			all := map[string]types.MessageAttributeValue{}
			for _, c := range "abcdefghij" {
				all[string(c)] = text("1")
			}
			w.send("ten", with(all))
			all["k"] = text("1")
			w.send("eleven", with(all))
			w.receive()
		}, want: "InvalidParameterValue ten",
	},
	{
		name: "attributes by name and prefix", source: api + "ReceiveMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			for _, want := range []string{"All", ".*", "bar.*", "foo", "none"} {
				w.send(want, with(map[string]types.MessageAttributeValue{"foo": text("1"), "bar.a": text("1"), "bar.b": text("1")}))
				for _, m := range w.receive(func(in *sqs.ReceiveMessageInput) { in.MessageAttributeNames = []string{want} }) {
					w.say("%d", len(m.MessageAttributes))
				}
			}
		}, want: "All 3 .* 3 bar.* 2 foo 1 none 0",
	},
}

var moreMessageRows = []row{
	{
		name: "system attributes", source: api + "ReceiveMessage.html", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a", func(in *sqs.SendMessageInput) {
				in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
					"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
				}
			}, inGroup("fair"))
			w.pass(time.Second)
			w.receive(visibility(1))
			w.pass(time.Second)
			for _, m := range w.receive() {
				a := m.Attributes
				w.say("%s %s %s %s %s %d", a["SentTimestamp"], a["ApproximateFirstReceiveTimestamp"], a["ApproximateReceiveCount"],
					a["MessageGroupId"], a["AWSTraceHeader"][:6], len(a))
			}
		}, want: "a a 1700000000000 1700000001000 2 fair Root=1 6",
	},
	{
		name: "system attributes by their old name", source: api + "ReceiveMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			for _, m := range w.receive(func(in *sqs.ReceiveMessageInput) {
				in.MessageSystemAttributeNames = nil
				in.AttributeNames = []types.QueueAttributeName{"ApproximateReceiveCount"} //nolint:staticcheck // programs use it
			}) {
				w.say("%v", m.Attributes)
			}
		}, want: "a map[ApproximateReceiveCount:1]",
	},
	{
		name: "delays", source: guide + "sqs-message-timers.html", clock: true,
		steps: func(w *fixture) {
			w.queue("", "DelaySeconds", "10")
			w.send("queue's")
			w.send("own", delay(20))
			w.pass(9 * time.Second)
			w.receive()
			w.pass(time.Second)
			w.receive()
			w.pass(10 * time.Second)
			w.receive()
		}, want: "- queue's own",
	},
	{
		name: "a delay out of range", source: api + "SendMessage.html", moto: "it takes a negative delay",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a", delay(901))
			w.send("a", delay(-1))
		}, want: "InvalidParameterValue InvalidParameterValue",
	},
	{
		name: "a deduplication id on a standard queue", source: "recorded: InvalidParameterValue",
		moto: "it takes one and ignores it",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a", dedup("x"))
		}, want: "InvalidParameterValue",
	},
	{
		name: "a group on a standard queue", source: guide + "sqs-fair-queues.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a", inGroup("tenant"))
			w.receive()
		}, want: "a",
	},
	{
		name: "parameters of a receive out of range", source: api + "ReceiveMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			w.receive(most(11))
			w.receive(most(-1))
			w.receive(visibility(43201))
			w.receive(func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = 21 })
		}, want: strings.TrimSpace(strings.Repeat("InvalidParameterValue ", 4)),
	},
	{
		name: "one message unless more are asked for", source: api + "ReceiveMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			w.send("b")
			w.say("%d", len(w.receive(most(0))))
		}, want: "a 1",
	},
	{
		name: "three receives put a message to the back", source: guide + "sqs-dead-letter-queues.html", clock: true,
		steps: func(w *fixture) {
			w.queue("", "VisibilityTimeout", "1")
			w.send("a")
			w.send("b")
			for range 3 {
				w.receive(most(1))
				w.pass(time.Second)
			}
			w.receive(most(1))
			w.receive(most(1))
		}, want: "a a a b a",
	},
}
