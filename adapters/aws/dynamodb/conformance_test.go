package dynamodb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

var midday = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// fixture is a store on a fake with a ledger.
type fixture struct {
	*Store
	client *awsdynamodb.Client
	fake   *fakedynamodb.Server // nil on another server
	clock  *awstest.Clock
	ledger string
	o      Options
}

// newFixture opens a store on a fake whose clock stands still, with the table that the options describe.
func newFixture(t testing.TB, o Options, wrap ...func(http.RoundTripper) http.RoundTripper) *fixture {
	t.Helper()
	return newFixtureAt(t, awstest.Frozen(midday), o, wrap...)
}

func newFixtureAt(t testing.TB, clock *awstest.Clock, o Options, wrap ...func(http.RoundTripper) http.RoundTripper) *fixture {
	t.Helper()
	// The fake has its own clock, as the service has. Only the deletion of expired items uses it.
	fake := fakedynamodb.New(fakedynamodb.Options{Clock: awstest.Frozen(midday), TTLLag: -1})
	plain := awsdynamodb.NewFromConfig(awstest.Config(fake))
	r := &fixture{client: plain, fake: fake, clock: clock, ledger: "ledger"}
	r.makeTables(t, "records", &o)
	if o.SweepEvery == 0 {
		o.SweepEvery = -1
	}
	if o.Clock == nil {
		o.Clock = clock.Now
	}
	r.o = o
	r.Store = r.open(t, awsdynamodb.NewFromConfig(awstest.Config(fake, wrap...)), "records", o)
	return r
}

func (r *fixture) open(t testing.TB, client Client, table string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), client, table, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// again is another process on the same table.
func (r *fixture) again(t testing.TB, change func(o *Options), wrap ...func(http.RoundTripper) http.RoundTripper) *Store {
	t.Helper()
	o := r.o
	if change != nil {
		change(&o)
	}
	return r.open(t, awsdynamodb.NewFromConfig(awstest.Config(r.fake, wrap...)), "records", o)
}

func (r *fixture) makeTables(t testing.TB, table string, o *Options) {
	t.Helper()
	if err := Create(t.Context(), r.client, table, CreateOptions{Options: *o}); err != nil {
		t.Fatal(err)
	}
	createTableOf(t, r.client, r.ledger, "id")
}

// createTableOf creates a table that has only a partition key.
func createTableOf(t testing.TB, c *awsdynamodb.Client, table, key string) {
	t.Helper()
	_, err := c.CreateTable(t.Context(), &awsdynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func ledgerKey(id string) attrs { return attrs{"id": text("effect of " + id)} }

// ledgerOf adds to counters, so that a second effect is visible.
func ledgerOf(client *awsdynamodb.Client, table string) *semeltest.Ledger {
	return &semeltest.Ledger{
		Buffer: func(c driver.Committer) any {
			var w *Writes
			c.Offers(&w)
			return w
		},
		Add: func(w any, id string) { w.(*Writes).Add(table, ledgerKey(id), "n", 1) },
		Refuse: func(w any) {
			w.(*Writes).Check(types.ConditionCheck{
				TableName: &table, Key: attrs{"id": text("nobody")}, ConditionExpression: aws.String("attribute_exists(id)"),
			})
		},
		Count: func(ctx context.Context, id string) (int, error) {
			out, err := client.GetItem(ctx, &awsdynamodb.GetItemInput{TableName: &table, Key: ledgerKey(id), ConsistentRead: aws.Bool(true)})
			if err != nil || out.Item["n"] == nil {
				return 0, err
			}
			return strconv.Atoi(out.Item["n"].(*types.AttributeValueMemberN).Value)
		},
	}
}

// damage turns a record into one of a newer program.
func (r *fixture) damage(t testing.TB, k driver.Key) {
	t.Helper()
	_, err := r.client.UpdateItem(t.Context(), &awsdynamodb.UpdateItemInput{
		TableName: aws.String("records"), Key: r.shape.keyOf(k), UpdateExpression: aws.String("SET #w = :w"),
		ExpressionAttributeNames:  map[string]string{"#w": r.shape.names["watermark"]},
		ExpressionAttributeValues: attrs{":w": binary([]byte{3, 0})},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *fixture) setup() semeltest.StoreSetup {
	return semeltest.StoreSetup{
		Store: r.Store, Advance: r.clock.Advance, Skew: r.o.skew(), Ledger: ledgerOf(r.client, r.ledger), Damage: r.damage,
		Sample: semeltest.Sampled(fewerCells),
	}
}

// fewerCells is the sample of cells on the own table: memory compares all cells, and each takes several requests here.
const fewerCells = 23

// someCells is the sample of cells where all of them would only repeat other tests.
const someCells = 47

// rawLayout is that of an existing table: its partition key is the text of the key, and it has no sort key.
func rawLayout() Layout {
	return Layout{
		PartitionKey: "file_key", Status: "status", Names: map[string]string{"attempt": "attempts"},
		Statuses: map[driver.State]string{driver.InProgress: "processing", driver.Completed: "success"},
		// The suite's keys have consumers and tenants: they become part of the text.
		Text: func(k driver.Key) string { return fmt.Sprintf("%q/%q/%s", k.Consumer, k.Tenant, k.Raw) },
	}
}

// twoTables are a table of states and a table of completed keys.
func twoTables() Options {
	return Options{
		Layout: Layout{
			PartitionKey: "message_id", Status: "status", Names: map[string]string{"attempt": "attempts"},
			Statuses: map[driver.State]string{driver.InProgress: "STARTED"},
			Text:     func(k driver.Key) string { return fmt.Sprintf("%q/%q/%s", k.Consumer, k.Tenant, k.Raw) },
		},
		Gate: "message-completed",
	}
}

// longTimeouts waits for the fake on a busy machine as well: the suite has no timeouts of its own.
func longTimeouts(o Options) Options {
	o.CallTimeout = time.Minute
	return o
}

func TestStoreSuite(t *testing.T) {
	drawn := []string{"two tables", "strict observation"}[rand.IntN(2)] // two tables have a partition key and text, too
	for name, o := range map[string]Options{
		"own table":              {},
		"partition key and text": {Layout: rawLayout()},
		"two tables":             twoTables(),
		"strict observation":     {Observe: true, MaxClockSkew: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "own table" {
				t.Skip("-short runs the suite on one layout")
			}
			if name != "own table" && name != drawn && !semeltest.Nightly() {
				t.Skip("a run has one layout, drawn at random, beside the own table; make nightly runs all")
			}
			semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
				if o.Observe && strings.Contains(t.Name(), "the_clock_stepped_back") {
					t.Skip("strict observation compares no clocks, so there is nothing to cut")
				}
				s := newFixture(t, longTimeouts(o)).setup()
				if name != "own table" {
					s.Sample = semeltest.Sampled(someCells) // more cells are compared on the own table
				}
				return s
			})
		})
	}
}

// TestStoreSuiteRealClock uses short leases, a short skew, real waits and strict observation. It compares a part of the
// cells: all of them take minutes on a busy machine, where the suite allows for two (semeltest's slack).
func TestStoreSuiteRealClock(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves real waits out")
	}
	for name, o := range map[string]Options{
		"short skew":         {MaxClockSkew: 20 * time.Millisecond},
		"strict observation": {Observe: true, MaxClockSkew: -1},
	} {
		if o.Observe && !semeltest.Nightly() {
			continue // it reads no clock but that of this process: TestStoreSuite has it with one that stands still
		}
		t.Run(name, func(t *testing.T) {
			semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
				s := newFixtureAt(t, awstest.System(), longTimeouts(o)).setup()
				s.Advance, s.Sample = nil, semeltest.Sampled(someCells)
				return s
			})
		})
	}
}

// bareFake is a client of a fake without tables.
func bareFake() *awsdynamodb.Client {
	return awsdynamodb.NewFromConfig(awstest.Config(fakedynamodb.New(fakedynamodb.Options{CreateLag: 20 * time.Millisecond})))
}

// TestMain collects garbage less often: a hundred small fakes at once keep little memory but allocate much.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
