package place

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// itemMarks are the marks as a table of DynamoDB.
type itemMarks struct {
	client *awsdynamodb.Client
	table  string
}

// Get is an eventually consistent read, as it is by default and in the programs that the designs are taken from.
func (m itemMarks) Get(ctx context.Context, id string) (string, error) {
	out, err := m.client.GetItem(ctx, &awsdynamodb.GetItemInput{TableName: &m.table, Key: item{"id": text(id)}})
	if err != nil {
		return "", fmt.Errorf("read the mark of %s: %w", id, err)
	}
	if v, ok := out.Item["status"].(*types.AttributeValueMemberS); ok {
		return v.Value, nil
	}
	return "", nil
}

func (m itemMarks) Add(ctx context.Context, id, status string) (bool, error) {
	return m.put(ctx, id, status, fresh, 0)
}

func (m itemMarks) Put(ctx context.Context, id, status string) error {
	_, err := m.put(ctx, id, status, "", 0)
	return err
}

func (m itemMarks) Take(ctx context.Context, id, status string, ttl time.Duration) (bool, error) {
	return m.put(ctx, id, status, fresh+" OR #at < :old", ttl)
}

func (m itemMarks) Delete(ctx context.Context, id string) error {
	if _, err := m.client.DeleteItem(ctx, &awsdynamodb.DeleteItemInput{TableName: &m.table, Key: item{"id": text(id)}}); err != nil {
		return fmt.Errorf("mark %s: %w", id, err)
	}
	return nil
}

// put returns false if the condition does not hold.
func (m itemMarks) put(ctx context.Context, id, status, condition string, ttl time.Duration) (bool, error) {
	now := time.Now()
	in := &awsdynamodb.PutItemInput{
		TableName: &m.table, Item: item{"id": text(id), "status": text(status), "at": number(now.UnixMicro())},
	}
	if condition != "" {
		in.ConditionExpression = aws.String(condition)
	}
	if ttl > 0 {
		in.ExpressionAttributeNames = map[string]string{"#at": "at"}
		in.ExpressionAttributeValues = item{":old": number(now.Add(-ttl).UnixMicro())}
	}
	_, err := m.client.PutItem(ctx, in)
	if refused(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("mark %s: %w", id, err)
	}
	return true, nil
}
