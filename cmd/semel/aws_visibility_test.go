//go:build unix

package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// This file repeats the experiments on visibility and heartbeat: work that lasts longer than the visibility timeout.

// TestS0_10_S0_17 runs one job that is longer than the visibility: one start, one completion, no duplicate.
func TestS0_10_S0_17_TheHeartbeatKeepsALongJobAlone(t *testing.T) {
	c := newCloud(t, 1000)
	c.send(`{"id":"msg-2","sleep":8}`)
	got := c.work(2, "ledger="+c.ledger, nil, "--visibility", "3s")
	c.once(c.file(), "msg-2")
	if lost := leasesLost(got); got.msgs["start"] > 1+lost || got.msgs["completed"] != 1 {
		c.Errorf("%d starts, %d completions, %d leases lost\n%s", got.msgs["start"], got.msgs["completed"], lost, got.log)
	}
	if n := c.called("ChangeMessageVisibilityBatch"); n < 4 {
		c.Errorf("the visibility was extended %d times", n)
	}
}

// leasesLost counts the runs that a worker gave up because it was not let run in time: a machine that stalls for longer
// than a lease is one on which a job may start twice. It never takes effect twice.
func leasesLost(w crew) int {
	return strings.Count(w.log, `"msg":"fenced"`) + strings.Count(w.log, `"msg":"retried"`)
}

// TestS0_22 is the same message without a guard, and with one.
func TestS0_22_WithoutAGuardALongJobIsWorkedOnThreeTimes(t *testing.T) {
	c := newCloud(t, 1000)
	c.send(`{"id":"long-job","sleep":15}`)
	_, err := c.client.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{
		QueueUrl: aws.String(c.sqs.URL(queue)), Attributes: map[string]string{"VisibilityTimeout": "1"},
	})
	c.check(err)
	var mu sync.Mutex
	deliveries, running := 0, sync.WaitGroup{}
	enough := make(chan struct{})
	for range 4 { // workers that look at nothing, and whose work takes until three of them have begun
		running.Go(func() {
			for end := time.Now().Add(waitLimit); time.Now().Before(end); {
				select {
				case <-enough:
					return
				default:
				}
				out, err := c.client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{
					QueueUrl: aws.String(c.sqs.URL(queue)), WaitTimeSeconds: 1,
				})
				if err != nil || len(out.Messages) == 0 {
					continue
				}
				mu.Lock()
				if deliveries++; deliveries == 3 {
					close(enough)
				}
				mu.Unlock()
				select { // the work goes on, and nothing extends the visibility
				case <-enough:
				case <-time.After(waitLimit):
				}
			}
		})
	}
	running.Wait()
	if deliveries < 3 {
		t.Errorf("%d deliveries of one message", deliveries)
	}

	guarded := makeCloud(t, 1000)
	guarded.send(`{"id":"long-job","sleep":5}`)
	guarded.work(3, transactional, nil)
	guarded.once(guarded.table(), "long-job")
}

// TestS0_23 lets every extension of the visibility fail: the message is delivered again and again, and takes effect once.
func TestS0_23_ExtensionsOfTheVisibilityThatFailCauseNoSecondEffect(t *testing.T) {
	c := newCloud(t, 1000)
	c.fail(func(operation, _ string) bool { return strings.HasPrefix(operation, "ChangeMessageVisibility") })
	c.send(`{"id":"long-job","sleep":6}`)
	received := 0
	got := c.work(2, "ledger="+c.ledger, func([]*awsWorker) {
		for _, m := range c.sqs.Messages(queue) {
			received = max(received, m.Receives)
		}
	})
	if received < 2 {
		c.Errorf("it was received %d times: nothing was tried", received)
	}
	if c.once(c.file(), "long-job"); got.msgs["completed"] != 1 {
		c.Errorf("completed %d times\n%s", got.msgs["completed"], got.log)
	}
}

// TestS0_23_ALeaseThatIsLost cuts a worker off from store and queue while its handler runs: the handler is cancelled, nothing of
// it commits, and another worker takes over.
func TestS0_23_ALeaseThatIsLostCancelsTheRun(t *testing.T) {
	c := newCloud(t, 1000)
	c.send(`{"id":"long-job","sleep":4}`)
	first := c.start("cut", "ledger="+c.ledger)
	c.until("the first run", func() bool { return len(c.records()) > 0 })
	c.fail(func(_, worker string) bool { return worker == "cut" })
	got := c.work(1, "ledger="+c.ledger, nil)
	c.fail(nil)
	c.drain(first)
	c.once(c.file(), "long-job")
	if !strings.Contains(got.log, `"msg":"taken_over"`) && got.msgs["start"] == 0 {
		c.Errorf("the second worker did not run it\n%s", got.log)
	}
	for _, l := range first.lines() {
		if l.Msg == "completed" {
			c.Errorf("the worker that lost its lease completed\n%s", first.log.String())
		}
	}
	if !strings.Contains(first.log.String(), `"msg":"fenced"`) {
		c.Errorf("the lost lease is not in the log\n%s", first.log.String())
	}
}

// TestS3_43 is the overrun of the visibility: every second message works for longer than it.
func TestS3_43_S3_47_SlowWorkIsDeliveredAgainAndDoneOnce(t *testing.T) {
	c := newCloud(t, 1000)
	c.fail(func(operation, _ string) bool { return strings.HasPrefix(operation, "ChangeMessageVisibility") })
	c.send(orders(6)...)
	got := c.work(2, transactional+",long-sleep=4,long-every=2", nil)
	c.once(c.table(), keys(6)...)
	if got.msgs["duplicate_deferred"]+got.msgs["duplicate_skipped"]+leasesLost(got) == 0 {
		c.Errorf("there was no duplicate: nothing was tried\n%s", got.log)
	}
}
