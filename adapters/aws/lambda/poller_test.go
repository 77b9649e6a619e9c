package semellambda_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/sqs"
)

const visibility = 3 * time.Minute

// poller does what Lambda does between a queue and a function. The clock of the queue stands still.
//
// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
type poller struct {
	t      *testing.T
	clock  *awstest.Clock
	fake   *fakesqs.Server
	client *awssqs.Client
	queue  *sqs.Queue
	url    string
	arn    string
}

func newPoller(t *testing.T, name string, o sqs.CreateOptions) *poller {
	t.Helper()
	p := &poller{t: t, clock: awstest.Frozen(time.Now())}
	p.fake = fakesqs.New(fakesqs.Options{Clock: p.clock})
	p.client = awssqs.NewFromConfig(awstest.Config(p.fake))
	o.Visibility = visibility
	made, err := sqs.Create(t.Context(), p.client, name, o)
	if err != nil {
		t.Fatal(err)
	}
	p.clock.Advance(2 * time.Second)
	p.url, p.arn = made.URL, "arn:aws:sqs:us-east-1:000000000000:"+name
	if p.queue, err = sqs.Open(t.Context(), p.client, name, sqs.Options{Wait: sqs.ShortPoll}); err != nil {
		t.Fatal(err)
	}
	return p
}

// round passes a batch to the function, deletes the messages that it did not report, and waits until the visibility of the
// others has ended. alive is false if the function died: then nothing is deleted. It returns the number of messages in the
// batch.
func (p *poller) round(function func(events.SQSEvent) (response []byte, alive bool)) int {
	p.t.Helper()
	out, err := p.client.ReceiveMessage(p.t.Context(), &awssqs.ReceiveMessageInput{
		QueueUrl: &p.url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	defer p.clock.Advance(visibility + time.Second)
	if len(out.Messages) == 0 {
		return 0
	}
	var ev events.SQSEvent
	for i := range out.Messages {
		ev.Records = append(ev.Records, p.record(&out.Messages[i]))
	}
	response, alive := function(ev)
	if !alive {
		return len(ev.Records)
	}
	failed, ok := reported(response, ev.Records)
	for i, r := range ev.Records {
		if ok && !slices.Contains(failed, r.MessageId) {
			if _, err := p.client.DeleteMessage(p.t.Context(), &awssqs.DeleteMessageInput{
				QueueUrl: &p.url, ReceiptHandle: out.Messages[i].ReceiptHandle,
			}); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	return len(ev.Records)
}

func (p *poller) record(m *types.Message) events.SQSMessage {
	r := events.SQSMessage{
		MessageId: aws.ToString(m.MessageId), ReceiptHandle: aws.ToString(m.ReceiptHandle), Body: aws.ToString(m.Body),
		Attributes: m.Attributes, MessageAttributes: map[string]events.SQSMessageAttribute{},
		EventSourceARN: p.arn, EventSource: "aws:sqs", AWSRegion: awstest.Region,
	}
	for name, v := range m.MessageAttributes {
		r.MessageAttributes[name] = events.SQSMessageAttribute{
			StringValue: v.StringValue, BinaryValue: v.BinaryValue, DataType: aws.ToString(v.DataType),
		}
	}
	return r
}

// reported reads a response as strictly as Lambda does: an unknown identifier fails the whole batch.
func reported(response []byte, records []events.SQSMessage) (failed []string, ok bool) {
	var got struct {
		Failures []map[string]*string `json:"batchItemFailures"`
	}
	if err := json.Unmarshal(response, &got); err != nil {
		return nil, false
	}
	for _, f := range got.Failures {
		id := f["itemIdentifier"]
		if id == nil || !slices.ContainsFunc(records, func(r events.SQSMessage) bool { return r.MessageId == *id }) {
			return nil, false
		}
		failed = append(failed, *id)
	}
	return failed, true
}

// empty reports that the queue is empty.
func (p *poller) empty() bool {
	name := p.queue.Features().Name
	visible, inFlight, delayed := p.fake.Count(name)
	return visible+inFlight+delayed == 0
}
