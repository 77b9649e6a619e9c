package semellambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	semellambda "github.com/semel-dev/semel/adapters/aws/lambda"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/key"
)

// The environment of a process that is one invocation of the function.
const (
	envStore = "SEMEL_LAMBDA_TEST_STORE" // URL of DynamoDB
	envDie   = "SEMEL_LAMBDA_TEST_DIE"   // handler:N or commit:N: where it is killed
	// timeout is the function's: the claim of a dead process ends a second later.
	timeout = 2 * time.Second
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envStore); url != "" {
		if err := invocation(url, os.Getenv(envDie)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// dying kills the process after n committed transactions, before it reads the response.
type dying struct {
	http.RoundTripper
	left *atomic.Int64
}

func (d dying) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(r)
	if r.Header.Get("X-Amz-Target") == "DynamoDB_20120810.TransactWriteItems" && d.left.Add(-1) == 0 {
		process.KillSelf()
	}
	return resp, err
}

func clientOf(url string, rt http.RoundTripper) *awsdynamodb.Client {
	return awsdynamodb.NewFromConfig(aws.Config{
		Region: awstest.Region, Credentials: credentials.NewStaticCredentialsProvider("semel", "semel", ""),
		BaseEndpoint: aws.String(url), HTTPClient: &http.Client{Transport: rt},
	})
}

// invocation handles the event on stdin in its own process.
func invocation(url, where string) error {
	var runs, commits atomic.Int64
	if n := 0; where != "" {
		if _, err := fmt.Sscanf(where, "handler:%d", &n); err == nil {
			runs.Store(int64(n))
		} else if _, err := fmt.Sscanf(where, "commit:%d", &n); err == nil {
			commits.Store(int64(n))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	store, err := dynamodb.Open(ctx, clientOf(url, dying{http.DefaultTransport, &commits}), "semel", dynamodb.Options{MaxClockSkew: time.Millisecond})
	if err != nil {
		return err
	}
	h, err := semellambda.NewSQS(semel.Config{
		Store: store, Key: key.FromJSON("/order"), Concurrency: 3, Batch: 3,
		Handler: semel.InTx(func(_ context.Context, w *dynamodb.Writes, a *semel.Attempt) error {
			if runs.Add(-1) == 0 {
				process.KillSelf()
			}
			w.Add("ledger", map[string]ddb.AttributeValue{"id": &ddb.AttributeValueMemberS{Value: a.Key.Raw}}, "n", 1)
			return nil
		}),
	}, semellambda.Options{RedrivePolicy: true})
	if err != nil {
		return err
	}
	var ev events.SQSEvent
	if err := json.NewDecoder(os.Stdin).Decode(&ev); err != nil {
		return err
	}
	got, err := h.Handle(ctx, ev)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// TestFM1_FM4_KilledInMidBatch: functions are killed in handlers and after commits, and every effect happens once.
func TestFM1_FM4_KilledInMidBatch(t *testing.T) {
	server := httptest.NewServer(fakedynamodb.New(fakedynamodb.Options{}))
	defer server.Close()
	client := clientOf(server.URL, http.DefaultTransport)
	if err := dynamodb.Create(t.Context(), client, "semel", dynamodb.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateTable(t.Context(), &awsdynamodb.CreateTableInput{
		TableName: aws.String("ledger"), BillingMode: ddb.BillingModePayPerRequest,
		AttributeDefinitions: []ddb.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: ddb.ScalarAttributeTypeS}},
		KeySchema:            []ddb.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: ddb.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	p := newPoller(t, "orders", sqs.CreateOptions{})
	const orders = 15
	for i := range orders {
		body := []byte(`{"order":` + strconv.Itoa(i) + `}`)
		if err := p.queue.Send(t.Context(), driver.Message{Body: body}, driver.Message{Body: body}); err != nil { // the producer repeats itself
			t.Fatal(err)
		}
	}
	deaths := []string{"handler:1", "commit:1", "", "handler:3", "commit:2", ""}
	killed := 0
	for n := 0; !p.empty(); n++ {
		if n > 100 {
			t.Fatal("the queue is never empty")
		}
		where := ""
		if n < len(deaths) {
			where = deaths[n]
		}
		p.round(func(ev events.SQSEvent) ([]byte, bool) {
			response, err := invoke(t, server.URL, where, ev)
			if err != nil {
				killed++
				time.Sleep(timeout + 1500*time.Millisecond) // of the lease: the queue's visibility is longer than that
			}
			return response, err == nil
		})
	}
	if killed < 3 {
		t.Errorf("%d functions were killed", killed)
	}
	out, err := client.Scan(t.Context(), &awsdynamodb.ScanInput{TableName: aws.String("ledger"), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range out.Items {
		if n, ok := item["n"].(*ddb.AttributeValueMemberN); !ok || n.Value != "1" {
			t.Errorf("effects of %v", item)
		}
	}
	if len(out.Items) != orders {
		t.Errorf("%d of %d orders took effect", len(out.Items), orders)
	}
}

// invoke starts a process for one event.
func invoke(t *testing.T, url, where string, ev events.SQSEvent) ([]byte, error) {
	t.Helper()
	raw, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	cmd := process.Self(envStore+"="+url, envDie+"="+where)
	cmd.Stdin = bytes.NewReader(raw)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if where == "" || cmd.ProcessState.Exited() { // else it was killed, as the test wanted
			t.Fatalf("the function ended by itself: %v: %s", err, errs.Bytes())
		}
		return nil, err
	}
	return out.Bytes(), nil
}

// TestS3_08_RedrivePolicyTakesWhatIsDead: without DeadLetters a message that failed for good is not run again, and the
// queue's redrive policy moves it.
func TestS3_08_RedrivePolicyTakesWhatIsDead(t *testing.T) {
	p := newPoller(t, "orders", sqs.CreateOptions{MaxReceive: 3})
	w := newFixture(t, func(_ *semel.Config, o *semellambda.Options) { o.DeadLetters, o.RedrivePolicy = nil, true })
	if err := p.queue.Send(t.Context(), driver.Message{ID: "a", Body: []byte("dead")}, driver.Message{ID: "b", Body: []byte("ok")}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		p.round(w.respond)
	}
	dead, _, _ := p.fake.Count("orders-dead")
	if !p.empty() || dead != 1 || fmt.Sprint(len(w.ran)) != "2" {
		t.Errorf("%d dead, runs %q", dead, w.ran)
	}
}

// TestFIFOAcrossInvocations: a group waits for its failed message, in order, over any number of invocations.
func TestFIFOAcrossInvocations(t *testing.T) {
	p := newPoller(t, "orders.fifo", sqs.CreateOptions{FIFO: true})
	fails := map[string]int{"a2": 2, "b1": 1}
	var order []string
	w := newFixture(t, func(cfg *semel.Config, _ *semellambda.Options) {
		cfg.Handler = semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if fails[a.ID]--; fails[a.ID] >= 0 {
				return semel.NotApplied(errBoom)
			}
			order = append(order, a.ID)
			return nil
		})
		cfg.MaxAttempts, cfg.Concurrency = 5, 1
		cfg.Backoff = semel.Backoff{Min: time.Millisecond, Max: time.Millisecond}
	})
	for _, id := range []string{"a1", "b1", "a2", "b2", "a3"} {
		if err := p.queue.Send(t.Context(), driver.Message{ID: id, Group: id[:1], Body: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		p.round(w.respond)
		time.Sleep(2 * time.Millisecond) // of the backoff: the store's clock is the machine's
	}
	got := map[byte]string{}
	for _, id := range order {
		got[id[0]] += id[1:]
	}
	if got['a'] != "123" || got['b'] != "12" || !p.empty() {
		t.Errorf("order %q", order)
	}
}

// respond is an invocation that returns the response as on the wire.
func (w *fixture) respond(ev events.SQSEvent) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	got, err := w.h.Handle(ctx, ev)
	if err != nil {
		w.t.Error(err)
		return nil, false
	}
	raw, err := json.Marshal(got)
	return raw, err == nil
}
