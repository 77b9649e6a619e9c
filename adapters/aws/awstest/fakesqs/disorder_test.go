package fakesqs_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
)

// disorderly receives twelve messages that were sent in order, and returns how they arrived: bodies, with "|" between polls.
func disorderly(t *testing.T, seed uint64, name string, wait int32) string {
	t.Helper()
	s, c, url := newQueue(t, fakesqs.Options{Disorder: seed}, name, nil)
	w := &fixture{T: t, c: c, url: url}
	var sent []string
	for i := range 12 {
		sent = append(sent, fmt.Sprintf("%02d", i))
	}
	if name == "q" {
		for _, b := range sent {
			send(t, c, url, b)
		}
	} else {
		w.group("1", sent...)
	}
	var polls, got []string
	for len(got) < len(sent) {
		ms := receive(t, c, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: wait})
		var bodies []string
		for _, m := range ms {
			bodies = append(bodies, *m.Body)
			if _, err := c.DeleteMessage(t.Context(), deletion(url, *m.ReceiptHandle)); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, bodies...)
		if polls = append(polls, strings.Join(bodies, " ")); len(polls) > 1000 {
			t.Fatalf("received %v only", got)
		}
	}
	if slices.Sort(got); !slices.Equal(got, sent) || len(s.Messages(name)) != 0 {
		t.Fatalf("received %v", got)
	}
	return strings.Join(polls, "|")
}

// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html
func TestDisorder(t *testing.T) {
	const inOrder = "00 01 02 03 04 05 06 07 08 09|10 11"
	if got := disorderly(t, 0, "q", 0); got != inOrder {
		t.Errorf("without disorder: %s", got)
	}
	if got := disorderly(t, 1, "q.fifo", 0); got != inOrder {
		t.Errorf("a FIFO queue: %s", got)
	}
	one := disorderly(t, 1, "q", 0)
	if one != disorderly(t, 1, "q", 0) || one == disorderly(t, 2, "q", 0) {
		t.Error("the same seed has the same disorder, and another one another")
	}
	empty, short := 0, 0
	for seed := range uint64(20) {
		polls := strings.Split(disorderly(t, seed+1, "q", 0), "|")
		if slices.Contains(polls, "") {
			empty++
		}
		if len(polls) > 2 {
			short++
		}
		if strings.Join(polls, " ") == strings.ReplaceAll(inOrder, "|", " ") {
			t.Errorf("seed %d has order: %v", seed+1, polls)
		}
		if long := disorderly(t, seed+1, "q", 1); strings.Contains("|"+long+"|", "||") {
			t.Errorf("seed %d: a long poll found nothing: %s", seed+1, long)
		}
	}
	if empty == 0 || short == 0 {
		t.Errorf("%d of 20 had an empty short poll, %d more polls than needed", empty, short)
	}
}

// One receive may be disorderly while the others are not.
func TestDisorderly(t *testing.T) {
	s, c, url := newQueue(t, fakesqs.Options{}, "q", nil)
	for i := range 10 {
		send(t, c, url, strconv.Itoa(i))
	}
	ask := func(h http.Handler) string {
		w := sqs.NewFromConfig(awstest.Config(h))
		var got string
		for _, m := range receive(t, w, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1}) {
			got += *m.Body
			if _, err := c.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
		}
		return got
	}
	mixed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(fakesqs.Disorderly(r.Context(), 3)))
	})
	if one, two := ask(mixed), ask(s); strings.HasPrefix("0123456789", one) || two != "0123456789" {
		t.Errorf("disorderly %s, then %s", one, two)
	}
}
