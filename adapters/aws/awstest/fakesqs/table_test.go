package fakesqs_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
)

// row is a documented behaviour: the steps record what the service returned, and want is what it should return. The same
// rows run against the fake in both modes and against any other endpoint.
type row struct {
	name string
	// source is the page of the documentation, below docs.aws.amazon.com/AWSSimpleQueueService/latest/; "recorded: …" marks
	// a response of the service that no page gives.
	source string
	// clock: the row moves the clock, which is only possible on the fake.
	clock bool
	// moto is why moto_server responds differently, "" if it does not; "fifo" marks the rows of FIFO queues, which do not
	// run there.
	moto  string
	steps func(*fixture)
	want  string
	// strict is the result in mode Strict, "" if it is the same.
	strict string
}

const (
	api   = "APIReference/API_"
	guide = "SQSDeveloperGuide/"
)

// fixture is one service with the queue of a row, and what it returned.
type fixture struct {
	*testing.T
	c     *sqs.Client
	clock *awstest.Clock
	fake  *fakesqs.Server
	name  string
	url   *string
	said  []string
}

func (w *fixture) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// code returns the code of an error, or "ok".
func code(err error) string {
	var e smithy.APIError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return e.ErrorCode()
	default:
		return err.Error()
	}
}

// queue makes the row's queue, and records only a failure. Attributes are pairs.
func (w *fixture) queue(suffix string, pairs ...string) *string {
	w.Helper()
	in := &sqs.CreateQueueInput{QueueName: aws.String(w.name + suffix), Attributes: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		in.Attributes[pairs[i]] = pairs[i+1]
	}
	out, err := w.c.CreateQueue(w.Context(), in)
	if err != nil {
		w.say("%s", code(err))
		return nil
	}
	w.url = out.QueueUrl
	return out.QueueUrl
}

func (w *fixture) fifo(pairs ...string) *string {
	return w.queue(".fifo", append([]string{"FifoQueue", "true"}, pairs...)...)
}

func (w *fixture) arn(url *string) string {
	w.Helper()
	out, err := w.c.GetQueueAttributes(w.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: url, AttributeNames: []types.QueueAttributeName{"QueueArn"},
	})
	if err != nil {
		w.Fatal(err)
	}
	return out.Attributes["QueueArn"]
}

func (w *fixture) send(body string, more ...func(*sqs.SendMessageInput)) *sqs.SendMessageOutput {
	in := &sqs.SendMessageInput{QueueUrl: w.url, MessageBody: &body}
	for _, f := range more {
		f(in)
	}
	out, err := w.c.SendMessage(w.Context(), in)
	if err != nil {
		w.say("%s", code(err))
		return &sqs.SendMessageOutput{MessageId: aws.String("")}
	}
	return out
}

// group sends to a group of a FIFO queue.
func (w *fixture) group(group string, bodies ...string) {
	for _, b := range bodies {
		w.send(b, inGroup(group), dedup(b))
	}
}

func inGroup(g string) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) { in.MessageGroupId = &g }
}

func dedup(id string) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) { in.MessageDeduplicationId = &id }
}

// receive receives up to ten messages and records their bodies, "-" for none.
func (w *fixture) receive(more ...func(*sqs.ReceiveMessageInput)) []types.Message {
	in := &sqs.ReceiveMessageInput{
		QueueUrl: w.url, MaxNumberOfMessages: 10, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		MessageAttributeNames: []string{"All"},
	}
	for _, f := range more {
		f(in)
	}
	out, err := w.c.ReceiveMessage(w.Context(), in)
	if err != nil {
		w.say("%s", code(err))
		return nil
	}
	bodies := []string{}
	for _, m := range out.Messages {
		bodies = append(bodies, *m.Body)
	}
	if len(bodies) == 0 {
		bodies = []string{"-"}
	}
	w.say("%s", strings.Join(bodies, "+"))
	return out.Messages
}

func most(n int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = n }
}

func visibility(n int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = n }
}

// handle returns the receipt handle of the first message; without one the row goes on with an invalid handle.
func handle(ms []types.Message) *string {
	if len(ms) == 0 {
		return aws.String("none")
	}
	return ms[0].ReceiptHandle
}

func (w *fixture) del(handle *string) {
	_, err := w.c.DeleteMessage(w.Context(), &sqs.DeleteMessageInput{QueueUrl: w.url, ReceiptHandle: handle})
	w.say("%s", code(err))
}

func (w *fixture) hide(handle *string, seconds int32) {
	_, err := w.c.ChangeMessageVisibility(w.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: w.url, ReceiptHandle: handle, VisibilityTimeout: seconds,
	})
	w.say("%s", code(err))
}

func (w *fixture) pass(d time.Duration) { w.clock.Advance(d) }

// attribute records attributes of the queue.
func (w *fixture) attribute(names ...types.QueueAttributeName) {
	out, err := w.c.GetQueueAttributes(w.Context(), &sqs.GetQueueAttributesInput{QueueUrl: w.url, AttributeNames: names})
	if err != nil {
		w.say("%s", code(err))
		return
	}
	for _, n := range names {
		w.say("%s", out.Attributes[string(n)])
	}
}

var counts = []types.QueueAttributeName{
	"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
}

// allRows is the table.
func allRows() []row {
	all := slices.Concat(queueRows, moreQueueRows, messageRows, moreMessageRows, visibilityRows, moreVisibilityRows, batchRows,
		redriveRows, moveRows)
	for _, r := range slices.Concat(groupRows, dedupRows, attemptRows) {
		r.moto = "fifo"
		all = append(all, r)
	}
	return all
}

// queueNameOf makes a name of a row's.
func queueNameOf(r row) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, r.name)[:min(len(r.name), 60)]
}

func TestDocumentedResponses(t *testing.T) {
	for _, mode := range []fakesqs.Mode{fakesqs.AWS, fakesqs.Strict} {
		t.Run([]string{"aws", "strict"}[mode], func(t *testing.T) {
			for _, r := range allRows() {
				t.Run(r.name, func(t *testing.T) {
					clock := awstest.Frozen(time.Unix(1_700_000_000, 0))
					fake := fakesqs.New(fakesqs.Options{Clock: clock, Mode: mode})
					w := &fixture{T: t, c: sqs.NewFromConfig(awstest.Config(fake)), clock: clock, fake: fake, name: queueNameOf(r)}
					want := r.want
					if mode == fakesqs.Strict && r.strict != "" {
						want = r.strict
					}
					r.steps(w)
					if got := strings.Join(w.said, " "); got != want {
						t.Errorf("got  %s\nwant %s\nsource: %s", got, want, r.source)
					}
				})
			}
		})
	}
}

// TestMotoAgrees compares with another emulator: if both agree, a mistake about the service is less likely. A known
// difference must still exist.
func TestMotoAgrees(t *testing.T) {
	client := sqs.NewFromConfig(moto.Config(moto.Start(t)))
	asked, differ := 0, 0
	for _, r := range allRows() {
		if r.clock || r.moto == "fifo" {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			w := &fixture{T: t, c: client, name: queueNameOf(r)}
			r.steps(w)
			asked++
			got := strings.Join(w.said, " ")
			switch {
			case got == r.want && r.moto != "":
				t.Errorf("moto says %s as documented, and no longer differs: %s", got, r.moto)
			case got != r.want && r.moto == "":
				t.Errorf("moto says %s\nwant      %s\nsource: %s", got, r.want, r.source)
			case r.moto != "":
				differ++
				t.Logf("DIFFERS: moto says %s, not %s: %s", got, r.want, r.moto)
			}
		})
	}
	fmt.Fprintf(os.Stderr, "moto was asked %d rows of %d and differs, as known, in %d\n", asked, len(allRows()), differ)
}
