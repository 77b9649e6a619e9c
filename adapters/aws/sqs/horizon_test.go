package sqs

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/memory"
)

// TestFM41_HorizonOfAQueue: law 10, from the queues' real attributes.
func TestFM41_HorizonOfAQueue(t *testing.T) {
	const day = 24 * time.Hour
	fake := fakesqs.New(fakesqs.Options{})
	create := func(name string, kept time.Duration, deadLetters string) string {
		t.Helper()
		attrs := map[string]string{"MessageRetentionPeriod": fmt.Sprint(int(kept.Seconds()))}
		if deadLetters != "" {
			attrs["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":5}`, deadLetters)
		}
		if name[len(name)-1] == 'o' { // .fifo
			attrs["FifoQueue"] = "true"
		}
		arn, err := fake.CreateQueue(name, attrs)
		if err != nil {
			t.Fatal(err)
		}
		return arn
	}
	deadLetters, ordered := create("dead-letters", 10*day, ""), create("dead-letters.fifo", 10*day, "")
	create("plain", 3*day, "")
	create("standard", 4*day, deadLetters)
	create("ordered.fifo", 4*day, ordered)
	for _, c := range []struct {
		name  string
		queue string
		o     Options
		want  time.Duration
	}{
		{"no dead letters of the service", "plain", Options{}, 3 * day},
		{"semel's dead letters alone: nobody else moves them back", "plain", Options{DeadLetterQueue: "dead-letters"}, 3 * day},
		{"standard: the age goes on counting in the dead letters", "standard", Options{}, 14 * day},
		{"FIFO: the age begins anew", "ordered.fifo", Options{}, 18 * day},
		{"semel's dead letters elsewhere: the service moves all the same", "standard", Options{DeadLetters: memory.Open().Queue("dead-letters")}, 14 * day},
		{"semel's dead letters in another queue", "standard", Options{DeadLetterQueue: "plain"}, 14 * day},
	} {
		q, err := Open(t.Context(), awssqs.NewFromConfig(awstest.Config(fake)), c.queue, c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if f := q.Features(); f.Horizon != c.want || f.LateBy(day) != c.want+day {
			t.Errorf("%s: a copy can come %v after the first (%v with a day of the producers'), want %v", c.name, f.Horizon, f.LateBy(day), c.want)
		}
	}
	// A dead-letter queue that cannot be read is assumed to keep messages for the longest time.
	client := awssqs.NewFromConfig(awstest.Config(fake))
	url, err := client.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String("dead-letters")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: url.QueueUrl}); err != nil {
		t.Fatal(err)
	}
	q, err := Open(t.Context(), client, "standard", Options{DeadLetterQueue: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	if f := q.Features(); f.Horizon != 18*day {
		t.Errorf("with an unreadable dead-letter queue, a copy can come %v after the first, want 18 days", f.Horizon)
	}
}
