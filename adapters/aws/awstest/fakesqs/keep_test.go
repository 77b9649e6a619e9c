package fakesqs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
)

// shelf keeps rows in memory.
type shelf struct {
	rows map[string]fakesqs.Row
	full bool
	// saves counts.
	saves int
}

var errFull = errors.New("the shelf is full")

func (k *shelf) Save(rows []fakesqs.Row) error {
	if k.saves++; k.full {
		return errFull
	}
	for _, r := range rows {
		name := strings.Join([]string{r.Kind, r.Queue, r.ID}, "\x00")
		if r.Value == nil {
			delete(k.rows, name)
			continue
		}
		k.rows[name] = r
	}
	return nil
}

func (k *shelf) Load(row func(fakesqs.Row) error) error {
	for _, r := range k.rows {
		if err := row(r); err != nil {
			return err
		}
	}
	return nil
}

func newShelf() *shelf { return &shelf{rows: map[string]fakesqs.Row{}} }

// wanderer takes random steps on a server that is sometimes restarted.
type wanderer struct {
	*testing.T
	r       *rand.Rand
	clock   *awstest.Clock
	shelf   *shelf
	fake    *fakesqs.Server
	c       *sqs.Client
	handles map[string][]string
	tasks   []*string
}

func (w *wanderer) start() {
	w.Helper()
	fake, err := fakesqs.Open(fakesqs.Options{Clock: w.clock}, w.shelf)
	if err != nil {
		w.Fatal(err)
	}
	w.fake, w.c = fake, sqs.NewFromConfig(awstest.Config(fake), func(o *sqs.Options) { o.Retryer = aws.NopRetryer{} })
}

var wanderings = []string{"jobs", "dead", "jobs.fifo", "dead.fifo"}

func (w *wanderer) make(name string) {
	in := &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"VisibilityTimeout": "20"}, Tags: map[string]string{"a": "b"}}
	if strings.HasSuffix(name, ".fifo") {
		in.Attributes["FifoQueue"], in.Attributes["ContentBasedDeduplication"] = "true", "true"
	}
	if strings.HasPrefix(name, "jobs") {
		in.Attributes["RedrivePolicy"] = `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:` +
			strings.Replace(name, "jobs", "dead", 1) + `","maxReceiveCount":2}`
	}
	_, _ = w.c.CreateQueue(w.Context(), in) // refused for a minute after its deletion
}

// step takes one step, which may be refused.
func (w *wanderer) step() {
	name := wanderings[w.r.IntN(len(wanderings))]
	url, fifo, ctx := aws.String(w.fake.URL(name)), strings.HasSuffix(name, ".fifo"), w.Context()
	handle := func() *string {
		if hs := w.handles[name]; len(hs) > 0 {
			return &hs[w.r.IntN(len(hs))]
		}
		return aws.String("none")
	}
	switch n := w.r.IntN(100); {
	case n < 30:
		in := &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String(strconv.Itoa(w.r.IntN(1000))), MessageAttributes: map[string]types.MessageAttributeValue{
			"a": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		}}
		if fifo {
			in.MessageGroupId = aws.String(strconv.Itoa(w.r.IntN(3)))
		} else {
			in.DelaySeconds = int32(w.r.IntN(2) * 15)
		}
		_, _ = w.c.SendMessage(ctx, in)
	case n < 60:
		in := &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: int32(1 + w.r.IntN(10))}
		if fifo && w.r.IntN(2) == 0 {
			in.ReceiveRequestAttemptId = aws.String(strconv.Itoa(w.r.IntN(2)))
		}
		if out, err := w.c.ReceiveMessage(ctx, in); err == nil {
			for _, m := range out.Messages {
				w.handles[name] = append(w.handles[name], *m.ReceiptHandle)
			}
		}
	case n < 70:
		_, _ = w.c.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: handle()})
	case n < 77:
		_, _ = w.c.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
			QueueUrl: url, ReceiptHandle: handle(), VisibilityTimeout: int32(w.r.IntN(40)),
		})
	case n < 80:
		for _, m := range w.fake.Messages(name) {
			_ = w.fake.Duplicate(name, m.ID) || w.fake.Shift(name, m.ID, time.Second)
			break
		}
		if err := w.fake.Flush(); err != nil {
			w.Error(err)
		}
	case n < 82:
		set := map[string]string{"VisibilityTimeout": strconv.Itoa(10 + w.r.IntN(20)), "DelaySeconds": strconv.Itoa(w.r.IntN(3))}
		_, _ = w.c.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: url, Attributes: set})
	case n < 84:
		_, _ = w.c.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: url, Tags: map[string]string{"t": strconv.Itoa(w.r.IntN(9))}})
		_, _ = w.c.UntagQueue(ctx, &sqs.UntagQueueInput{QueueUrl: url, TagKeys: []string{"a"}})
	case n < 85:
		_, _ = w.c.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: url})
	case n < 86:
		_, _ = w.c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url})
	case n < 90:
		w.make(name)
	case n < 93:
		out, err := w.c.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{
			SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:" + name), MaxNumberOfMessagesPerSecond: aws.Int32(1),
		})
		if err == nil {
			w.tasks = append(w.tasks, out.TaskHandle)
		}
	case n < 94 && len(w.tasks) > 0:
		_, _ = w.c.CancelMessageMoveTask(ctx, &sqs.CancelMessageMoveTaskInput{TaskHandle: w.tasks[len(w.tasks)-1]})
	default:
		w.clock.Advance(time.Duration(w.r.IntN(100)) * time.Second)
	}
}

// TestEverythingIsKept: after every request the saved rows are the whole state, and a server that starts with them has the
// same.
func TestEverythingIsKept(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 6
	}
	held, reached := 0, map[string]bool{}
	for seed := range seeds {
		w := &wanderer{
			T: t, r: rand.New(rand.NewPCG(seed, 0)), clock: awstest.Frozen(time.Unix(1_700_000_000, 5)), shelf: newShelf(),
			handles: map[string][]string{},
		}
		w.start()
		for _, name := range []string{"dead", "dead.fifo", "jobs", "jobs.fifo"} {
			w.make(name)
		}
		for i := range 400 {
			w.step()
			kept, there := slices.Collect(maps.Values(w.shelf.rows)), w.fake.Dump()
			slices.SortFunc(kept, fakesqs.CompareRows)
			if d := difference(kept, there); d != "" {
				t.Fatalf("seed %d, step %d: %s", seed, i, d)
			}
			for _, r := range kept {
				reached[r.Kind] = true
			}
			if w.r.IntN(20) != 0 {
				continue
			}
			if w.start(); len(there) > 0 {
				held++
			}
			if d := difference(kept, w.fake.Dump()); d != "" {
				t.Fatalf("seed %d, step %d: after a start %s", seed, i, d)
			}
		}
	}
	if kinds := slices.Sorted(maps.Keys(reached)); held < int(seeds) || len(kinds) != 7 {
		t.Errorf("%d starts with something, rows %v: the test reaches too little", held, kinds)
	}
}

func difference(kept, there []fakesqs.Row) string {
	for i := range max(len(kept), len(there)) {
		switch {
		case i >= len(there) || i < len(kept) && fakesqs.CompareRows(kept[i], there[i]) < 0:
			return fmt.Sprintf("%s %s %q is kept and not there", kept[i].Queue, kept[i].Kind, kept[i].ID)
		case i >= len(kept) || fakesqs.CompareRows(kept[i], there[i]) > 0:
			return fmt.Sprintf("%s %s %q is there and not kept", there[i].Queue, there[i].Kind, there[i].ID)
		case !bytes.Equal(kept[i].Value, there[i].Value):
			return fmt.Sprintf("%s %s %q is kept as %s and is %s", kept[i].Queue, kept[i].Kind, kept[i].ID, kept[i].Value, there[i].Value)
		}
	}
	return ""
}

// A repeated receive after a restart gets the same messages and handles.
func TestARepeatedReceiveAfterARestart(t *testing.T) {
	w := &wanderer{T: t, clock: awstest.Frozen(time.Unix(1_700_000_000, 0)), shelf: newShelf()}
	w.start()
	w.make("jobs.fifo")
	w.make("dead.fifo")
	w.make("jobs.fifo")
	url := aws.String(w.fake.URL("jobs.fifo"))
	for _, b := range []string{"a", "b"} {
		if _, err := w.c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: &b, MessageGroupId: aws.String("g")}); err != nil {
			t.Fatal(err)
		}
	}
	in := &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, ReceiveRequestAttemptId: aws.String("once")}
	first, err := w.c.ReceiveMessage(t.Context(), in)
	if err != nil || len(first.Messages) != 2 {
		t.Fatal(first, err)
	}
	w.start()
	again, err := w.c.ReceiveMessage(t.Context(), in)
	if err != nil || len(again.Messages) != 2 || *again.Messages[1].ReceiptHandle != *first.Messages[1].ReceiptHandle {
		t.Fatalf("%v, %v; want what came first", again, err)
	}
	if _, err := w.c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: first.Messages[0].ReceiptHandle}); err != nil {
		t.Error(err)
	}
}

func TestUnsavedChangesAreNoSuccess(t *testing.T) {
	w := &wanderer{T: t, clock: awstest.Frozen(time.Unix(1_700_000_000, 0)), shelf: newShelf()}
	w.start()
	w.make("dead")
	url := aws.String(w.fake.URL("dead"))
	say := func(body string) error {
		_, err := w.c.SendMessage(context.Background(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body})
		return err
	}
	w.shelf.full = true
	if err := say("a"); err == nil || !strings.Contains(err.Error(), errFull.Error()) {
		t.Fatalf("sending a message that was not saved returned %v", err)
	}
	if err := say("b"); err == nil || len(w.fake.Messages("dead")) != 1 {
		t.Fatalf("%v, %d messages: carried out although the one before was not kept", err, len(w.fake.Messages("dead")))
	}
	w.shelf.full = false
	if err := say("c"); err != nil {
		t.Fatal(err)
	}
	w.start()
	if got := len(w.fake.Messages("dead")); got != 2 {
		t.Errorf("%d messages after a restart, want a and c", got)
	}
	before := w.shelf.saves
	if _, err := w.c.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil || w.shelf.saves != before {
		t.Errorf("%v, %d saves for a request that changes nothing", err, w.shelf.saves-before)
	}
}

func TestDamagedRowsAreRefused(t *testing.T) {
	for name, r := range map[string]fakesqs.Row{
		"of a newer version": {Kind: "later", Value: []byte("{}")},
		"that are no JSON":   {Kind: "queue", Queue: "q", Value: []byte("{")},
		"without their half": {Kind: "message", Queue: "q", ID: "1", Value: []byte("{}")},
	} {
		if _, err := fakesqs.Open(fakesqs.Options{}, &shelf{rows: map[string]fakesqs.Row{"": r}}); err == nil {
			t.Errorf("rows %s are taken", name)
		}
	}
}
