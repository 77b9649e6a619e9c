//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/internal/process"
)

// cloud is one test's SQS and DynamoDB on a port of the loopback interface, with workers that are processes. What took
// effect is counted in ledgers that the workers do not read: a table, or a file.
type cloud struct {
	*testing.T
	sqs    *fakesqs.Server
	dynamo *fakedynamodb.Server
	client *awssqs.Client
	url    string
	ledger string // the file

	mu      sync.Mutex
	calls   map[string]int
	open    map[string]int // calls in flight
	refuse  func(operation, worker string) bool
	workers []*awsWorker
}

// waitLimit bounds every wait. Nothing else in these tests depends on how fast the machine is.
const waitLimit = 10 * time.Minute

// The names of the places. The effects' table counts how often each effect key took effect.
const (
	queue   = "orders"
	dlq     = "orders-dlq"
	records = "records"
	effects = "effects"
)

func newCloud(t *testing.T, maxReceives int) *cloud {
	t.Helper()
	if testing.Short() {
		t.Skip("starts worker processes")
	}
	t.Parallel()
	return makeCloud(t, maxReceives)
}

func makeCloud(t *testing.T, maxReceives int) *cloud {
	t.Helper()
	c := &cloud{
		T: t, sqs: fakesqs.New(fakesqs.Options{}), dynamo: fakedynamodb.New(fakedynamodb.Options{}), calls: map[string]int{}, open: map[string]int{},
		ledger: filepath.Join(t.TempDir(), "effects.jsonl"),
	}
	server := httptest.NewServer(c)
	c.url = server.URL
	t.Cleanup(func() {
		for _, w := range c.workers {
			w.Kill()
		}
		server.CloseClientConnections()
		server.Close()
	})
	c.client = awssqs.NewFromConfig(awstest.Config(c.sqs))
	arn, err := c.sqs.CreateQueue(dlq, map[string]string{"MessageRetentionPeriod": "1209600"})
	c.check(err)
	policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn, maxReceives)
	_, err = c.sqs.CreateQueue(queue, map[string]string{"VisibilityTimeout": "5", "RedrivePolicy": policy})
	c.check(err)
	tables := awsdynamodb.NewFromConfig(awstest.Config(c.dynamo))
	c.check(dynamodb.Create(t.Context(), tables, records, dynamodb.CreateOptions{}))
	c.check(dynamodb.Create(t.Context(), tables, effects, dynamodb.CreateOptions{
		Options: dynamodb.Options{Layout: dynamodb.Layout{PartitionKey: "effect_key"}},
	}))
	return c
}

func (c *cloud) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// ServeHTTP is both services. A worker is known by the application id in its user agent.
func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	_, worker, _ := strings.Cut(r.UserAgent(), "app/")
	worker, _, _ = strings.Cut(worker, " ")
	c.mu.Lock()
	c.calls[operation]++
	c.open[operation]++
	refused := c.refuse != nil && c.refuse(operation, worker)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[operation]--
	}()
	switch {
	case refused:
		http.Error(w, `{"__type":"InternalFailure","message":"refused by the test"}`, http.StatusInternalServerError)
	case service == "AmazonSQS":
		c.sqs.ServeHTTP(w, r)
	default:
		c.dynamo.ServeHTTP(w, r)
	}
}

// fail makes operations of workers fail from now on; nil ends it.
func (c *cloud) fail(refuse func(operation, worker string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

func (c *cloud) called(operation string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[operation]
}

// underWay counts the calls of an operation that are in flight.
func (c *cloud) underWay(operation string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[operation]
}

// send sends bodies as producers do that know nothing of semel.
func (c *cloud) send(bodies ...string) {
	c.Helper()
	for len(bodies) > 0 {
		n := min(10, len(bodies))
		in := &awssqs.SendMessageBatchInput{QueueUrl: aws.String(c.sqs.URL(queue))}
		for i, b := range bodies[:n] {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(b)})
		}
		out, err := c.client.SendMessageBatch(c.Context(), in)
		c.check(err)
		if len(out.Failed) > 0 {
			c.Fatalf("not sent: %+v", out.Failed)
		}
		bodies = bodies[n:]
	}
}

// orders are n bodies with ids of their own.
func orders(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"id":"order-%d"}`, i)
	}
	return out
}

// awsWorker is a worker.
type awsWorker struct {
	*process.Process
	name string
	log  process.Output // JSON lines
}

// start starts semel work on queue and table. knobs are those of --simulate.
func (c *cloud) start(name, knobs string, args ...string) *awsWorker {
	c.Helper()
	self, err := os.Executable()
	c.check(err)
	p := &awsWorker{name: name}
	base := []string{
		"semel", "work", "--queue", "sqs://" + queue + "?wait=1&endpoint=" + c.url,
		"--store", "dynamodb://" + records + "?skew=1s&endpoint=" + c.url,
		"--key", "json:/id", "--visibility", "2s", "--backoff", "100ms..1s", "--log-format", "json", "--simulate=" + knobs, "-o", "none",
	}
	// testscript.Main makes this test binary the program itself when it is called semel.
	cmd := &exec.Cmd{Path: self, Args: append(base, args...), Dir: filepath.Dir(c.ledger), Stderr: &p.log}
	cmd.Env = c.environ(name)
	p.Process, err = process.Start(cmd)
	c.check(err)
	c.workers = append(c.workers, p)
	return p
}

// line is what the tests look at in a line of a worker's log.
type line struct {
	Msg string `json:"msg"`
}

// lines returns the log lines of a worker that has ended.
func (p *awsWorker) lines() (lines []line) {
	for s := bufio.NewScanner(strings.NewReader(p.log.String())); s.Scan(); {
		var l line
		if json.Unmarshal(s.Bytes(), &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// until waits for something to become true.
func (c *cloud) until(what string, ok func() bool) {
	c.Helper()
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("waited %v for %s\n%s", waitLimit, what, c.dump())
		}
	}
}

// records are the items of the table of records that are no reports of workers.
func (c *cloud) records() []fakedynamodb.Item { return withoutReports(c.dynamo.Items(records)) }

func withoutReports(all []fakedynamodb.Item) []fakedynamodb.Item {
	return slices.DeleteFunc(all, func(i fakedynamodb.Item) bool { return i["report"] != nil })
}

// dump shows the state of everything, for a failure's log.
func (c *cloud) dump() string {
	var b strings.Builder
	for _, m := range c.sqs.Messages(queue) {
		fmt.Fprintf(&b, "message %s %s %d receives until %v\n", m.Body, m.State, m.Receives, m.VisibleAt)
	}
	for _, i := range c.dynamo.Items(records) {
		fmt.Fprintf(&b, "record %v\n", i)
	}
	for _, w := range c.workers {
		w.Kill()
		text := w.log.String()
		fmt.Fprintf(&b, "worker %s (%v):\n%s\n", w.name, w.State(), text[max(0, len(text)-3000):])
	}
	return b.String()
}

// empty reports that nothing is left in the queue.
func (c *cloud) empty() bool { return len(c.sqs.Messages(queue)) == 0 }

// crew is a number of workers, each of which is started again when it dies.
type crew struct {
	deaths int
	msgs   map[string]int // lines of all logs, by what they say
	log    string
}

// work lets n workers work until the queue is empty, starts those again that die, and drains them. step is called every
// while between.
func (c *cloud) work(n int, knobs string, step func(running []*awsWorker), args ...string) crew {
	c.Helper()
	out := crew{msgs: map[string]int{}}
	running := make([]*awsWorker, n)
	var ended []*awsWorker
	for i := range running {
		running[i] = c.start(fmt.Sprintf("w%d", i), knobs, args...)
	}
	c.until("an empty queue", func() bool {
		for i, p := range running {
			if p.Running() {
				continue
			}
			if !p.Killed() {
				c.Fatalf("worker %s ended by itself: %v\n%s", p.name, p.State(), &p.log)
			}
			out.deaths++
			ended = append(ended, p)
			running[i] = c.start(p.name, knobs, args...)
		}
		if step != nil {
			step(running)
		}
		return c.empty()
	})
	for _, p := range append(ended, c.drain(running...)...) {
		for _, l := range p.lines() {
			out.msgs[l.Msg]++
		}
		out.log += p.log.String()
	}
	return out
}

// drain stops workers as a deployment does; they have to end well.
func (c *cloud) drain(workers ...*awsWorker) []*awsWorker {
	c.Helper()
	for _, p := range workers {
		_ = p.Terminate() // it may have died a moment ago
	}
	for _, p := range workers {
		select {
		case <-p.Done():
		case <-time.After(waitLimit):
			c.Fatalf("worker %s does not drain\n%s", p.name, c.dump())
		}
		if p.Wait() != nil && !p.Killed() {
			c.Errorf("worker %s: %v\n%s", p.name, p.State(), &p.log)
		}
	}
	return workers
}

// table is how often each message took effect, by its key, as the effects' table has it.
func (c *cloud) table() map[string]int {
	c.Helper()
	out := map[string]int{}
	for _, item := range c.dynamo.Items(effects) {
		key, ok := item["message_key"]["S"].(string)
		runs, err := strconv.Atoi(fmt.Sprint(item["runs"]["N"]))
		if !ok || err != nil {
			c.Fatalf("effect %v", item)
		}
		out[key] += runs
	}
	return out
}

// file is the same of the ledger that is a file.
func (c *cloud) file() map[string]int {
	c.Helper()
	out := map[string]int{}
	b, err := os.ReadFile(c.ledger)
	if os.IsNotExist(err) {
		return out
	}
	c.check(err)
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var e struct {
			Key string `json:"key"`
		}
		c.check(json.Unmarshal(s.Bytes(), &e))
		out[e.Key]++
	}
	return out
}

// once fails unless exactly these keys took effect, once each.
func (c *cloud) once(got map[string]int, want ...string) {
	c.Helper()
	all := map[string]int{}
	for _, k := range want {
		all[k] = 1
	}
	if !maps.Equal(got, all) {
		for k, n := range got {
			if all[k] != n {
				c.Errorf("%s took effect %d times, want %d", k, n, all[k])
			}
		}
		for k := range all {
			if got[k] == 0 {
				c.Errorf("%s is lost", k)
			}
		}
		c.Log(c.dump())
	}
}

// keys are the keys of orders.
func keys(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("order-%d", i)
	}
	return out
}

// transactional are the knobs of effects that commit with the record.
const transactional = "sleep-min=0,sleep-max=0.05,transactional,ledger=" + effects
