package campaign

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/key"
)

// Names in a world.
const (
	records = "records"
	ledger  = "ledger"
)

// world is one seed: the services, the processes, and the systems outside of both.
type world struct {
	plan
	bug    *bug // planted; nil = none
	sqs    *fakesqs.Server
	dynamo *fakedynamodb.Server
	queue  string
	dead   string // the dead-letter queue
	began  time.Time
	out    *outside

	mu        sync.Mutex
	random    *rand.Rand
	procs     []*process
	sent      map[string]int    // messages, by key
	ids       []string          // of messages in the queue
	replay    map[string]string // results, by key
	completed map[string]string
	log       []string
	wrong     []string // what went wrong before the end
	gone      sync.WaitGroup
}

// verdict is the result of a seed.
type verdict struct {
	plan        plan
	wrong       []string
	log         []string
	counts      map[string]int // injected faults
	messages    int
	deadLetters int
	doubts      int // U-events
	runs        int
	took        time.Duration // in virtual time
}

// simulate runs a seed.
func simulate(t *testing.T, p plan, b *bug) (v verdict) {
	synctest.Test(t, func(t *testing.T) {
		if b != nil && b.tune != nil {
			b.tune(&p)
		}
		w := &world{
			plan: p, bug: b, queue: "orders", dead: "orders-dead", began: time.Now(), random: rand.New(rand.NewPCG(p.seed, 2)),
			sent: map[string]int{}, replay: map[string]string{}, completed: map[string]string{},
			sqs:    fakesqs.New(fakesqs.Options{Disorder: p.seed * (p.seed % 2)}), // of every second seed
			dynamo: fakedynamodb.New(fakedynamodb.Options{Stale: p.rates.Stale, Seed: p.seed}),
		}
		w.out = newOutside(w)
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Hour)
		defer cancel()
		if err := w.setUp(ctx); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		w.run(ctx)
		v = w.judge()
	})
	return v
}

func (w *world) setUp(ctx context.Context) error {
	suffix, fifo := "", map[string]string{}
	if w.fifo {
		suffix = ".fifo"
	}
	w.queue, w.dead = w.queue+suffix, w.dead+suffix
	arn, err := w.sqs.CreateQueue(w.dead, fifo)
	if err != nil {
		return err
	}
	if _, err := w.sqs.CreateQueue(w.queue, map[string]string{
		"VisibilityTimeout": fmt.Sprint(int(visibility.Seconds())),
		"RedrivePolicy":     fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn, w.receives),
	}); err != nil {
		return err
	}
	return createTables(ctx, awsdynamodb.NewFromConfig(awstest.Config(w.dynamo)))
}

// createTables creates the tables of records and of effects.
func createTables(ctx context.Context, client *awsdynamodb.Client) error {
	if err := dynamodb.Create(ctx, client, records, dynamodb.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.CreateTable(ctx, &awsdynamodb.CreateTableInput{
		TableName: aws.String(ledger), BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
	})
	return err
}

// chance draws numbers that do not depend on the order of goroutines: by a name, and a count per name.
func (w *world) chance(what string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(what))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// note writes the history.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%9.3f ", time.Since(w.began).Seconds()) + fmt.Sprintf(format, args...)
	if w.log = append(w.log, line); *seedFlag > 0 {
		fmt.Println(line) // at once: the run may never end
	}
}

// fail records a violation.
func (w *world) fail(format string, args ...any) {
	w.note("VIOLATION: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// run lets faults happen while messages are sent, then runs two healthy processes until the queue is empty.
func (w *world) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.send(ctx) })
	all.Go(func() { w.stir() })
	for slot := range w.slots {
		all.Go(func() { w.live(ctx, slot) })
	}
	all.Wait()
	w.note("faults end")
	healthy := []*process{w.start(ctx, "healthy-0", false), w.start(ctx, "healthy-1", false)}
	for deadline := time.Now().Add(time.Hour); !w.settled(); time.Sleep(5 * time.Second) {
		if time.Now().After(deadline) {
			w.fail("an hour after the last fault the queue still holds %d messages", len(w.sqs.Messages(w.queue)))
			break
		}
	}
	for _, p := range healthy {
		p.stop()
	}
	w.gone.Wait()
	for _, p := range w.procs {
		p.faults.Wait()
	}
}

// settled reports that the queue is empty.
func (w *world) settled() bool { return len(w.sqs.Messages(w.queue)) == 0 }

// send sends every key, some of them several times with other IDs, spread over the time of the faults and beyond.
func (w *world) send(ctx context.Context) {
	type message struct {
		key, id string
		at      time.Duration
	}
	var all []message
	r := w.chance("send")
	for k := range w.keys {
		key := fmt.Sprintf("key-%d", k)
		first := time.Duration(r.Int64N(int64(w.until)))
		for c := range 1 + r.IntN(3) {
			at := first
			switch {
			case c > 0 && r.IntN(3) == 0:
				at = time.Duration(r.Int64N(int64(w.until))) // some time
			case c > 0:
				at += time.Duration(r.Int64N(int64(20 * time.Second))) // soon after
			}
			all = append(all, message{key, fmt.Sprintf("%s-copy-%d", key, c), at})
		}
	}
	client := awssqs.NewFromConfig(awstest.Config(w.sqs))
	var sending sync.WaitGroup
	for _, m := range all {
		sending.Go(func() {
			time.Sleep(m.at)
			in := &awssqs.SendMessageInput{
				QueueUrl: aws.String(w.sqs.URL(w.queue)), MessageBody: aws.String(m.key),
				MessageAttributes: map[string]sqstypes.MessageAttributeValue{
					"key": {DataType: aws.String("String"), StringValue: aws.String(m.key)},
				},
			}
			if w.fifo {
				in.MessageDeduplicationId = aws.String(m.id)
				in.MessageGroupId = aws.String("group-" + m.key[len(m.key)-1:])
			}
			out, err := client.SendMessage(ctx, in)
			if err != nil {
				w.fail("send %s: %v", m.id, err)
				return
			}
			w.note("sent %s", m.id)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.sent[m.key]++
			w.ids = append(w.ids, aws.ToString(out.MessageId))
		})
	}
	sending.Wait()
}

// stir makes the queue deliver messages again: some in flight, and some that were deleted.
func (w *world) stir() {
	r := w.chance("stir")
	for time.Since(w.began) < w.until {
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
		if w.bug != nil && w.bug.stir != nil {
			w.bug.stir(w)
		}
		w.mu.Lock()
		id := ""
		if len(w.ids) > 0 {
			id = w.ids[r.IntN(len(w.ids))]
		}
		w.mu.Unlock()
		switch {
		case id == "":
		case w.sqs.Duplicate(w.queue, id):
			w.note("the queue hands %.8s out again", id)
		case w.sqs.Return(w.queue, id):
			w.note("deleted %.8s is back in the queue", id)
		}
	}
}

// live runs processes in one slot until the faults end: a process starts, is killed, cut off for a while or stopped, and
// starts again.
func (w *world) live(ctx context.Context, slot int) {
	r := w.chance(fmt.Sprint("live ", slot))
	for n := 0; time.Since(w.began) < w.until; n++ {
		p := w.start(ctx, fmt.Sprintf("process-%d.%d", slot, n), true)
		sleep := func(from, to time.Duration) { time.Sleep(from + time.Duration(r.Int64N(int64(to-from)))) }
		sleep(time.Second, 90*time.Second)
		if r.IntN(2) == 0 {
			w.note("%s is cut off", p.name)
			p.faults.Outage(true)
			sleep(10*time.Second, 100*time.Second)
			p.faults.Outage(false)
			w.note("%s is connected again", p.name)
			sleep(time.Second, 60*time.Second)
		}
		if r.IntN(4) == 0 {
			p.stop()
		} else {
			p.kill()
		}
		sleep(time.Second, 30*time.Second)
	}
}

// keyOf is the key of a message of this campaign.
func keyOf(m *semel.Message) (string, error) {
	if k := m.Header("key"); k != "" {
		return k, nil
	}
	return "", key.ErrMissing
}

var errDead = errors.New("the process is dead")

func (v *verdict) String() string {
	return fmt.Sprintf("%v\n%s\nhistory:\n%s", v.plan, strings.Join(v.wrong, "\n"), strings.Join(v.log, "\n"))
}
