package fakesqs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
)

// newQueue makes a server with one queue, and a client.
func newQueue(t *testing.T, o fakesqs.Options, name string, attributes map[string]string) (*fakesqs.Server, *sqs.Client, *string) {
	t.Helper()
	s := fakesqs.New(o)
	if _, err := s.CreateQueue(name, attributes); err != nil {
		t.Fatal(err)
	}
	return s, sqs.NewFromConfig(awstest.Config(s)), aws.String(s.URL(name))
}

func send(t *testing.T, c *sqs.Client, url *string, body string) string {
	t.Helper()
	out, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body})
	if err != nil {
		t.Fatal(err)
	}
	return *out.MessageId
}

func TestLongPollIsWokenByASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
		start := time.Now()
		go func() {
			time.Sleep(7 * time.Second)
			_, _ = c.SendMessage(context.Background(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("hello")})
		}()
		out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})
		if err != nil || len(out.Messages) != 1 || time.Since(start) != 7*time.Second {
			t.Fatalf("got %v, %v after %v; want the message after 7s", out, err, time.Since(start))
		}
	})
}

func TestLongPollIsWokenByAnEndOfVisibility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, url := newQueue(t, fakesqs.Options{}, "q", map[string]string{"VisibilityTimeout": "5"})
		send(t, c, url, "hello")
		in := &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20}
		if out, err := c.ReceiveMessage(t.Context(), in); err != nil || len(out.Messages) != 1 {
			t.Fatal(out, err)
		}
		start := time.Now()
		out, err := c.ReceiveMessage(t.Context(), in)
		if err != nil || len(out.Messages) != 1 || time.Since(start) != 5*time.Second {
			t.Fatalf("got %v, %v after %v; want the message after 5s", out, err, time.Since(start))
		}
	})
}

func TestLongPollEndsWithAFrozenClockThatIsAdvanced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := awstest.Frozen(time.Unix(1_700_000_000, 0))
		_, c, url := newQueue(t, fakesqs.Options{Clock: clock}, "q", nil)
		done := make(chan int)
		go func() {
			out, err := c.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})
			if err != nil {
				t.Error(err)
			}
			done <- len(out.Messages)
		}()
		synctest.Wait()
		clock.Advance(19 * time.Second)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the poll ended a second too early")
		default:
		}
		clock.Advance(time.Second)
		if n := <-done; n != 0 {
			t.Fatalf("%d messages out of an empty queue", n)
		}
	})
}

func TestNothingIsHandedToACallerWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20}); err == nil {
			t.Fatal("a receive without a listener ended well")
		}
		send(t, c, url, "hello")
		synctest.Wait()
		if visible, inFlight, _ := s.Count("q"); visible != 1 || inFlight != 0 {
			t.Fatalf("%d visible, %d in flight; want 1 and 0", visible, inFlight)
		}
	})
}

// A long poll ends when a message becomes available, for whatever reason.
func TestLongPollIsWokenBy(t *testing.T) {
	for name, do := range map[string]func(w *fixture, h *string){
		"a message that is put back": func(w *fixture, h *string) { w.hide(h, 0) },
		"a group that is free again": func(w *fixture, h *string) { w.del(h) },
		"the end of the queue":       func(w *fixture, _ *string) { w.drop() },
		"a shorter delay":            func(w *fixture, h *string) { w.set("DelaySeconds", "0") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c, url := newQueue(t, fakesqs.Options{}, "q.fifo", nil)
				w := &fixture{T: t, c: c, fake: s, url: url}
				w.group("1", "a", "b")
				h := handle(w.receive(most(1)))
				if name == "a shorter delay" {
					w.del(h)
					w.receive()
					w.set("DelaySeconds", "900")
					w.group("2", "x")
				}
				w.said = nil
				go func() {
					time.Sleep(3 * time.Second)
					do(w, h)
				}()
				start := time.Now()
				out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})
				if took := time.Since(start); took != 3*time.Second || err == nil && len(out.Messages) != 1 {
					t.Fatalf("after %v: %v, %v; want a response after 3s", took, out, err)
				}
				synctest.Wait()
			})
		})
	}
}

func TestLongPollSeesAMoveAsItHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, _ := newQueue(t, fakesqs.Options{}, "other", nil)
		w := &fixture{T: t, c: c, fake: s, name: "q"}
		src, dead := w.pair("", 1)
		w.url = dead
		w.send("a")
		w.startMove(w.arn(dead), w.arn(src), 1)
		start := time.Now()
		out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: src, WaitTimeSeconds: 20})
		if took := time.Since(start); err != nil || len(out.Messages) != 1 || took != time.Second {
			t.Fatalf("%v, %v after %v; want the message after 1s", out, err, took)
		}
	})
}
