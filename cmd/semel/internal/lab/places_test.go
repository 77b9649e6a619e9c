package lab

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// onlyFull leaves a test out of short runs.
func onlyFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves it out: it takes long")
	}
}

// noEmit are the scenarios whose guarded side needs a queue in the store.
var noEmit = map[string]bool{"outbox": true}

// elsewhere are the scenarios that run in other places than the default: those that depend on the place most. Nightly runs
// take all.
func elsewhere() map[string]bool {
	if semeltest.Nightly() {
		return nil
	}
	return map[string]bool{"race": true, "outbox": true}
}

// TestS0_28_ScenariosOnPostgres: the scenarios do not hang on one kind of store.
func TestS0_28_ScenariosOnPostgres(t *testing.T) {
	onlyFull(t)
	url := server.Database(t)
	runAll(t, place.Where{Store: url}, elsewhere(), nil)
	if n := demoSchemas(t, url); n != 0 {
		t.Errorf("%d schemas are left behind", n)
	}
}

// TestS0_28_ScenariosOnMySQL: each run has a database of its own.
func TestS0_28_ScenariosOnMySQL(t *testing.T) {
	onlyFull(t)
	runAll(t, place.Where{Store: server.Shared(t, "mysql")}, elsewhere(), nil)
}

// TestS0_28_ScenariosOnSQSAndDynamoDB runs them on the services that the published designs are made for.
func TestS0_28_ScenariosOnSQSAndDynamoDB(t *testing.T) {
	runAll(t, place.Where{On: place.AWS}, elsewhere(), noEmit)
}

// TestS0_28_MixedPairs: a queue and a store of different kinds, where no ack can commit with its record.
func TestS0_28_MixedPairs(t *testing.T) {
	onlyFull(t)
	url := server.Database(t)
	t.Run("at once", func(t *testing.T) {
		for name, where := range map[string]place.Where{
			"SQS and PostgreSQL":      {On: place.AWS, Store: url},
			"PostgreSQL and DynamoDB": {On: place.AWS, Queue: url},
			"SQLite and PostgreSQL":   {On: place.Embedded, Store: url},
			"SQS and SQLite":          {On: place.AWS, Store: "sqlite:" + filepath.Join(t.TempDir(), "a.db")},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				names := []string{"side-effects", "zombie", "partial-batch", "versions"}
				if !semeltest.Nightly() {
					names = names[:1]
				}
				for _, scenario := range names {
					v := runOn(t, scenario, where)
					if !v.OK() {
						t.Errorf("%s: %+v", scenario, v.Runs)
					}
				}
			})
		}
	})
	if n := demoSchemas(t, url); n != 0 {
		t.Errorf("%d schemas are left behind", n)
	}
}

func runOn(t *testing.T, scenario string, where place.Where) verdict.Verdict {
	t.Helper()
	s, ok := scenarios.Find(scenario)
	if !ok {
		t.Fatalf("no scenario %s", scenario)
	}
	v, err := Run(t.Context(), s, options(t, where), nil)
	if err != nil {
		t.Errorf("%s: %v", scenario, err)
	}
	return v
}

// cloud is an account on AWS with something in it that the lab did not make.
type cloud struct {
	*testing.T
	sqs    *fakesqs.Server
	dynamo *fakedynamodb.Server
	url    string
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{T: t, sqs: fakesqs.New(fakesqs.Options{}), dynamo: fakedynamodb.New(fakedynamodb.Options{})}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.") {
			c.sqs.ServeHTTP(w, r)
			return
		}
		c.dynamo.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	c.url = web.URL
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "semel", "AWS_SECRET_ACCESS_KEY": "semel", "AWS_REGION": awstest.Region, "AWS_PROFILE": "",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": t.TempDir() + "/c", "AWS_SHARED_CREDENTIALS_FILE": t.TempDir() + "/s",
	} {
		t.Setenv(name, value)
	}
	_, err := c.sqs.CreateQueue("orders", nil)
	client := awsdynamodb.NewFromConfig(awstest.Config(c.dynamo))
	if err = errors.Join(err, dynamodb.Create(t.Context(), client, "records", dynamodb.CreateOptions{})); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cloud) where() place.Where {
	return place.Where{Queue: "sqs://orders?endpoint=" + c.url, Store: "dynamodb://records?endpoint=" + c.url}
}

// clean fails unless there is what was there before, and nothing else.
func (c *cloud) clean() {
	c.Helper()
	client := awsdynamodb.NewFromConfig(awstest.Config(c.dynamo))
	tables, err := client.ListTables(context.Background(), &awsdynamodb.ListTablesInput{Limit: aws.Int32(100)})
	if err != nil {
		c.Fatal(err)
	}
	if queues := c.sqs.Queues(); !slices.Equal(queues, []string{"orders"}) || !slices.Equal(tables.TableNames, []string{"records"}) {
		c.Errorf("queues %v and tables %v are there, want orders and records", queues, tables.TableNames)
	}
	if len(c.sqs.Messages("orders")) > 0 || len(c.dynamo.Items("records")) > 0 {
		c.Error("what the URLs name was used: runs have queues and tables of their own")
	}
}

// TestS3_01_RunsSeeNothingOfEachOther runs the same orders at the same time in one place: with anything in common they
// would double each other's effects, or skip them.
func TestS3_01_RunsSeeNothingOfEachOther(t *testing.T) {
	onlyFull(t)
	c, url := newCloud(t), server.Database(t)
	var all sync.WaitGroup
	for _, where := range []place.Where{c.where(), c.where(), {Store: url}, {Store: url}} {
		all.Go(func() {
			v := runOn(t, "happy", where)
			if !v.OK() {
				t.Errorf("%+v: %+v", where, v.Runs)
			}
		})
	}
	all.Wait()
	c.clean()
	if n := demoSchemas(t, url); n != 0 {
		t.Errorf("%d schemas are left behind", n)
	}
}

// TestS3_01_AnInterruptedRunLeavesNothing ends runs as Ctrl-C does, when they are at work.
func TestS3_01_AnInterruptedRunLeavesNothing(t *testing.T) {
	onlyFull(t)
	c, url, file := newCloud(t), server.Database(t), filepath.Join(t.TempDir(), "a.db")
	s, _ := scenarios.Find("replicas")
	for _, where := range []place.Where{c.where(), {Store: url}, {Store: "sqlite:" + file}} {
		ctx, cancel := context.WithCancel(t.Context())
		began := false
		v, err := Run(ctx, s, options(t, where), func(string) { began = true; cancel() })
		cancel()
		if !errors.Is(err, context.Canceled) || !began || len(v.Runs) > 0 {
			t.Errorf("%+v: %v, began %v", where, err, began)
		}
	}
	c.clean()
	if n := demoSchemas(t, url); n != 0 {
		t.Errorf("%d schemas are left behind", n)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); len(left) > 0 {
		t.Errorf("%v are left behind", left)
	}
}

// TestKeepOnAWS: --keep leaves queues and tables, and prints where they are.
func TestKeepOnAWS(t *testing.T) {
	onlyFull(t)
	t.Setenv("TMPDIR", t.TempDir())
	c := newCloud(t)
	s, _ := scenarios.Find("happy")
	o := options(t, c.where())
	o.Keep, o.Guards = true, []plan.Guard{plan.GuardOn}
	v, err := Run(t.Context(), s, o, nil)
	if err != nil || !v.OK() || len(v.KeptIn) != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	r, err := place.Open(t.Context(), place.URLs{Store: v.KeptIn[0], Queue: v.KeptIn[1]}, s.Workers.Visibility)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	effects, err := r.Effects(t.Context())
	if err != nil || len(effects) != 30 {
		t.Errorf("%d effects in the kept ledger, %v", len(effects), err)
	}
}
