package fakesqs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
)

// A server that disappears during a long poll ends the poll with an error, its handler ends too, and later messages are not
// delivered to the cut connection.
func TestAConnectionCutUnderALongPoll(t *testing.T) {
	fake := fakesqs.New(fakesqs.Options{})
	began, ended := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began) // of the one request
		fake.ServeHTTP(w, r)
		close(ended)
	}))
	defer server.Close()
	if _, err := fake.CreateQueue("q", nil); err != nil {
		t.Fatal(err)
	}
	c := sqs.NewFromConfig(moto.Config(server.URL))
	url := aws.String(server.URL + "/000000000000/q")
	polled := make(chan error)
	go func() {
		_, err := c.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})
		polled <- err
	}()
	<-began
	server.CloseClientConnections()
	if err := <-polled; err == nil {
		t.Error("a poll whose connection was cut ended well")
	}
	<-ended
	if _, err := sqs.NewFromConfig(awstest.Config(fake)).SendMessage(t.Context(), &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("late"),
	}); err != nil {
		t.Fatal(err)
	}
	if visible, inFlight, _ := fake.Count("q"); visible != 1 || inFlight != 0 {
		t.Errorf("%d visible, %d in flight; want 1 and 0", visible, inFlight)
	}
}

// TestTwoClientsOnASocket: two clients with separate connections empty one queue, each message once.
func TestTwoClientsOnASocket(t *testing.T) {
	fake := fakesqs.New(fakesqs.Options{Disorder: 1})
	server := httptest.NewServer(fake)
	defer server.Close()
	if _, err := fake.CreateQueue("q", nil); err != nil {
		t.Fatal(err)
	}
	url := aws.String(server.URL + "/000000000000/q")
	const each, body = 20, 1 << 16
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 2 {
		c := sqs.NewFromConfig(moto.Config(server.URL))
		wg.Go(func() {
			for range each {
				if _, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{
					QueueUrl: url, MessageBody: aws.String(strings.Repeat("x", body)),
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for {
				mu.Lock()
				all := len(seen) == 2*each
				mu.Unlock()
				if all || t.Failed() {
					return
				}
				out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
					QueueUrl: url, WaitTimeSeconds: 1, MaxNumberOfMessages: 10, VisibilityTimeout: 600,
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, m := range out.Messages {
					seen[*m.MessageId]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was handed out %d times", id, n)
		}
	}
}
