package fakesqs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
)

func receive(t *testing.T, c *sqs.Client, in *sqs.ReceiveMessageInput) []types.Message {
	t.Helper()
	out, err := c.ReceiveMessage(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out.Messages
}

func TestAMessageInFlightIsHandedOutAgain(t *testing.T) {
	s, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
	id := send(t, c, url, "a")
	in := &sqs.ReceiveMessageInput{QueueUrl: url}
	if n := len(receive(t, c, in)); n != 1 {
		t.Fatalf("received %d", n)
	}
	if n := len(receive(t, c, in)); n != 0 {
		t.Fatalf("received %d while in flight", n)
	}
	if !s.Duplicate("q", id) || s.Duplicate("q", "none") {
		t.Fatal("Duplicate must know the message, and no other")
	}
	if n := len(receive(t, c, in)); n != 1 {
		t.Fatalf("received %d after Duplicate", n)
	}
	if n := len(receive(t, c, in)); n != 0 {
		t.Fatalf("received %d: once is enough", n)
	}
	if m := s.Messages("q"); len(m) != 1 || m[0].Receives != 2 || m[0].State != fakesqs.InFlight {
		t.Fatalf("messages %+v", m)
	}
}

func TestADeletedMessageReturns(t *testing.T) {
	s, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
	id := send(t, c, url, "a")
	in := &sqs.ReceiveMessageInput{QueueUrl: url}
	h := receive(t, c, in)[0].ReceiptHandle
	if _, err := c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: h}); err != nil {
		t.Fatal(err)
	}
	if !s.Return("q", id) || s.Return("q", id) {
		t.Fatal("Return must bring the message back, once")
	}
	if m := receive(t, c, in); len(m) != 1 || *m[0].MessageId != id {
		t.Fatalf("received %v", m)
	}
}

func TestShortPollsFindNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
		send(t, c, url, "a")
		s.HideFromShortPolls("q", 2)
		short := &sqs.ReceiveMessageInput{QueueUrl: url, VisibilityTimeout: 1}
		for range 2 {
			if n := len(receive(t, c, short)); n != 0 {
				t.Fatalf("a short poll received %d", n)
			}
		}
		if n := len(receive(t, c, short)); n != 1 {
			t.Fatalf("the third short poll received %d", n)
		}
		time.Sleep(time.Second)
		s.HideFromShortPolls("q", 1)
		if n := len(receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 1})); n != 1 {
			t.Fatalf("a long poll received %d", n)
		}
		if n := s.Calls("ReceiveMessage"); n != 4 || s.AllCalls()["SendMessage"] != 1 {
			t.Fatalf("calls %v", s.AllCalls())
		}
	})
}

// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
func TestTooManyMessagesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, url := newQueue(t, fakesqs.Options{MaxInFlight: 3}, "q", nil)
		for range 5 {
			send(t, c, url, "a")
		}
		if n := len(receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10})); n != 3 {
			t.Fatalf("received %d; want what there is room for", n)
		}
		_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url})
		var over *types.OverLimit
		if !errors.As(err, &over) || status(err) != http.StatusForbidden {
			t.Fatalf("a short poll over the limit: %v", err)
		}
		_, c2, fifo := newQueue(t, fakesqs.Options{MaxInFlight: 1}, "q.fifo", nil)
		w := &fixture{T: t, c: c2, url: fifo}
		w.group("1", "a", "b")
		w.receive(most(1))
		w.group("2", "x")
		if w.receive(); w.said[1] != "-" {
			t.Fatalf("a FIFO queue over the limit: %v; want none, and no error", w.said)
		}
		start := time.Now()
		n := len(receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 2}))
		if n != 0 || time.Since(start) != 2*time.Second {
			t.Fatalf("a long poll over the limit received %d after %v; want none, and no error", n, time.Since(start))
		}
	})
}

func TestStaleDeleteAsTheReferenceSays(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_700_000_000, 0))
	s, c, url := newQueue(t, fakesqs.Options{Clock: clock, KeepStaleDeletes: true}, "q", nil)
	send(t, c, url, "a")
	in := &sqs.ReceiveMessageInput{QueueUrl: url}
	h := receive(t, c, in)[0].ReceiptHandle
	clock.Advance(30 * time.Second)
	receive(t, c, in)
	if _, err := c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: h}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Messages("q")); n != 1 {
		t.Fatalf("%d messages; want the one that was not deleted", n)
	}
}

// Older clients read the code of the query protocol from a header.
func TestErrorsOnTheWire(t *testing.T) {
	s := fakesqs.New(fakesqs.Options{})
	ask := func(operation, body string) (*httptest.ResponseRecorder, string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", "AmazonSQS."+operation)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w, w.Body.String()
	}
	w, body := ask("SendMessage", `{"QueueUrl":"http://x/000000000000/none","MessageBody":"a"}`)
	if w.Code != 400 || w.Header().Get("X-Amzn-Query-Error") != "AWS.SimpleQueueService.NonExistentQueue;Sender" ||
		!strings.Contains(body, `"__type":"com.amazonaws.sqs#QueueDoesNotExist"`) || w.Header().Get("X-Amzn-Requestid") == "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), body)
	}
	if w, body := ask("Sing", `{}`); w.Code != 400 || !strings.Contains(body, "UnknownOperationException") {
		t.Errorf("%d %s", w.Code, body)
	}
	if w, body := ask("SendMessage", `{`); w.Code != 400 || !strings.Contains(body, "SerializationException") {
		t.Errorf("%d %s", w.Code, body)
	}
	if w, body := ask("AddPermission", `{}`); w.Code != 400 || !strings.Contains(body, "UnsupportedOperation") {
		t.Errorf("%d %s", w.Code, body)
	}
}

// TestManyAtOnce is for the race detector, and for messages that are lost or delivered twice.
func TestManyAtOnce(t *testing.T) {
	_, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
	const senders, each = 8, 25
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[string]int{}
	for range senders {
		wg.Go(func() {
			for range each {
				if _, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("x")}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for n := 0; n < each; {
				out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20, MaxNumberOfMessages: 1})
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range out.Messages {
					n++
					mu.Lock()
					seen[*m.MessageId]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was handed out %d times", id, n)
		}
	}
	if len(seen) != senders*each {
		t.Errorf("%d messages of %d", len(seen), senders*each)
	}
}

func TestShiftMovesTheEndOfAVisibility(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_700_000_000, 0))
	s, c, url := newQueue(t, fakesqs.Options{Clock: clock}, "q", nil)
	id := send(t, c, url, "a")
	if s.Shift("q", id, time.Second) || s.Shift("q", "none", time.Second) || s.Shift("none", id, time.Second) {
		t.Error("a visible or missing message was moved")
	}
	receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url})
	if !s.Shift("q", id, -30*time.Second) || len(receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url})) != 1 {
		t.Error("it is not visible early")
	}
	if !s.Shift("q", id, 10*time.Second) {
		t.Fatal("not moved")
	}
	clock.Advance(39 * time.Second)
	if len(receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url})) != 0 {
		t.Error("it is not hidden for longer")
	}
	clock.Advance(time.Second)
	if len(receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url})) != 1 {
		t.Error("it is never redelivered")
	}
}

func TestStopEndsLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
		start := time.Now()
		go func() {
			time.Sleep(2 * time.Second)
			s.Stop()
		}()
		for range 2 { // one that waits, and one that comes later
			out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})
			if err != nil || len(out.Messages) != 0 || time.Since(start) != 2*time.Second {
				t.Fatalf("%v, %v after %v; want no message after 2s", out, err, time.Since(start))
			}
		}
		send(t, c, url, "a")
		if len(receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})) != 1 {
			t.Error("a server that stops hands nothing out")
		}
	})
}
