package stepfunctions_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/adapters/aws/stepfunctions"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// upload is one PUT of an object, as EventBridge reports it.
type upload struct {
	content   string
	version   int
	multipart bool
}

// event is the event of an upload. Every copy has its own ID and time.
func (u upload) event(copyID int) string {
	sum := md5.Sum([]byte(u.content))
	etag := hex.EncodeToString(sum[:])
	if u.multipart { // the hash of the parts' hashes, and their number
		sum = md5.Sum(sum[:])
		etag = hex.EncodeToString(sum[:]) + "-1"
	}
	b, _ := json.Marshal(map[string]any{
		"id": fmt.Sprintf("event-%d", copyID), "detail-type": "Object Created", "source": "aws.s3",
		"time": time.Now().Add(time.Duration(copyID) * time.Second).UTC().Format(time.RFC3339),
		"detail": map[string]any{
			"bucket": map[string]any{"name": "reports"},
			"object": map[string]any{
				"key": "in/Umsatz 11.csv", "etag": etag, "version-id": fmt.Sprintf("v%d", u.version), "sequencer": fmt.Sprintf("%018X", copyID),
			},
		},
	})
	return string(b)
}

// Two keys of an upload. byContent starts once for the same bytes, byUpload once for every PUT. Neither contains the event's
// ID or time.
var (
	byContent = key.FromJSON("/detail/bucket/name", "/detail/object/key", "/detail/object/etag")
	byUpload  = key.FromS3()
)

// workflowInput has the data of the key: the copies of an event differ in everything else.
func workflowInput(_ context.Context, a *semel.Attempt) ([]byte, error) {
	return json.Marshal(map[string]string{"upload": a.Key.Raw})
}

// account is an AWS account with a bucket, two rules with a queue each, a table for the records, and a state machine.
type account struct {
	*fixture
	queues  *fakesqs.Server
	tables  *fakedynamodb.Server
	workers []func(context.Context) error
	events  int
}

func newAccount(t *testing.T, key key.Func, consumers ...string) *account {
	a := &account{
		fixture: newFixture(t, fakesfn.Options{Lag: time.Second}, fakesfn.Standard, nil),
		queues:  fakesqs.New(fakesqs.Options{Disorder: 7}), tables: fakedynamodb.New(fakedynamodb.Options{}),
	}
	if err := dynamodb.Create(t.Context(), awsdynamodb.NewFromConfig(awstest.Config(a.tables)), "semel", dynamodb.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, consumer := range consumers {
		rule := fmt.Sprintf("rule-%d", i+1)
		// The first StartExecution is carried out and its response lost, and more fails between the worker and its records.
		faults := awstest.NewFaults(awstest.Plan{
			Seed: uint64(i + 1), LateBy: 20 * time.Second, DelayBy: 2 * time.Second,
			Schedule: []awstest.Fault{{Operation: "StartExecution", Call: 1, Kind: awstest.After}},
			Operations: map[string]awstest.Rates{
				"StartExecution": {After: .4, Late: .1, Throttled: .1, Hang: .1, Delay: .2}, "UpdateItem": {After: .2, Before: .1},
				"DeleteMessage": {After: .2, Before: .2},
			},
		})
		t.Cleanup(faults.Wait)
		cfg := awstest.Config(a.queues, faults.Wrap)
		if _, err := sqs.Create(t.Context(), awssqs.NewFromConfig(awstest.Config(a.queues)), rule, sqs.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		queue, err := sqs.Open(t.Context(), awssqs.NewFromConfig(cfg), rule, sqs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store, err := dynamodb.Open(t.Context(), awsdynamodb.NewFromConfig(awstest.Config(a.tables, faults.Wrap)), "semel", dynamodb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		starter := &stepfunctions.Starter{Client: sfn.NewFromConfig(awstest.Config(a.fake, faults.Wrap)), StateMachineARN: a.arn}
		c, err := semel.New(semel.Config{
			Queue: queue, Store: store, Consumer: consumer, Key: key, Handler: starter.Handler(workflowInput), MaxAttempts: 50,
		})
		if err != nil {
			t.Fatal(err)
		}
		a.workers = append(a.workers, c.Run)
	}
	return a
}

// tell sends an event through both rules, and some copies twice.
func (a *account) tell(u upload) {
	a.Helper()
	a.events++
	for i := range a.workers {
		rule := fmt.Sprintf("rule-%d", i+1)
		client := awssqs.NewFromConfig(awstest.Config(a.queues))
		url, err := client.GetQueueUrl(a.Context(), &awssqs.GetQueueUrlInput{QueueName: &rule})
		if err != nil {
			a.Fatal(err)
		}
		body := u.event(a.events)
		for range 1 + a.events%2 { // EventBridge delivers at least once, too
			if _, err := client.SendMessage(a.Context(), &awssqs.SendMessageInput{QueueUrl: url.QueueUrl, MessageBody: &body}); err != nil {
				a.Fatal(err)
			}
		}
	}
}

// settle runs the workers until both queues are empty, while executions end.
func (a *account) settle() {
	a.Helper()
	ctx, stop := context.WithCancel(a.Context())
	ended := make(chan error)
	for _, run := range a.workers {
		go func() { ended <- run(ctx) }()
	}
	left := 1
	for range 3600 {
		time.Sleep(time.Second)
		left = 0
		for i := range a.workers {
			visible, inFlight, delayed := a.queues.Count(fmt.Sprintf("rule-%d", i+1))
			left += visible + inFlight + delayed
		}
		for _, e := range a.fake.Executions(machine) {
			if e.Status == fakesfn.Running && time.Since(e.Started) > 5*time.Second {
				a.finish(e.ARN)
			}
		}
		if left == 0 {
			break
		}
	}
	stop()
	for range a.workers {
		if err := <-ended; err != nil {
			a.Error(err)
		}
	}
	if left != 0 {
		a.Errorf("%d messages are left after an hour", left)
	}
	time.Sleep(time.Minute) // what was late has arrived
	store, err := dynamodb.Open(a.Context(), awsdynamodb.NewFromConfig(awstest.Config(a.tables)), "semel", dynamodb.Options{})
	if err != nil {
		a.Fatal(err)
	}
	records, err := store.Records(a.Context(), driver.RecordFilter{})
	if err != nil || len(records) == 0 {
		a.Errorf("%d records: %v", len(records), err)
	}
	for _, r := range records {
		if r.State != driver.Completed {
			a.Errorf("%s is %s: %s", r.Key.Raw, r.State, r.Reason)
		}
	}
}

// TestS2_02_DoubleStart: one upload matches two rules, events arrive twice, responses of StartExecution are lost: there is
// one execution, whether the rules share their records or not, because names belong to the machine. Without semel each event
// is an execution.
func TestS2_02_DoubleStart(t *testing.T) {
	for name, consumers := range map[string][]string{"shared records": {"csv", "csv"}, "records of their own": {"rule-1", "rule-2"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, byUpload, consumers...)
				a.tell(upload{content: "1;2;3", version: 1})
				a.tell(upload{content: "1;2;3", version: 1}) // S3 reports it at least once: another event with another time
				a.settle()
				a.mustHave(1)
			})
		})
	}
	t.Run("unguarded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newFixture(t, fakesfn.Options{}, fakesfn.Standard, nil)
			for copyID := range 2 {
				in := upload{content: "1;2;3", version: 1}.event(copyID + 1)
				c := sfn.NewFromConfig(awstest.Config(s.fake))
				if _, err := c.StartExecution(t.Context(), &sfn.StartExecutionInput{StateMachineArn: &s.arn, Input: &in}); err != nil {
					t.Fatal(err)
				}
				// The name of the document has the object's key in it, which no name may contain; and the time, which
				// differs.
				bad := "reports-in/Umsatz 11.csv-2026-11-21T00:00:00Z"
				if _, err := c.StartExecution(t.Context(), &sfn.StartExecutionInput{StateMachineArn: &s.arn, Name: &bad, Input: &in}); code(err) != "InvalidName" {
					t.Errorf("%v", err)
				}
			}
			s.mustHave(2)
		})
	})
}

// TestS2_03_OneStartForTheSameContent: three ways in which a producer uploads a file twice, each alone and all together. A
// file with other content is another start. With a key of the upload every PUT is.
func TestS2_03_OneStartForTheSameContent(t *testing.T) {
	type toggle struct {
		name string
		more []upload
		// uploads are the starts with a key of the upload.
		uploads int
	}
	first := upload{content: "1;2;3", version: 1}
	for _, c := range []toggle{
		{"nothing goes wrong", nil, 1},
		{"the event of one PUT comes again", []upload{first}, 1},
		{"the producer retries after a network error", []upload{{content: "1;2;3", version: 2}}, 2},
		{"the same file is uploaded again and again", []upload{{content: "1;2;3", version: 2}, {content: "1;2;3", version: 3}}, 3},
	} {
		for name, key := range map[string]key.Func{"by content": byContent, "by upload": byUpload} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAccount(t, key, "csv", "csv")
					a.tell(first)
					for _, u := range c.more {
						a.tell(u)
					}
					a.settle()
					want := 1
					if name == "by upload" {
						want = c.uploads
					}
					a.mustHave(want)
					a.tell(upload{content: "4;5;6", version: 9}) // what is new is a new start
					a.settle()
					a.mustHave(want + 1)
				})
			})
		}
	}
	t.Run("the upload in parts is completed twice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAccount(t, byContent, "csv", "csv")
			a.tell(upload{content: "1;2;3", version: 1, multipart: true})
			a.tell(upload{content: "1;2;3", version: 2, multipart: true})
			a.settle()
			a.mustHave(1)
			for _, e := range a.fake.Executions(machine) {
				if !strings.Contains(e.Input, "-1") {
					t.Errorf("not the upload in parts: %s", e.Input)
				}
			}
			// In one piece the same content has another eTag: a second start. Use a checksum of the whole object if both
			// occur.
			a.tell(upload{content: "1;2;3", version: 3})
			a.settle()
			a.mustHave(2)
		})
	})
}
