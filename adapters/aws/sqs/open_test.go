package sqs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/driver"
)

// refuse responds to every request with an error of the service.
type refuse struct{ code string }

func (r refuse) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, `{"__type":"com.amazonaws.sqs#`+r.code+`","message":"no"}`)
}

// TestOpenSaysWhatToDo: the error of a wrong configuration says what is wrong and how to fix it.
func TestOpenSaysWhatToDo(t *testing.T) {
	fake := fakesqs.New(fakesqs.Options{})
	if _, err := fake.CreateQueue("orders", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := fake.CreateQueue("broken", nil); err != nil {
		t.Fatal(err)
	}
	client := func(h http.Handler, change func(*aws.Config)) Client {
		c := awstest.Config(h)
		c.RetryMaxAttempts = 1
		if change != nil {
			change(&c)
		}
		return awssqs.NewFromConfig(c)
	}
	for name, c := range map[string]struct {
		client Client
		queue  string
		o      Options
		want   string
	}{
		"no queue given": {client(fake, nil), "", Options{}, "no queue given"},
		"missing":        {client(fake, nil), "nobody", Options{}, "aws sqs create-queue --queue-name nobody"},
		"missing URL":    {client(fake, nil), "http://fake.test/000000000000/nobody", Options{}, "the queue does not exist"},
		"no region":      {client(fake, func(c *aws.Config) { c.Region = "" }), "orders", Options{}, "no region: set AWS_REGION"},
		"no credentials": {client(fake, func(c *aws.Config) {
			c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("no EC2 IMDS role found")
			})
		}), "orders", Options{}, "no credentials: set AWS_PROFILE"},
		"access denied":          {client(refuse{"AccessDeniedException"}, nil), "orders", Options{}, "allow sqs:GetQueueUrl"},
		"bad credentials":        {client(refuse{"UnrecognizedClientException"}, nil), "orders", Options{}, "the credentials are not valid"},
		"dead-letter queue":      {client(fake, nil), "orders", Options{DeadLetterQueue: "gone"}, "dead letters of queue \"orders\""},
		"own dead letters":       {client(fake, nil), "orders", Options{DeadLetterQueue: "orders"}, "its own dead-letter queue"},
		"two dead letter places": {client(fake, nil), "orders", Options{DeadLetterQueue: "x", DeadLetters: &DeadLetterQueue{}}, "choose one"},
		"visibility":             {client(fake, nil), "orders", Options{Visibility: 13 * time.Hour}, "Options.Visibility"},
		"wait":                   {client(fake, nil), "orders", Options{Wait: 21 * time.Second}, "Options.Wait"},
	} {
		q, err := Open(t.Context(), c.client, c.queue, c.o)
		if q != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, wanted %q", name, err, c.want)
		}
		if name == "missing" && !errors.Is(err, ErrNoQueue) {
			t.Errorf("%v is not ErrNoQueue", err)
		}
	}
	q, err := Open(t.Context(), client(fake, nil), "orders", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f := q.Features(); f.DeadLetters || f.Redrives || f.Orders || f.Retention != 4*24*time.Hour || q.visible != 30*time.Second {
		t.Errorf("features %+v", f)
	}
	if _, err := q.DeadLetters(t.Context(), 0); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("dead letters of a queue without: %v", err)
	}
}

// TestSendSaysWhatToDo: an error names the message and the fix, and nothing of the call is sent.
func TestSendSaysWhatToDo(t *testing.T) {
	b := newBench(t, setup{name: "orders.fifo", frozen: true})
	for want, m := range map[string]driver.Message{
		`item 1 refused: message "m": it has no group, and the queue is FIFO; Try: set Message.Group`: {ID: "m"},
		`item 1 refused: message "big": it has 1048606 bytes`:                                         {ID: "big", Group: "g", Body: []byte(strings.Repeat("x", maxSize+13))},
	} {
		err := b.q.Send(t.Context(), driver.Message{ID: "fine", Group: "g"}, m)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %q", err, want)
		}
		if culprit := (*driver.ItemError)(nil); !errors.As(err, &culprit) || culprit.Index != 1 {
			t.Errorf("%v does not name message 1", err)
		}
	}
	if n := len(b.server.Messages("orders.fifo")); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// TestS3_36_Batches: a call has at most ten messages and a mebibyte, the last one the rest.
func TestS3_36_Batches(t *testing.T) {
	b := newBench(t, setup{frozen: true})
	before := b.server.Calls("SendMessageBatch")
	b.send(make([]driver.Message, 25)...)
	if n := b.server.Calls("SendMessageBatch") - before; n != 3 {
		t.Errorf("25 messages took %d calls", n)
	}
	big := driver.Message{Body: []byte(strings.Repeat("x", 400_000))}
	before = b.server.Calls("SendMessageBatch")
	b.send(big, big, big, big, big)
	if n := b.server.Calls("SendMessageBatch") - before; n != 3 {
		t.Errorf("5 messages of 400 kB took %d calls, wanted 3", n)
	}
	if n := len(b.server.Messages("orders")); n != 30 {
		t.Errorf("%d messages arrived", n)
	}
}

// smaller accepts no batch of more than 256 KiB.
type smaller struct{ Client }

func (c smaller) SendMessageBatch(ctx context.Context, in *awssqs.SendMessageBatchInput, o ...func(*awssqs.Options)) (
	*awssqs.SendMessageBatchOutput, error,
) {
	n := 0
	for _, e := range in.Entries {
		n += len(aws.ToString(e.MessageBody))
	}
	if n > 256<<10 {
		return nil, &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusBadRequest}},
			Err:      &types.BatchRequestTooLong{Message: aws.String("too long")},
		}
	}
	return c.Client.SendMessageBatch(ctx, in, o...)
}

// TestSmallerBatches: a service that accepts only smaller batches gets them, in the order of sending.
func TestSmallerBatches(t *testing.T) {
	b := newBench(t, setup{name: "orders.fifo", frozen: true})
	b.q.client = smaller{b.q.client}
	var ms []driver.Message
	for i := range 7 {
		ms = append(ms, driver.Message{ID: string(rune('a' + i)), Group: string(rune('a' + i)), Body: []byte(strings.Repeat("x", 100_000))})
	}
	b.send(ms...)
	order := ""
	for _, d := range b.receive(7) {
		order += d.ID
	}
	if order != "abcdefg" {
		t.Errorf("received %s", order)
	}
	b.q.client = smaller{b.client}
	if err := b.q.Send(t.Context(), driver.Message{Group: "g", Body: []byte(strings.Repeat("x", 300_000))}); err == nil {
		t.Error("a message that is too large by itself was sent")
	}
}

// TestS3_12_IdleReceives: an idle queue is polled every ten seconds, and a short poll does not spin.
func TestS3_12_IdleReceives(t *testing.T) {
	for wait, most := range map[time.Duration]int{0: 6, 20 * time.Second: 3, ShortPoll: 300} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, setup{o: Options{Wait: wait}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Millisecond)
			defer cancel()
			for ctx.Err() == nil {
				if ds, err := b.q.Receive(ctx, 10); len(ds) > 0 || err != nil && ctx.Err() == nil {
					t.Fatal(ds, err)
				}
			}
			if n := b.server.Calls("ReceiveMessage"); n != most {
				t.Errorf("wait %v: %d receives in a minute, wanted %d", wait, n, most)
			}
		})
	}
}

// TestFIFO_ReceiveWithoutResponse: if the response to a receive is lost, the next receive returns its messages before their
// visibility ends.
func TestFIFO_ReceiveWithoutResponse(t *testing.T) {
	b := newBench(t, setup{name: "orders.fifo", frozen: true, wrap: wrapOf(after("ReceiveMessage", 1))})
	b.send(driver.Message{ID: "m", Group: "g"})
	if ds, err := b.q.Receive(t.Context(), 1); err == nil {
		t.Fatalf("received %v", ds)
	}
	if d := b.one(); d.ID != "m" || d.Count != 1 {
		t.Errorf("received %+v", d)
	}
}

func TestCreate(t *testing.T) {
	fake := fakesqs.New(fakesqs.Options{})
	client := awssqs.NewFromConfig(awstest.Config(fake))
	for range 2 { // it can be repeated
		c, err := Create(t.Context(), client, "shop", CreateOptions{FIFO: true, MaxReceive: 5, Visibility: time.Minute})
		if err != nil || !strings.HasSuffix(c.URL, "/shop.fifo") || !strings.HasSuffix(c.DeadLetterURL, "/shop-dead.fifo") {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	q, err := Open(t.Context(), client, "shop.fifo", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f := q.Features(); !f.Orders || !f.DeadLetters || q.MaxReceive() != 5 || q.visible != time.Minute || len(f.Caveats) != 1 ||
		!strings.Contains(f.Caveats[0], "drops them after 14 days") {
		t.Errorf("features %+v, max receive %d, visibility %v", f, q.MaxReceive(), q.visible)
	}
	_, err = Create(t.Context(), client, "shop", CreateOptions{FIFO: true, Visibility: time.Hour})
	if err == nil || !strings.Contains(err.Error(), "exists with other attributes") {
		t.Errorf("other attributes: %v", err)
	}
	for want, o := range map[string]CreateOptions{
		"MaxReceive": {MaxReceive: 1001}, "Retention": {Retention: time.Second}, "DeadLetterQueue": {FIFO: true, DeadLetterQueue: "standard"},
		"Visibility": {Visibility: -1},
	} {
		if _, err := Create(t.Context(), client, "x", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
