package fakesqs_test

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// visibilityRows are about receipt handles of standard queues, in which the modes differ.
var visibilityRows = []row{
	{
		name: "hidden until the timeout ends", source: guide + "sqs-visibility-timeout.html", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			w.receive()
			w.pass(29 * time.Second)
			w.receive()
			w.pass(time.Second)
			w.receive()
		}, want: "a - a",
	},
	{
		name: "a receive with its own timeout", source: api + "ReceiveMessage.html", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			w.receive(visibility(100))
			w.pass(99 * time.Second)
			w.receive()
			w.pass(time.Second)
			w.receive()
		}, want: "a - a",
	},
	{
		name: "put back at once", source: guide + "sqs-visibility-timeout.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.receive()
			w.hide(h, 0)
			w.receive()
		}, want: "a - ok a",
	},
	{
		name: "extended, counted from the call", source: api + "ChangeMessageVisibility.html", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.pass(15 * time.Second)
			w.hide(h, 20)
			w.pass(19 * time.Second)
			w.receive()
			w.pass(time.Second)
			w.receive()
			w.pass(29 * time.Second)
			w.receive()
			w.pass(time.Second) // a changed timeout is not remembered
			w.receive()
		}, want: "a ok - a - a",
	},
	{
		name: "twelve hours from the receive are the limit", source: guide + "sqs-visibility-timeout.html", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.hide(h, 43201)
			w.pass(10 * time.Second)
			w.hide(h, 43191)
			w.hide(h, 43190)
			w.pass(43189 * time.Second)
			w.receive()
			w.pass(time.Second)
			w.receive()
		}, want: "a InvalidParameterValue InvalidParameterValue ok - a",
	},
	{
		// The reference lists MessageNotInflight. The service was recorded to return 200 and to do nothing.
		name: "extended after the timeout", source: "recorded: 200, and nothing happens", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.pass(30 * time.Second)
			w.hide(h, 600)
			w.receive()
		}, want: "a ok a", strict: "a AWS.SimpleQueueService.MessageNotInflight a",
	},
	{
		name: "an old handle extends the new holder's delivery", source: "recorded: 200", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.pass(30 * time.Second)
			w.receive()
			w.hide(h, 600)
			w.pass(30 * time.Second)
			w.receive()
		}, want: "a a ok -", strict: "a a ReceiptHandleIsInvalid a",
	},
	{
		name: "an old handle puts back what another holds", source: "recorded: 200", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.pass(30 * time.Second)
			w.receive()
			w.hide(h, 0)
			w.receive()
		}, want: "a a ok a", strict: "a a ReceiptHandleIsInvalid -",
	},
	{
		// The reference says that nothing is deleted, and that the call succeeds; both happen (Options.KeepStaleDeletes).
		name: "an old handle deletes what another holds", source: "recorded: deleted", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.pass(30 * time.Second)
			w.receive()
			w.del(h)
			w.attribute(counts[1])
		}, want: "a a ok 0", strict: "a a ReceiptHandleIsInvalid 1",
	},
}

var moreVisibilityRows = []row{
	{
		name: "deleted after the timeout", source: "recorded: deleted", clock: true,
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.pass(30 * time.Second)
			w.del(h)
			w.receive()
		}, want: "a ok -",
	},
	{
		name: "deleted twice", source: api + "DeleteMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.del(h)
			w.del(h)
			w.attribute(counts[:2]...)
		}, want: "a ok ok 0 0",
	},
	{
		name: "extended after the delete", source: "recorded: InvalidParameterValue",
		moto: "it does not know the handle any more",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			h := handle(w.receive())
			w.del(h)
			w.hide(h, 60)
		}, want: "a ok InvalidParameterValue",
	},
	{
		name: "a handle that never was one", source: api + "DeleteMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			w.del(aws.String("garbage"))
			w.hide(aws.String("garbage"), 1)
		}, want: "ReceiptHandleIsInvalid ReceiptHandleIsInvalid",
	},
	{
		name: "the handle of another queue", source: api + "DeleteMessage.html",
		steps: func(w *fixture) {
			w.queue("-1")
			w.send("a")
			h := handle(w.receive())
			w.queue("-2")
			w.del(h)
		}, want: "a ReceiptHandleIsInvalid",
	},
	{
		name: "handles differ from receive to receive", source: api + "DeleteMessage.html",
		steps: func(w *fixture) {
			w.queue("")
			w.send("a")
			first := handle(w.receive())
			w.hide(first, 0)
			second := handle(w.receive())
			w.say("%t", *first != *second)
		}, want: "a ok a true",
	},
	{
		name: "errors have their types", source: api + "ChangeMessageVisibility.html",
		steps: func(w *fixture) {
			w.queue("")
			_, err := w.c.DeleteMessage(w.Context(), deletion(w.url, "garbage"))
			var typed *types.ReceiptHandleIsInvalid
			w.say("%t", errors.As(err, &typed))
		}, want: "true",
	},
}
