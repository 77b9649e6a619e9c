package open

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/ops"
)

var dynamoKind = &kind{
	schemes: []string{"dynamodb"}, parse: parseDynamo, open: openDynamo, explain: awsExplain, noQueues: "DynamoDB has no queues", params: dynamoParams,
	migrate: migrateDynamo, schema: dynamoSchema,
}

// dynamoDB is a table with records.
type dynamoDB struct {
	noQueues
	client *awsdynamodb.Client
	o      dynamodb.Options
}

func openDynamo(ctx context.Context, t Target, o Options) (Database, error) {
	d, err := connectDynamo(ctx, t)
	if err != nil {
		return nil, err
	}
	if o.Committers > 1 {
		d.o.Parallel = max(d.o.Parallel, 32*o.Committers)
	}
	return d, nil
}

func connectDynamo(ctx context.Context, t Target) (*dynamoDB, error) {
	o, err := t.aws.layout("store")
	if err != nil {
		return nil, err
	}
	cfg, err := t.aws.load(ctx, t)
	if err != nil {
		return nil, err
	}
	return &dynamoDB{noQueues: noQueues{t}, client: awsdynamodb.NewFromConfig(cfg), o: o}, nil
}

// missingTable is what to do about a table that does not exist.
func missingTable(t Target) string {
	return fmt.Sprintf("semel migrate --store '%s' makes it; or fix its name, the region or the endpoint", t.Shown)
}

// openTable bounds the first look at a table, which is repeated while nothing responds: a wrong URL should fail soon. Later
// outages are waited out.
const openTable = 5 * time.Second

// Store opens the table, which has to exist and to have the keys that the URL says.
func (d *dynamoDB) Store(ctx context.Context) (driver.Store, error) {
	first, cancel := context.WithTimeout(ctx, openTable)
	defer cancel()
	st, err := dynamodb.Open(first, d.client, d.t.aws.name, d.o)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if missing := (*types.ResourceNotFoundException)(nil); errors.As(err, &missing) && d.beingMade(ctx) {
		e := output.Unreachable("open %s: the table is being made", d.t.Shown)
		return nil, e.WithHint("wait until it is ACTIVE, some ten seconds: semel migrate --store '%s' does", d.t.Shown)
	}
	if err != nil {
		return nil, awsError(d.t, "open", err, missingTable(d.t))
	}
	return st, nil
}

// beingMade tells a table that is not there yet from one that is not there: its items are missing in the same words. Who may
// not ask does not know.
func (d *dynamoDB) beingMade(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, openTable)
	defer cancel()
	out, err := d.client.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &d.t.aws.name})
	return err == nil && out.Table != nil && out.Table.TableStatus == types.TableStatusCreating
}

// Close has nothing to close: the SDK's connections end by themselves.
func (d *dynamoDB) Close() error { return nil }

// createTable bounds the wait for a new table: it takes some ten seconds.
const createTable = 2 * time.Minute

// migrateDynamo makes the table, where it is not there. Its schema has one version: what records need besides the keys, each
// item says itself.
func migrateDynamo(ctx context.Context, t Target) (from, to int, err error) {
	d, err := connectDynamo(ctx, t)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, createTable)
	defer cancel()
	_, err = d.client.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &t.aws.name})
	missing := (*types.ResourceNotFoundException)(nil)
	made := errors.As(err, &missing)
	err = dynamodb.Create(ctx, d.client, t.aws.name, dynamodb.CreateOptions{Options: d.o})
	if err != nil {
		return 0, 0, awsError(t, "migrate", err, "")
	}
	if !made {
		from = 1
	}
	return from, 1, nil
}

// keys are the names that a table is made with.
type keys struct{ partition, sort, ttl, gate string }

// keysOf fills in the defaults of a layout, as the adapter does.
func keysOf(o dynamodb.Options) keys {
	l := o.Layout
	k := keys{partition: l.PartitionKey, sort: l.SortKey, ttl: l.TTL, gate: o.GateKey}
	prefix := l.Prefix
	if k.partition == "" {
		k.partition, k.sort = "pk", "sk"
	} else if prefix == "" {
		prefix = "semel_"
	}
	if k.ttl == "" {
		k.ttl = prefix + "ttl"
	}
	if k.gate == "" {
		k.gate = k.partition
	}
	return k
}

// dynamoSchema is the requests that make the table, as aws dynamodb create-table and update-time-to-live take them.
func dynamoSchema(t Target) (string, error) {
	o, err := t.aws.layout("store")
	if err != nil {
		return "", err
	}
	k := keysOf(o)
	type request map[string]any
	table := func(name, partition, sort string) request {
		attributes := []request{{"AttributeName": partition, "AttributeType": "S"}}
		schema := []request{{"AttributeName": partition, "KeyType": "HASH"}}
		if sort != "" {
			attributes = append(attributes, request{"AttributeName": sort, "AttributeType": "S"})
			schema = append(schema, request{"AttributeName": sort, "KeyType": "RANGE"})
		}
		return request{"TableName": name, "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": attributes, "KeySchema": schema}
	}
	ttl := func(name string) request {
		return request{"TableName": name, "TimeToLiveSpecification": request{"AttributeName": k.ttl, "Enabled": true}}
	}
	requests := []request{{"CreateTable": table(t.aws.name, k.partition, k.sort)}, {"UpdateTimeToLive": ttl(t.aws.name)}}
	if o.Gate != "" {
		requests = append(requests, request{"CreateTable": table(o.Gate, k.gate, "")}, request{"UpdateTimeToLive": ttl(o.Gate)})
	}
	b, err := json.MarshalIndent(requests, "", "  ")
	return string(b) + "\n", err
}

// openDeadLetterTable keeps the dead letters of a queue in a table, where they stay until a person is done with them.
func openDeadLetterTable(ctx context.Context, cfg aws.Config, t Target, queue, table string) (driver.DeadLetterQueue, error) {
	client := awsdynamodb.NewFromConfig(cfg)
	if _, err := client.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &table}); err != nil {
		at := t
		at.Shown = "dynamodb://" + table
		return nil, awsError(at, "open the dead letters of "+t.Shown+" in", err, missingTable(at))
	}
	box, err := dynamodb.DeadLetters(client, table, queue, dynamodb.Options{})
	if err != nil {
		return nil, output.Usage("--queue: dead_letters=dynamodb:%s: %w", table, err)
	}
	return box, nil
}

const dynamoForm = "dynamodb://semel-records?region=eu-west-1"

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

func validTableName(name string) bool {
	return len(name) >= 3 && len(name) <= 255 && tableName.MatchString(name)
}

// dynamoParams are the parameters beside the common ones: all but skew and observe describe a table that was there before.
var dynamoParams = append([]string{
	"pk", "sk", "sort", "raw-keys", "prefix", "status", "statuses", "adopt", "ttl", "gate", "gate-key", "skew", "observe",
}, commonParams...)

func parseDynamo(flag, raw string, t *Target) error {
	u, a, err := splitAWS(flag, raw, dynamoForm, dynamoParams)
	if err != nil {
		return err
	}
	if strings.Trim(u.Path, "/") != "" || u.Port() != "" || u.Opaque != "" || !validTableName(u.Host) {
		return output.Usage("--%s is not a URL of the form %s", flag, dynamoForm).WithHint("3 to 255 of a-z A-Z 0-9 _ . - name a table")
	}
	a.name = u.Host
	if _, err := a.layout(flag); err != nil {
		return err
	}
	t.aws, t.place, t.Shown = a, a.place("dynamodb "+a.name), "dynamodb://"+a.name
	if u.RawQuery != "" {
		t.Shown += "?" + u.RawQuery // no parameter is secret
	}
	return nil
}

// layout is how the URL says that records lie in the table.
func (a *awsPlace) layout(flag string) (o dynamodb.Options, err error) {
	p := a.params
	o.Layout = dynamodb.Layout{
		PartitionKey: p.Get("pk"), SortKey: p.Get("sk"), SortValue: p.Get("sort"), Prefix: p.Get("prefix"),
		Status: p.Get("status"), TTL: p.Get("ttl"),
	}
	o.Gate, o.GateKey = p.Get("gate"), p.Get("gate-key")
	if o.Gate != "" && (!validTableName(o.Gate) || o.Gate == a.name) {
		return o, output.Usage("--%s: gate=%s does not name another table", flag, o.Gate)
	}
	if o.GateKey != "" && o.Gate == "" {
		return o, output.Usage("--%s: gate-key=%s without gate=", flag, o.GateKey)
	}
	if (p.Get("sk") != "" || p.Get("raw-keys") != "") && p.Get("pk") == "" {
		return o, output.Usage("--%s: sk= and raw-keys= describe a table that was there before: they need pk=", flag)
	}
	if c := p.Get("raw-keys"); c != "" {
		o.Layout.Text = dynamodb.RawKeys(c)
	}
	if o.Observe, err = a.on(flag, "observe"); err != nil {
		return o, err
	}
	if raw := p.Get("skew"); raw != "" {
		d, err := time.ParseDuration(raw)
		if err != nil || d < 0 || d > time.Hour {
			return o, output.Usage("--%s: skew=%s is out of range", flag, raw).WithHint("skew=10s: how far clocks may differ, at most 1h")
		}
		if o.MaxClockSkew = d; d == 0 {
			o.MaxClockSkew = -1
		}
	}
	statuses, err := pairs(flag, "statuses", p.Get("statuses"))
	if err != nil {
		return o, err
	}
	for name, text := range statuses {
		st, ok := driver.ParseState(strings.ToUpper(name))
		if !ok {
			return o, unknownState(flag, "statuses", name)
		}
		if o.Layout.Statuses == nil {
			o.Layout.Statuses = map[driver.State]string{}
		}
		o.Layout.Statuses[st] = text
	}
	adopt, err := pairs(flag, "adopt", p.Get("adopt"))
	if err != nil {
		return o, err
	}
	for text, name := range adopt {
		st, ok := driver.ParseState(strings.ToUpper(name))
		if !ok {
			return o, unknownState(flag, "adopt", name)
		}
		if o.Layout.Adopt == nil {
			o.Layout.Adopt = map[string]driver.State{}
		}
		o.Layout.Adopt[text] = st
	}
	return o, nil
}

// pairs reads a parameter of the form a:b,c:d.
func pairs(flag, param, raw string) (map[string]string, error) {
	if raw == "" {
		return nil, nil
	}
	out := map[string]string{}
	for _, part := range strings.Split(raw, ",") {
		a, b, ok := strings.Cut(part, ":")
		if _, twice := out[a]; !ok || a == "" || b == "" || twice {
			return nil, output.Usage("--%s: %s=%s is not a list of pairs", flag, param, raw).
				WithHint("statuses=COMPLETED:DONE,IN_PROGRESS:STARTED (state:text), adopt=STARTED:ABSENT,DONE:COMPLETED (text:state)")
		}
		out[a] = b
	}
	return out, nil
}

func unknownState(flag, param, name string) error {
	var known []string
	for st := driver.Absent; st <= driver.Uncertain; st++ {
		known = append(known, st.String())
	}
	return output.Usage("--%s: %s= has the unknown state %q (known: %s)", flag, param, name, strings.Join(known, ", "))
}

// Examine tells what a worker meets in the table.
func (d *dynamoDB) Examine(ctx context.Context, _ Options) ([]ops.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	found, err := dynamodb.Examine(ctx, d.client, d.t.aws.name, d.o)
	if err != nil {
		return nil, awsError(d.t, "examine", err, missingTable(d.t))
	}
	all := make([]ops.Check, len(found))
	for i, f := range found {
		if all[i] = fact(f.Level, f.Check, f.Try, "%s", f.Detail); d.o.Observe && f.Check == "clock" { // a clock that is off is no danger then
			all[i] = fact(ops.LevelOK, f.Check, "", "not compared: a lease has ended when its record stayed unchanged for all of it")
		}
	}
	return all, nil
}
