package dynamodb

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// guardClient is the part of the client that tests of fences use.
type guardClient interface {
	AdminClient
	DeadLetterClient
	UpdateItem(context.Context, *awsdynamodb.UpdateItemInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.UpdateItemOutput, error)
	PutItem(context.Context, *awsdynamodb.PutItemInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.PutItemOutput, error)
}

// testGuard: the item decides by its token, for every kind of write and every name of the attribute: "owner" is a reserved
// word (S2-15).
func testGuard(t *testing.T, client guardClient) {
	if err := Create(t.Context(), client, "guarded", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	key := attrs{"pk": text("report"), "sk": text("x")}
	update := func(token uint64, expression string) error {
		f := Guard("owner", token)
		in := &awsdynamodb.UpdateItemInput{
			TableName: aws.String("guarded"), Key: key, UpdateExpression: &expression,
			ExpressionAttributeNames: map[string]string{"#v": "value"}, ExpressionAttributeValues: attrs{":v": number(token)},
		}
		f.Update(in)
		_, err := client.UpdateItem(t.Context(), in)
		return stale(f, err)
	}
	put := func(token uint64) error {
		f := Guard("owner", token)
		in := &awsdynamodb.PutItemInput{TableName: aws.String("guarded"), Item: merge(key, attrs{"value": number(token)})}
		f.Put(in)
		_, err := client.PutItem(t.Context(), in)
		return stale(f, err)
	}
	inTx := func(token uint64) error {
		f := Guard("owner", token)
		u := &types.Update{
			TableName: aws.String("guarded"), Key: key, UpdateExpression: aws.String("SET #v = :v"),
			ExpressionAttributeNames: map[string]string{"#v": "value"}, ExpressionAttributeValues: attrs{":v": number(token)},
		}
		f.UpdateTx(u)
		p := &types.Put{TableName: aws.String("guarded"), Item: attrs{"pk": text("other"), "sk": text("x")}}
		f.PutTx(p)
		_, err := client.TransactWriteItems(t.Context(), &awsdynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{{Put: p}, {Update: u}},
		})
		return stale(f, err)
	}
	for _, x := range []struct {
		what  string
		token uint64
		write func(token uint64) error
		want  error
	}{
		{"the first to come", 4, func(n uint64) error { return update(n, "SET #v = :v") }, nil},
		{"the same again", 4, func(n uint64) error { return update(n, "set #v=:v") }, nil},
		{"the next holder", 7, put, nil},
		{"a stale update", 4, func(n uint64) error { return update(n, "SET #v = :v") }, errStale},
		{"a stale put", 6, put, errStale},
		{"a stale transaction", 5, inTx, errStale},
		{"the holder's transaction", 7, inTx, nil},
		{"a token beyond floats", 1<<63 + 1, func(n uint64) error { return update(n, "ADD #v :v") }, nil},
		{"one less", 1 << 63, put, errStale},
	} {
		if err := x.write(x.token); !errors.Is(err, x.want) {
			t.Errorf("%s (token %d): %v, wanted %v", x.what, x.token, err, x.want)
		}
	}
	// A failed condition of the write itself is no stale token.
	f := Guard("owner", 1<<63+2)
	in := &awsdynamodb.UpdateItemInput{
		TableName: aws.String("guarded"), Key: key, ConditionExpression: aws.String("attribute_exists(nothing_a) OR attribute_exists(nothing_b)"),
	}
	f.Update(in)
	_, err := client.UpdateItem(t.Context(), in)
	if failed := (*types.ConditionalCheckFailedException)(nil); !errors.As(err, &failed) || f.IsStale(err) {
		t.Errorf("a condition of the write's own: %v, stale %v", err, f.IsStale(err))
	}
}

var errStale = errors.New("stale")

func stale(f Fence, err error) error {
	if f.IsStale(err) {
		return errStale
	}
	return err
}

func TestFM2_GuardMoto(t *testing.T) { testGuard(t, moto(t)) }

// TestGuardExpressions: the assignment joins the SET clause wherever that is.
func TestGuardExpressions(t *testing.T) {
	f := Guard("fence", 1)
	for in, want := range map[string]string{
		"":                          "SET " + f.Set,
		"SET a = :a":                "SET " + f.Set + ", a = :a",
		"REMOVE b Set a = :set":     "REMOVE b Set " + f.Set + ", a = :set",
		"REMOVE offset, #set, sets": "SET " + f.Set + " REMOVE offset, #set, sets",
		"ADD n :one\nset\ta=:a":     "ADD n :one\nset " + f.Set + ",\ta=:a",
		"DELETE my_set :set":        "SET " + f.Set + " DELETE my_set :set",
	} {
		if got := aws.ToString(f.assign(&in)); got != want {
			t.Errorf("%q became %q, wanted %q", in, got, want)
		}
	}
	names := map[string]string{"#a": "a"}
	in := &awsdynamodb.UpdateItemInput{ExpressionAttributeNames: names, ConditionExpression: aws.String("a = :a OR b = :b")}
	f.Update(in)
	if len(names) != 1 || aws.ToString(in.ConditionExpression) != "(a = :a OR b = :b) AND "+f.Condition {
		t.Errorf("the caller's map has %v, the condition is %q", names, aws.ToString(in.ConditionExpression))
	}
	for _, v := range []types.AttributeValue{text("9"), number(2), &types.AttributeValueMemberN{Value: "1.5"}} {
		if !f.newer(attrs{"fence": v}) {
			t.Errorf("%v lets token 1 through", v)
		}
	}
}

func TestFM2_Guard(t *testing.T) { testGuard(t, bareFake()) }
