package campaign

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/driver"
)

// TestFM73_ARunIsReturnedInAnyOrder: a worker holds three messages of a FIFO group and returns them one by one. Another
// worker receives and deletes after each. Whatever the order of returning, the other worker gets them in the order of the
// group, because a held message hides those behind it.
func TestFM73_ARunIsReturnedInAnyOrder(t *testing.T) {
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for _, mode := range []fakesqs.Mode{fakesqs.AWS, fakesqs.Strict} {
		for _, order := range orders {
			t.Run(fmt.Sprint(mode, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { returnRun(t, mode, order) })
			})
		}
	}
}

func returnRun(t *testing.T, mode fakesqs.Mode, order []int) {
	s := fakesqs.New(fakesqs.Options{Mode: mode})
	if _, err := s.CreateQueue("q.fifo", map[string]string{"VisibilityTimeout": "600"}); err != nil {
		t.Fatal(err)
	}
	client := awssqs.NewFromConfig(awstest.Config(s))
	for _, body := range []string{"a", "b", "c"} {
		if _, err := client.SendMessage(t.Context(), &awssqs.SendMessageInput{
			QueueUrl: aws.String(s.URL("q.fifo")), MessageBody: &body, MessageGroupId: aws.String("g"), MessageDeduplicationId: &body,
		}); err != nil {
			t.Fatal(err)
		}
	}
	open := func() driver.Queue {
		q, err := sqs.Open(t.Context(), client, "q.fifo", sqs.Options{Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	first, second := open(), open()
	held, err := first.Receive(t.Context(), 10)
	if err != nil || len(held) != 3 {
		t.Fatalf("received %d: %v", len(held), err)
	}
	var met []string
	for _, i := range order {
		settle(t, first, driver.Defer, held[i])
		ds, err := second.Receive(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			met = append(met, string(d.Body))
			settle(t, second, driver.Ack, d)
		}
	}
	if !slices.Equal(met, []string{"a", "b", "c"}) {
		t.Errorf("the other worker got %q", met)
	}
}

func settle(t *testing.T, q driver.Queue, a driver.Action, d driver.Delivery) {
	t.Helper()
	out, err := q.Settle(t.Context(), driver.Settlement{Receipt: d.Receipt, Action: a})
	if err != nil || out[0] != driver.Applied {
		t.Fatalf("%v of %s: %v %v", a, d.Body, out, err)
	}
}
