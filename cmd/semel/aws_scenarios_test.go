//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// This file runs the scenarios of the SQS demonstration, and those of scaling out, with workers that really die.

func TestS3_45_HappyPath(t *testing.T) {
	c := newCloud(t, 1000)
	c.send(orders(20)...)
	got := c.work(2, "sleep-min=0,sleep-max=0.05,ledger="+c.ledger, nil)
	c.once(c.file(), keys(20)...)
	if lost := leasesLost(got); got.msgs["start"] > 20+lost || got.deaths > 0 {
		c.Errorf("%d starts, %d deaths\n%s", got.msgs["start"], got.deaths, got.log)
	}
	if n := len(c.sqs.Messages(dlq)); n > 0 {
		c.Errorf("%d dead letters", n)
	}
}

// TestS3_46 is CRASH_AFTER_RECEIVE=1: the run is recorded, and the process dies before it deletes the message.
func TestS3_46_S3_24_ADeathBeforeEveryDelete(t *testing.T) {
	c := newCloud(t, 1000)
	c.send(orders(4)...)
	got := c.work(1, "sleep-min=0,sleep-max=0.05,crash-after-receive,ledger="+c.ledger, nil)
	c.once(c.file(), keys(4)...)
	if lost := leasesLost(got); got.deaths < 4 || got.deaths > 4+lost || got.msgs["duplicate_skipped"] < 4 {
		c.Errorf("%d deaths, %d duplicates skipped, of 4 messages\n%s", got.deaths, got.msgs["duplicate_skipped"], got.log)
	}
}

func TestS3_48_S3_28_PoisonIsALetterWithItsReason(t *testing.T) {
	c := newCloud(t, 1000)
	poison := `{"id":"bad","poison": true}`
	c.send(append(orders(3), poison)...)
	c.work(1, `sleep-min=0,sleep-max=0.05,reject="poison": true,ledger=`+c.ledger, nil)
	c.once(c.file(), keys(3)...)
	if got := c.reasons(); len(got) != 1 || !strings.Contains(got[poison], "rejected: the payload has") {
		c.Errorf("dead letters %q", got)
	}
}

// TestS3_49 is a batch of good and bad messages: the good ones are deleted one by one, the bad ones are repeated, and are
// dead letters in the end.
func TestS3_49_S1_11_APartialBatch(t *testing.T) {
	c := newCloud(t, 1000)
	bodies := orders(7)
	for i := range 3 {
		bodies = append(bodies, fmt.Sprintf(`{"id":"bad-%d","poison": true}`, i))
	}
	rand.Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	c.send(bodies...)
	got := c.work(1, transactional+`,reject="poison": true,retry-rejected`, nil, "--max-attempts", "3", "--batch", "10")
	c.once(c.table(), keys(7)...)
	if deadLetters := c.reasons(); len(deadLetters) != 3 {
		c.Errorf("dead letters %q", deadLetters)
	}
	if n := got.msgs["start"]; n < 7+3*3 {
		c.Errorf("%d runs of 7 good messages and 3 bad ones that have 3 attempts each\n%s", n, got.log)
	}
}

// TestS3_50 dies between the commit of effect and record and the delete.
func TestS3_50_S3_31_S3_32_S3_55_ADeathAfterTheTransaction(t *testing.T) {
	c := newCloud(t, 1000)
	c.send(orders(4)...)
	got := c.work(2, transactional+",crash-after-side-effect", nil, "--concurrency", "2")
	c.once(c.table(), keys(4)...)
	if got.deaths < 2 || got.msgs["duplicate_skipped"] == 0 {
		c.Errorf("%d deaths, %d redeliveries suppressed\n%s", got.deaths, got.msgs["duplicate_skipped"], got.log)
	}
}

// TestS3_50_Red is the same without the transaction: the gap between effect and record, which only an effect key closes.
func TestS3_50_Red_WithoutTheTransactionTheEffectIsDoubled(t *testing.T) {
	c := newCloud(t, 1000)
	c.send(orders(2)...)
	got := c.work(1, "sleep-min=0,sleep-max=0.05,crash-after-side-effect,ledger="+c.ledger, nil)
	for key, n := range c.file() {
		if n < 2 {
			c.Errorf("%s took effect %d times: nothing was shown\n%s", key, n, got.log)
		}
	}
}

// TestS3_43_S3_23 is CRASH_RATE=0.2.
func TestS3_43_S3_23_ACrashyWorker(t *testing.T) {
	c := newCloud(t, 1000)
	seed := rand.Uint64() | 1
	t.Logf("seed %d", seed)
	c.send(orders(30)...)
	got := c.work(2, fmt.Sprintf("%s,crash-rate=0.2,seed=%d", transactional, seed), nil, "--concurrency", "3")
	c.once(c.table(), keys(30)...)
	if got.deaths == 0 && got.msgs["crash"] > 0 {
		c.Errorf("%d crashes and no death\n%s", got.msgs["crash"], got.log)
	}
	t.Logf("%d deaths, %d runs for 30 effects", got.deaths, got.msgs["start"])
}

// TestS4_01 sends fifty messages of one key to three processes.
func TestS4_01_S4_14_FiftyMessagesOfOneKeyAreOneEffect(t *testing.T) {
	c := newCloud(t, 1000)
	bodies := make([]string, 50)
	for i := range bodies {
		bodies[i] = `{"id":"screenshot-1"}`
	}
	c.send(bodies...)
	got := c.work(3, "sleep-min=0.5,sleep-max=0.5,transactional,ledger="+effects, nil)
	c.once(c.table(), "screenshot-1")
	if lost := leasesLost(got); got.msgs["completed"] != 1 || got.msgs["start"] > 1+lost || got.msgs["duplicate_skipped"] != 49 {
		c.Errorf("%d starts, %d completions, %d duplicates skipped\n%s", got.msgs["start"], got.msgs["completed"],
			got.msgs["duplicate_skipped"], got.log)
	}
}

// TestS4_15 has three processes, one of which is killed every now and then from outside.
func TestS4_15_FM05_TwoHundredMessagesAndWorkersThatAreKilled(t *testing.T) {
	c := newCloud(t, 1000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 15))
	c.send(orders(200)...)
	next, kills := 20, 0
	got := c.work(3, transactional, func(running []*awsWorker) {
		if done := len(c.table()); done >= next && kills < 5 {
			next, kills = done+30, kills+1
			_ = running[r.IntN(len(running))].Signal(syscall.SIGKILL) // it may have died
		}
	})
	c.once(c.table(), keys(200)...)
	if kills == 0 || got.deaths == 0 {
		c.Errorf("%d kills, %d deaths: nothing was tried", kills, got.deaths)
	}
	t.Logf("%d kills, %d runs for 200 effects, %d duplicates skipped", kills, got.msgs["start"], got.msgs["duplicate_skipped"])
}

// TestFM84 lets SQS move a message away that is done, and an operator move it back: it comes under a new message id.
func TestFM84_S3_59_ARedriveOfSQSGivesANewIDAndNoSecondEffect(t *testing.T) {
	c := newCloud(t, 1)
	c.send(`{"id":"order-0"}`)
	id := c.sqs.Messages(queue)[0].ID
	p := c.start("dies", transactional+",crash-after-receive")
	c.until("its death", func() bool { return !p.Running() })
	c.once(c.table(), "order-0")
	c.work(1, transactional, nil) // its next receive is beyond the limit: SQS moves it away
	moved := c.sqs.Messages(dlq)
	if len(moved) != 1 {
		c.Fatalf("the dead-letter queue has %+v", moved)
	}
	_, err := c.client.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{
		SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:" + dlq),
	})
	c.check(err)
	c.until("the redrive", func() bool { return len(c.sqs.Messages(queue)) == 1 })
	if again := c.sqs.Messages(queue)[0]; again.ID == id {
		c.Error("the redriven message has its old id: nothing was tried")
	}
	got := c.work(1, transactional, nil)
	c.once(c.table(), "order-0")
	if got.msgs["start"] != 0 || got.msgs["duplicate_skipped"] != 1 {
		c.Errorf("%d starts, %d duplicates skipped\n%s", got.msgs["start"], got.msgs["duplicate_skipped"], got.log)
	}
}
