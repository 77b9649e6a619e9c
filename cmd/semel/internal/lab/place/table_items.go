package place

import (
	"context"
	"errors"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
)

// itemTable is a table of DynamoDB.
type itemTable struct {
	client *awsdynamodb.Client
	name   string
}

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func (r row) item() item { return item{"id": text(r.id), "body": text(r.text), "at": number(r.at)} }

func bodyOf(i item) string {
	v, _ := i["body"].(*types.AttributeValueMemberS)
	if v == nil {
		return ""
	}
	return v.Value
}

func (t itemTable) put(ctx context.Context, r row, until int64) (bool, error) {
	_, err := t.client.PutItem(ctx, &awsdynamodb.PutItemInput{
		TableName: &t.name, Item: r.item(), ConditionExpression: aws.String("attribute_not_exists(id) OR #at <= :until"),
		ExpressionAttributeNames: map[string]string{"#at": "at"}, ExpressionAttributeValues: item{":until": number(until)},
	})
	if refused := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &refused) {
		return false, nil
	}
	return err == nil, err
}

// get is an eventually consistent read, as it is by default and in the programs that the designs are taken from.
func (t itemTable) get(ctx context.Context, id string) (string, error) {
	out, err := t.client.GetItem(ctx, &awsdynamodb.GetItemInput{TableName: &t.name, Key: item{"id": text(id)}})
	if err != nil {
		return "", err
	}
	return bodyOf(out.Item), nil
}

func (t itemTable) remove(ctx context.Context, id string) error {
	_, err := t.client.DeleteItem(ctx, &awsdynamodb.DeleteItemInput{TableName: &t.name, Key: item{"id": text(id)}})
	return err
}

func (t itemTable) all(ctx context.Context) (out []string, err error) {
	err = t.scan(ctx, "", func(page *awsdynamodb.ScanOutput) {
		for _, i := range page.Items {
			out = append(out, bodyOf(i))
		}
	})
	return out, err
}

func (t itemTable) count(ctx context.Context) (n int, err error) {
	err = t.scan(ctx, types.SelectCount, func(page *awsdynamodb.ScanOutput) { n += int(page.Count) })
	return n, err
}

func (t itemTable) scan(ctx context.Context, what types.Select, each func(*awsdynamodb.ScanOutput)) error {
	pages := awsdynamodb.NewScanPaginator(t.client, &awsdynamodb.ScanInput{TableName: &t.name, ConsistentRead: aws.Bool(true), Select: what})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		each(page)
	}
	return nil
}

func (t itemTable) handler(work func(context.Context, *semel.Attempt) (row, error)) semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *dynamodb.Writes, a *semel.Attempt) error {
		r, err := work(ctx, a)
		if err != nil {
			return err
		}
		tx.Create(t.name, "id", r.item())
		return nil
	})
}
