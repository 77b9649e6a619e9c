package fakedynamodb_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
)

// row is a documented behaviour: steps are calls of the real SDK, one after the other on an empty table "rows" with the keys
// pk and sk, both strings. The same rows run against the fake, moto and DynamoDB Local.
type row struct {
	name   string
	source string // the vendor's page, below docs
	steps  []call
}

type call struct {
	in   any
	want string // what show makes of the response
	says string // part of the error's message: the service's wording, which emulators do not all have
}

const docs = "https://docs.aws.amazon.com/amazondynamodb/latest/"

type m = map[string]types.AttributeValue

var rows = aws.String("rows")

func str(s string) types.AttributeValue     { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue     { return &types.AttributeValueMemberN{Value: s} }
func bin(s string) types.AttributeValue     { return &types.AttributeValueMemberB{Value: []byte(s)} }
func yes(b bool) types.AttributeValue       { return &types.AttributeValueMemberBOOL{Value: b} }
func null() types.AttributeValue            { return &types.AttributeValueMemberNULL{Value: true} }
func strs(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }
func nums(s ...string) types.AttributeValue { return &types.AttributeValueMemberNS{Value: s} }
func doc(v m) types.AttributeValue          { return &types.AttributeValueMemberM{Value: v} }
func list(v ...types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberL{Value: v}
}

// key is the key of an item; with adds attributes to it.
func key(sk string) m { return m{"pk": str("p"), "sk": str(sk)} }

func with(sk string, more m) m {
	out := key(sk)
	maps.Copy(out, more)
	return out
}

func put(it m) call { return call{in: &ddb.PutItemInput{TableName: rows, Item: it}, want: "ok"} }

func get(sk string) *ddb.GetItemInput {
	return &ddb.GetItemInput{TableName: rows, Key: key(sk), ConsistentRead: aws.Bool(true)}
}

func update(expr string, values m) *ddb.UpdateItemInput {
	return &ddb.UpdateItemInput{
		TableName: rows, Key: key("a"), UpdateExpression: aws.String(expr), ExpressionAttributeValues: values,
		ReturnValues: "ALL_NEW",
	}
}

// do carries out a call.
func do(ctx context.Context, c *ddb.Client, in any) (any, error) {
	switch in := in.(type) {
	case *ddb.PutItemInput:
		return c.PutItem(ctx, in)
	case *ddb.GetItemInput:
		return c.GetItem(ctx, in)
	case *ddb.UpdateItemInput:
		return c.UpdateItem(ctx, in)
	case *ddb.DeleteItemInput:
		return c.DeleteItem(ctx, in)
	case *ddb.ScanInput:
		return c.Scan(ctx, in)
	case *ddb.QueryInput:
		return c.Query(ctx, in)
	case *ddb.BatchGetItemInput:
		return c.BatchGetItem(ctx, in)
	case *ddb.BatchWriteItemInput:
		return c.BatchWriteItem(ctx, in)
	case *ddb.TransactWriteItemsInput:
		return c.TransactWriteItems(ctx, in)
	case *ddb.TransactGetItemsInput:
		return c.TransactGetItems(ctx, in)
	case *ddb.UpdateTimeToLiveInput:
		return c.UpdateTimeToLive(ctx, in)
	case *ddb.DescribeTimeToLiveInput:
		return c.DescribeTimeToLive(ctx, in)
	}
	return nil, fmt.Errorf("no such call: %T", in)
}

// show describes a response: its items and the units, or the error with its items.
func show(out any, err error) string {
	if err != nil {
		return showError(err)
	}
	parts := []string{}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	units := func(all ...types.ConsumedCapacity) {
		for _, c := range all {
			add("units=%v", aws.ToFloat64(c.CapacityUnits))
		}
	}
	one := func(c *types.ConsumedCapacity) {
		if c != nil {
			units(*c)
		}
	}
	page := func(items []m, count, scanned int32, last m) {
		parts = append(parts, showPage(items, count, scanned, last))
	}
	switch out := out.(type) {
	case *ddb.PutItemOutput:
		add("%s", orOK(out.Attributes))
		one(out.ConsumedCapacity)
	case *ddb.UpdateItemOutput:
		add("%s", orOK(out.Attributes))
		one(out.ConsumedCapacity)
	case *ddb.DeleteItemOutput:
		add("%s", orOK(out.Attributes))
		one(out.ConsumedCapacity)
	case *ddb.GetItemOutput:
		add("%s", showItem(out.Item))
		one(out.ConsumedCapacity)
	case *ddb.ScanOutput:
		page(out.Items, out.Count, out.ScannedCount, out.LastEvaluatedKey)
		one(out.ConsumedCapacity)
	case *ddb.QueryOutput:
		page(out.Items, out.Count, out.ScannedCount, out.LastEvaluatedKey)
		one(out.ConsumedCapacity)
	case *ddb.BatchGetItemOutput:
		items := out.Responses["rows"]
		slices.SortFunc(items, func(a, b m) int { return strings.Compare(showItem(a), showItem(b)) }) // the order is open
		add("%s left=%d", showItems(items), len(out.UnprocessedKeys["rows"].Keys))
		units(out.ConsumedCapacity...)
	case *ddb.TransactGetItemsOutput:
		for _, r := range out.Responses {
			add("%s", showItem(r.Item))
		}
		units(out.ConsumedCapacity...)
	case *ddb.TransactWriteItemsOutput:
		add("ok")
		units(out.ConsumedCapacity...)
	case *ddb.BatchWriteItemOutput:
		add("ok left=%d", len(out.UnprocessedItems))
		units(out.ConsumedCapacity...)
	case *ddb.DescribeTimeToLiveOutput:
		add("%s %s", out.TimeToLiveDescription.TimeToLiveStatus, aws.ToString(out.TimeToLiveDescription.AttributeName))
	default:
		add("ok")
	}
	return strings.Join(parts, " ")
}

func showPage(items []m, count, scanned int32, last m) string {
	out := fmt.Sprintf("%s count=%d/%d", showItems(items), count, scanned)
	if len(last) > 0 {
		out += " last=" + showItem(last)
	}
	return out
}

func showError(err error) string {
	out := "?" + err.Error()
	if api := smithy.APIError(nil); errors.As(err, &api) {
		out = api.ErrorCode()
	}
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) && failed.Item != nil {
		out += " " + showItem(failed.Item)
	}
	if gone := (*types.TransactionCanceledException)(nil); errors.As(err, &gone) {
		for _, r := range gone.CancellationReasons {
			if out += " " + aws.ToString(r.Code); r.Item != nil {
				out += showItem(r.Item)
			}
		}
	}
	return out
}

func orOK(it m) string {
	if len(it) == 0 {
		return "ok"
	}
	return showItem(it)
}

func showItems(items []m) string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = showItem(it)
	}
	return "[" + strings.Join(out, " ") + "]"
}

// showItem writes an item down without its partition key, which is the same everywhere.
func showItem(it m) string {
	if it == nil {
		return "none"
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(it)) {
		if k != "pk" {
			out = append(out, k+":"+showValue(it[k]))
		}
	}
	return "{" + strings.Join(out, " ") + "}"
}

func showValue(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		if len(v.Value) > 50 {
			return fmt.Sprintf("%d bytes", len(v.Value))
		}
		return "'" + v.Value + "'"
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return "x" + hex.EncodeToString(v.Value)
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprint(v.Value)
	case *types.AttributeValueMemberNULL:
		return "null"
	case *types.AttributeValueMemberSS:
		return "<" + strings.Join(slices.Sorted(slices.Values(v.Value)), " ") + ">"
	case *types.AttributeValueMemberNS:
		return "<" + strings.Join(slices.Sorted(slices.Values(v.Value)), " ") + ">"
	case *types.AttributeValueMemberM:
		return showItem(v.Value)
	case *types.AttributeValueMemberL:
		var out []string
		for _, e := range v.Value {
			out = append(out, showValue(e))
		}
		return "[" + strings.Join(out, " ") + "]"
	}
	return fmt.Sprintf("%T", v)
}

func documented() []row {
	return slices.Concat(conditionRows(), updateRows(), valueRows(), refusedRows(), pageRows(), transactionRows(), capacityRows())
}

func TestDocumentedResponses(t *testing.T) {
	for _, r := range documented() {
		t.Run(r.name, func(t *testing.T) {
			c := ddb.NewFromConfig(awstest.Config(fakedynamodb.New(fakedynamodb.Options{})))
			for _, problem := range runRow(t, c, r, true) {
				t.Errorf("%s (%s%s)", problem, docs, r.source)
			}
		})
	}
}

// runRow carries out a row on a new table and returns what was not as documented.
func runRow(t *testing.T, c *ddb.Client, r row, wording bool) (problems []string) {
	t.Helper()
	ctx := t.Context()
	if err := create(ctx, c, "rows"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := c.DeleteTable(context.WithoutCancel(ctx), &ddb.DeleteTableInput{TableName: rows}); err != nil {
			t.Error(err)
		}
	}()
	for i, s := range r.steps {
		out, err := do(ctx, c, s.in)
		got := show(out, err)
		if before, _, found := strings.Cut(got, " units="); found && !strings.Contains(s.want, "units=") {
			got = before // moto returns it unasked
		}
		if got != s.want {
			problems = append(problems, fmt.Sprintf("step %d returned %s, want %s: %v", i, got, s.want, err))
		}
		if wording && s.says != "" && (err == nil || !strings.Contains(err.Error(), s.says)) {
			problems = append(problems, fmt.Sprintf("step %d says %v, want %q in it", i, err, s.says))
		}
	}
	return problems
}

func create(ctx context.Context, c *ddb.Client, name string) error {
	_, err := c.CreateTable(ctx, &ddb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: "S"}, {AttributeName: aws.String("sk"), AttributeType: "S"},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: "HASH"}, {AttributeName: aws.String("sk"), KeyType: "RANGE"},
		},
	})
	return err
}
