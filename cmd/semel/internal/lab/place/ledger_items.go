package place

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
)

// itemLedger is the ledger as a table of DynamoDB: an item for each charge. Its id is drawn, or made from the effect key.
type itemLedger struct {
	client *awsdynamodb.Client
	table  string
}

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number[N int | int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func itemOf(e Effect, id string) item {
	return item{
		"id": text(id), "order_id": text(e.Key), "amount": number(e.Amount), "version": number(e.Version),
		"message_id": text(e.Message), "attempt": number(e.Attempt), "worker": number(e.Worker), "life": number(e.Life),
		"pid": number(e.PID), "at": number(e.At.UnixMicro()),
	}
}

func effectOf(i item) (e Effect, err error) {
	word := func(name string) string {
		v, ok := i[name].(*types.AttributeValueMemberS)
		if !ok {
			err = errors.Join(err, fmt.Errorf("%s is missing", name))
			return ""
		}
		return v.Value
	}
	count := func(name string) int64 {
		v, ok := i[name].(*types.AttributeValueMemberN)
		if !ok {
			err = errors.Join(err, fmt.Errorf("%s is missing", name))
			return 0
		}
		n, bad := strconv.ParseInt(v.Value, 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	e = Effect{
		Key: word("order_id"), Message: word("message_id"), Amount: count("amount"), Version: int(count("version")),
		Attempt: int(count("attempt")), Worker: int(count("worker")), Life: int(count("life")), PID: int(count("pid")),
		At: time.UnixMicro(count("at")),
	}
	return e, err
}

// fresh is a condition: the item is not there.
const fresh = "attribute_not_exists(id)"

// refused reports that a condition did not hold.
func refused(err error) bool {
	c := (*types.ConditionalCheckFailedException)(nil)
	return errors.As(err, &c)
}

// Effects sorts by the clock that all workers of a run share: effects of one key are never made at the same time with the
// guard on, and without it their order is that in which their handlers called the service.
func (l itemLedger) Effects(ctx context.Context) (out []Effect, err error) {
	pages := awsdynamodb.NewScanPaginator(l.client, &awsdynamodb.ScanInput{TableName: &l.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		for _, i := range page.Items {
			e, err := effectOf(i)
			if err != nil {
				return nil, fmt.Errorf("read the ledger: %w", err)
			}
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Effect) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Key, b.Key))
	})
	for i := range out {
		out[i].ID = int64(i + 1)
	}
	return out, nil
}

func (l itemLedger) CountEffects(ctx context.Context) (n int, err error) {
	pages := awsdynamodb.NewScanPaginator(l.client, &awsdynamodb.ScanInput{
		TableName: &l.table, ConsistentRead: aws.Bool(true), Select: types.SelectCount,
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, fmt.Errorf("count the ledger: %w", err)
		}
		n += int(page.Count)
	}
	return n, nil
}

func (l itemLedger) AddEffect(ctx context.Context, e Effect, effectKey string) error {
	in := &awsdynamodb.PutItemInput{TableName: &l.table, Item: itemOf(e, "drawn#"+rand.Text())}
	if effectKey != "" {
		in.Item, in.ConditionExpression = itemOf(e, "key#"+effectKey), aws.String(fresh)
	}
	if _, err := l.client.PutItem(ctx, in); err != nil && !refused(err) {
		return fmt.Errorf("apply %s: %w", e.Key, err)
	}
	return nil
}

func (l itemLedger) InTx(work func(context.Context, *semel.Attempt) (Effect, error)) semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *dynamodb.Writes, a *semel.Attempt) error {
		e, err := work(ctx, a)
		if err != nil {
			return err
		}
		tx.Create(l.table, "id", itemOf(e, "drawn#"+rand.Text()))
		return nil
	})
}
