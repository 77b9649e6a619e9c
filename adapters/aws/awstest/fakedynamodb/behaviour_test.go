package fakedynamodb_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
)

// begin returns a fake with the table "rows" and a client that does not retry.
func begin(t *testing.T, o fakedynamodb.Options) (*fakedynamodb.Server, *ddb.Client) {
	t.Helper()
	s := fakedynamodb.New(o)
	c := ddb.NewFromConfig(awstest.Config(s), func(o *ddb.Options) { o.RetryMaxAttempts = 1 })
	if err := create(t.Context(), c, "rows"); err != nil {
		t.Fatal(err)
	}
	return s, c
}

// must carries out a call and expects the result want.
func must(t *testing.T, c *ddb.Client, in any, want string) {
	t.Helper()
	out, err := do(t.Context(), c, in)
	if got := show(out, err); got != want {
		t.Fatalf("%T returned %s, want %s: %v", in, got, want, err)
	}
}

func TestFM40_ExpiredItemsStayForDays(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_800_000_000, 0))
	s, c := begin(t, fakedynamodb.Options{Clock: clock, TTLLag: 48 * time.Hour})
	must(t, c, ttl("gone"), "ok")
	at := func(sk string, d time.Duration) *ddb.PutItemInput {
		return &ddb.PutItemInput{TableName: rows, Item: with(sk, m{"gone": num(strconv.FormatInt(clock.Now().Add(d).Unix(), 10))})}
	}
	for sk, d := range map[string]time.Duration{"hour": time.Hour, "later": 2 * time.Hour, "week": 7 * 24 * time.Hour,
		"past": -6 * 365 * 24 * time.Hour} {
		must(t, c, at(sk, d), "ok")
	}
	must(t, c, &ddb.PutItemInput{TableName: rows, Item: with("text", m{"gone": str("1")})}, "ok")
	left := func() int { return len(s.Items("rows")) }
	clock.Advance(48 * time.Hour)
	must(t, c, get("hour"), "{gone:1800003600 sk:'hour'}")
	clock.Advance(time.Hour + time.Second)
	must(t, c, get("hour"), "none")
	if n := left(); n != 4 {
		t.Errorf("%d items are left, want 4: later, which expired less than 48 hours ago, week, past, text", n)
	}
	clock.Advance(7 * 24 * time.Hour)
	if n := s.DeleteExpired(); n != 2 || left() != 2 {
		t.Errorf("%d were deleted by hand and %d are left: text is no time, and past was five years ago", n, left())
	}
}

// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateTimeToLive.html
func TestTheTimeToLiveChangesOnceInAnHour(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_800_000_000, 0))
	_, c := begin(t, fakedynamodb.Options{Clock: clock})
	off := ttl("gone")
	off.TimeToLiveSpecification.Enabled = aws.Bool(false)
	must(t, c, ttl("gone"), "ok")
	must(t, c, off, "ValidationException")
	clock.Advance(time.Hour)
	must(t, c, off, "ok")
	must(t, c, ttl("other"), "ValidationException")
	must(t, c, &ddb.DescribeTimeToLiveInput{TableName: rows}, "DISABLED ")
}

func TestNegativeLagKeepsExpiredItems(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_800_000_000, 0))
	s, c := begin(t, fakedynamodb.Options{Clock: clock, TTLLag: -1})
	must(t, c, put(with("a", m{"gone": num("1800000001")})).in, "ok")
	must(t, c, ttl("gone"), "ok")
	clock.Advance(1000 * time.Hour)
	must(t, c, get("a"), "{gone:1800000001 sk:'a'}")
	if n := s.DeleteExpired(); n != 1 || len(s.Items("rows")) != 0 {
		t.Errorf("%d deleted, left %v", n, s.Items("rows"))
	}
}

func TestStaleReads(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_800_000_000, 0))
	s, c := begin(t, fakedynamodb.Options{Clock: clock, Stale: 1, Seed: 1})
	lazy := get("a")
	lazy.ConsistentRead = nil
	must(t, c, put(with("a", m{"n": num("1")})).in, "ok")
	must(t, c, lazy, "none")
	must(t, c, get("a"), "{n:1 sk:'a'}")
	must(t, c, put(with("a", m{"n": num("2")})).in, "ok")
	must(t, c, lazy, "{n:1 sk:'a'}")
	must(t, c, query("pk = :p", nil, func(in *ddb.QueryInput) { in.ConsistentRead, in.ProjectionExpression = nil, nil }),
		"[{n:1 sk:'a'}] count=1/1")
	must(t, c, &ddb.DeleteItemInput{TableName: rows, Key: key("a")}, "ok")
	must(t, c, lazy, "{n:2 sk:'a'}")
	clock.Advance(time.Second)
	must(t, c, lazy, "none")
	must(t, c, put(with("a", m{"n": num("3")})).in, "ok")
	s.SetStale(0)
	must(t, c, lazy, "{n:3 sk:'a'}")
}

func TestConflicts(t *testing.T) {
	s, c := begin(t, fakedynamodb.Options{})
	s.Conflict(2, func(_, table string, key fakedynamodb.Item) bool { return table == "rows" && key["sk"]["S"] == "b" })
	must(t, c, put(key("a")).in, "ok")
	must(t, c, put(key("b")).in, "TransactionConflictException")
	must(t, c, together(txPut(key("a"), ""), txPut(key("b"), "")), "TransactionCanceledException None TransactionConflict")
	must(t, c, get("b"), "none")
	must(t, c, put(key("b")).in, "ok")
	s.Conflict(-1, nil)
	must(t, c, &ddb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{{Get: &types.Get{TableName: rows,
		Key: key("b")}}}},
		"TransactionCanceledException TransactionConflict")
	must(t, c, get("b"), "{sk:'b'}")
	s.Conflict(0, nil)
	must(t, c, put(key("b")).in, "ok")
}

func TestTokensLastTenMinutes(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_800_000_000, 0))
	s, c := begin(t, fakedynamodb.Options{Clock: clock})
	in := together(txUpdate("a", "ADD n :v", m{":v": num("1")}))
	in.ClientRequestToken, in.ReturnConsumedCapacity = aws.String("once"), "TOTAL"
	must(t, c, in, "ok units=2")
	clock.Advance(10*time.Minute - time.Second)
	must(t, c, in, "ok units=2")
	if u := s.Used()["TransactWriteItems"]; u != (fakedynamodb.Units{Calls: 2, Read: 2, Write: 2}) {
		t.Errorf("a repetition is paid as a read; used %+v", u)
	}
	must(t, c, get("a"), "{n:1 sk:'a'}")
	clock.Advance(time.Second)
	must(t, c, in, "ok units=2")
	must(t, c, get("a"), "{n:2 sk:'a'}")
}

func TestFailedConditionsConsume(t *testing.T) {
	s, c := begin(t, fakedynamodb.Options{})
	must(t, c, put(with("a", m{"s": str(strings.Repeat("x", 2500))})).in, "ok")
	s.ResetUsed()
	must(t, c, when("attribute_not_exists(pk)", nil), "ConditionalCheckFailedException")
	must(t, c, together(txCheck("a", "attribute_not_exists(pk)")), "TransactionCanceledException ConditionalCheckFailed")
	must(t, c, when("status = status", nil), "ValidationException")
	if u := s.UsedOf("rows")["UpdateItem"]; u.Write != 3 {
		t.Errorf("a condition that fails costs the item's size: %+v", u)
	}
	if u := s.Used()["TransactWriteItems"]; u != (fakedynamodb.Units{Calls: 1, Write: 6}) {
		t.Errorf("a cancelled transaction costs twice: %+v", u)
	}
	if u := s.Used()["UpdateItem"]; u.Calls != 2 {
		t.Errorf("refused calls count: %+v", u)
	}
}

func TestSegmentsMeetEveryItemOnce(t *testing.T) {
	_, c := begin(t, fakedynamodb.Options{})
	for i := range 60 {
		must(t, c, &ddb.PutItemInput{TableName: rows, Item: m{"pk": str("p" + strconv.Itoa(i)), "sk": str("a")}}, "ok")
	}
	seen := map[string]int{}
	for segment := range int32(4) {
		pages := ddb.NewScanPaginator(c, &ddb.ScanInput{TableName: rows, Segment: aws.Int32(segment),
			TotalSegments: aws.Int32(4), Limit: aws.Int32(7)})
		for pages.HasMorePages() {
			out, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range out.Items {
				seen[showValue(it["pk"])]++
			}
		}
	}
	for pk, n := range seen {
		if n != 1 {
			t.Errorf("%s was seen %d times", pk, n)
		}
	}
	if len(seen) != 60 {
		t.Errorf("%d of 60 items were seen", len(seen))
	}
}

func TestBatchesOverSixteenMegabytesLeaveKeys(t *testing.T) {
	_, c := begin(t, fakedynamodb.Options{})
	keys := types.KeysAndAttributes{}
	for i := range 50 {
		sk := strconv.Itoa(i)
		must(t, c, put(with(sk, m{"s": str(strings.Repeat("x", 350<<10))})).in, "ok")
		keys.Keys = append(keys.Keys, key(sk))
	}
	out, err := c.BatchGetItem(t.Context(), &ddb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"rows": keys}})
	if err != nil {
		t.Fatal(err)
	}
	got, left := len(out.Responses["rows"]), len(out.UnprocessedKeys["rows"].Keys)
	if got != 46 || left != 4 { // 16 MB hold 46 items of 350 KB
		t.Errorf("%d items were read and %d left, want 46 and 4", got, left)
	}
}

func TestTables(t *testing.T) {
	clock := awstest.Frozen(time.Unix(1_800_000_000, 0))
	_, c := begin(t, fakedynamodb.Options{Clock: clock, CreateLag: time.Minute})
	must(t, c, get("a"), "ResourceNotFoundException")
	clock.Advance(time.Minute)
	must(t, c, get("a"), "none")
	must(t, c, put(key("a")).in, "ok")
	d, err := c.DescribeTable(t.Context(), &ddb.DescribeTableInput{TableName: rows})
	if err != nil {
		t.Fatal(err)
	}
	if tb := d.Table; tb.TableStatus != "ACTIVE" || tb.BillingModeSummary.BillingMode != "PAY_PER_REQUEST" || *tb.ItemCount != 1 ||
		*tb.TableSizeBytes != 6 || *tb.ProvisionedThroughput.ReadCapacityUnits != 0 || len(tb.KeySchema) != 2 || !tb.CreationDateTime.Equal(time.Unix(1_800_000_000, 0)) {
		t.Errorf("described as %+v", tb)
	}
	inUse := (*types.ResourceInUseException)(nil)
	if err := create(t.Context(), c, "rows"); !errors.As(err, &inUse) {
		t.Errorf("created twice: %v", err)
	}
	_, err = c.CreateTable(t.Context(), &ddb.CreateTableInput{
		TableName: aws.String("other"), ProvisionedThroughput: &types.ProvisionedThroughput{ReadCapacityUnits: aws.Int64(3),
			WriteCapacityUnits: aws.Int64(4)},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: "N"}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: "HASH"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err = c.DescribeTable(t.Context(), &ddb.DescribeTableInput{TableName: aws.String("other")})
	if err != nil || d.Table.TableStatus != "CREATING" || *d.Table.ProvisionedThroughput.WriteCapacityUnits != 4 || d.Table.BillingModeSummary != nil {
		t.Errorf("described as %+v: %v", d, err)
	}
	l, err := c.ListTables(t.Context(), &ddb.ListTablesInput{Limit: aws.Int32(1)})
	if err != nil || len(l.TableNames) != 1 || aws.ToString(l.LastEvaluatedTableName) != "other" {
		t.Errorf("listed %v: %v", l, err)
	}
	_, err = c.Query(t.Context(), &ddb.QueryInput{
		TableName: rows, IndexName: aws.String("idx"), KeyConditionExpression: aws.String("pk = :p"),
		ExpressionAttributeValues: m{":p": str("p")},
	})
	if err == nil || !strings.Contains(err.Error(), `fakedynamodb does not have the parameter "IndexName" of Query`) {
		t.Errorf("an index is refused in words, not with %v", err)
	}
}
