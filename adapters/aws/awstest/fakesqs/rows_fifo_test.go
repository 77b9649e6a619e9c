package fakesqs_test

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func attemptID(id string) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = &id }
}

// groupRows are about the order in FIFO queues, dedupRows about their deduplication, attemptRows about receives that are
// repeated.
var groupRows = []row{
	{
		name: "fifo in order, many of a group in one receive", source: guide + "FIFO-queues-understanding-logic.html",
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b")
			w.group("2", "x")
			w.group("1", "c")
			w.receive(most(2))
			w.receive()
		}, want: "a+b x",
	},
	{
		name: "fifo group is blocked until all is deleted", source: guide + "FIFO-queues-understanding-logic.html",
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b")
			h := handle(w.receive(most(1)))
			w.receive()
			w.del(h)
			w.receive()
		}, want: "a - ok b",
	},
	{
		name: "fifo message comes again before those behind it", source: guide + "FIFO-queues-understanding-logic.html", clock: true,
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b")
			w.receive(most(1))
			w.pass(30 * time.Second)
			w.receive()
		}, want: "a a+b",
	},
	{
		name: "fifo message put back with a delay blocks its group", source: api + "ChangeMessageVisibility.html", clock: true,
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b")
			w.hide(handle(w.receive(most(1))), 60)
			w.pass(59 * time.Second)
			w.receive()
			w.pass(time.Second)
			w.receive()
		}, want: "a ok - a+b",
	},
	{
		// The guide says that nothing of a group comes while any of it is invisible: Strict.
		name:   "fifo message put back while a later one is in flight",
		source: "recorded: messages before the one in flight are delivered",
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b", "c")
			w.hide(handle(w.receive(most(2))), 0)
			w.receive()
		}, want: "a+b ok a", strict: "a+b ok -",
	},
	{
		name: "fifo delete after the timeout", source: guide + "FIFO-queues-exactly-once-processing.html", clock: true,
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a")
			h := handle(w.receive())
			w.pass(30 * time.Second)
			w.del(h)
			w.hide(h, 10)
			w.receive()
			w.del(h)
		}, want: "a InvalidParameterValue InvalidParameterValue a InvalidParameterValue",
	},
	{
		name: "fifo delete twice", source: api + "DeleteMessage.html",
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a")
			h := handle(w.receive())
			w.del(h)
			w.del(h)
		}, want: "a ok ok",
	},
	{
		name: "fifo needs a group, and an id or the content's", source: api + "SendMessage.html",
		steps: func(w *fixture) {
			w.fifo()
			w.send("a")
			w.send("a", inGroup("1"))
			w.send("a", inGroup("1"), dedup("x"))
			w.send("a", inGroup("1 2"), dedup("y"))
			w.send("a", inGroup("1"), dedup(strings.Repeat("y", 129)))
			w.receive()
		}, want: "MissingParameter InvalidParameterValue InvalidParameterValue InvalidParameterValue a",
	},
	{
		name: "fifo has no delay of a message", source: api + "SendMessage.html",
		steps: func(w *fixture) {
			w.fifo()
			w.send("a", inGroup("1"), dedup("x"), delay(2))
		}, want: "InvalidParameterValue",
	},
	{
		name: "fifo delay of the queue, also a later one", source: guide + "sqs-delay-queues.html", clock: true,
		steps: func(w *fixture) {
			w.fifo("DelaySeconds", "10")
			w.group("1", "a")
			w.receive()
			w.set("DelaySeconds", "20")
			w.pass(10 * time.Second)
			w.receive()
			w.pass(10 * time.Second)
			w.receive()
		}, want: "- ok - a",
	},
	{
		name: "fifo name and attribute belong together", source: api + "CreateQueue.html",
		steps: func(w *fixture) {
			w.queue("", "FifoQueue", "true")
			w.queue(".fifo")
			w.queue("", "ContentBasedDeduplication", "true")
		}, want: "InvalidParameterValue InvalidParameterValue InvalidAttributeName",
	},
}

var dedupRows = []row{
	{
		name: "fifo deduplication by id", source: guide + "using-messagededuplicationid-property.html", clock: true,
		steps: func(w *fixture) {
			w.fifo()
			first := w.send("a", inGroup("1"), dedup("x"))
			again := w.send("b", inGroup("2"), dedup("x"))
			w.say("%t %t", *first.MessageId == *again.MessageId, *first.SequenceNumber == *again.SequenceNumber)
			w.del(handle(w.receive()))
			w.send("c", inGroup("1"), dedup("x")) // also after the delete
			w.receive()
			w.pass(5 * time.Minute)
			w.send("d", inGroup("1"), dedup("x"))
			w.receive()
		}, want: "true true a ok - d",
	},
	{
		name: "fifo deduplication by content ignores attributes", source: guide + "using-messagededuplicationid-property.html",
		steps: func(w *fixture) {
			w.fifo("ContentBasedDeduplication", "true")
			w.send("a", inGroup("1"))
			w.send("a", inGroup("1"), with(map[string]types.MessageAttributeValue{"k": text("v")}))
			w.send("a", inGroup("1"), dedup("other")) // an id overrides the content
			for _, m := range w.receive() {
				w.say("%d", len(m.Attributes["MessageDeduplicationId"]))
			}
		}, want: "a+a 64 5",
	},
	{
		name: "fifo deduplication in the group", source: guide + "high-throughput-fifo.html",
		steps: func(w *fixture) {
			w.fifo("DeduplicationScope", "messageGroup", "FifoThroughputLimit", "perMessageGroupId")
			w.send("a", inGroup("1"), dedup("x"))
			w.send("b", inGroup("1"), dedup("x"))
			w.send("c", inGroup("2"), dedup("x"))
			w.receive()
		}, want: "a+c",
	},
	{
		name: "fifo sequence numbers grow", source: api + "SendMessage.html",
		steps: func(w *fixture) {
			w.fifo()
			a, b := w.send("a", inGroup("1"), dedup("a")), w.send("b", inGroup("2"), dedup("b"))
			w.say("%d %t", len(*a.SequenceNumber), *a.SequenceNumber < *b.SequenceNumber)
			w.say("%t", w.receive()[0].Attributes["SequenceNumber"] == *a.SequenceNumber)
		}, want: "20 true a+b true",
	},
}

const attempts = guide + "using-receiverequestattemptid-request-parameter.html"

var attemptRows = []row{
	{
		name: "fifo receive repeated with its attempt id", source: attempts, clock: true,
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b")
			first := handle(w.receive(attemptID("x")))
			w.pass(20 * time.Second)
			again := handle(w.receive(attemptID("x")))
			w.say("%t", *first == *again)
			w.pass(20 * time.Second) // the repetition started the timeout anew
			w.receive(attemptID("y"))
			w.del(first)
		}, want: "a+b a+b true - ok",
	},
	{
		name: "fifo receive is not repeated once a message was touched", source: attempts,
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b")
			w.hide(handle(w.receive(attemptID("x"))), 60)
			w.receive(attemptID("x"))
		}, want: "a+b ok -",
	},
	{
		name: "fifo receive is not repeated after a delete", source: attempts,
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a", "b")
			w.del(handle(w.receive(attemptID("x"))))
			w.receive(attemptID("x"))
		}, want: "a+b ok -",
	},
	{
		name: "fifo receive is repeated for five minutes", source: attempts, clock: true,
		steps: func(w *fixture) {
			w.fifo()
			w.group("1", "a")
			w.receive(attemptID("x"), visibility(1000))
			w.pass(5 * time.Minute)
			w.receive(attemptID("x"))
		}, want: "a -",
	},
}
