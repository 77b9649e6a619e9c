package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// A pass ends with the table of Options.Gate. It removes the rows whose time to live has ended, as DynamoDB does where that
// is switched on.

// gateRow is a row of the gate whose time to live has ended.
type gateRow struct {
	partition string
	token     types.AttributeValue
}

// gatePage reads the next page of the gate, and keeps the rows to remove. Rows that semel did not write are left alone.
func (s *Store) gatePage(ctx context.Context) error {
	w, now := &s.sweeper, s.now()
	e := newExpression()
	ttl, token := e.name(s.shape.ttl), e.name("token")
	e.and(ttl + " < " + e.value(number(now.Unix())))
	e.and("attribute_exists(" + token + ")")
	e.and("attribute_exists(" + e.name("completed_at") + ")")
	pk := e.name(s.shape.gateKey)
	var out *awsdynamodb.ScanOutput
	var ahead time.Duration
	r := s.repeater()
	if _, err := r.do(ctx, func(ctx context.Context) (err error) {
		sent := s.o.Clock()
		out, err = s.client.Scan(ctx, &awsdynamodb.ScanInput{
			TableName: &s.o.Gate, ExclusiveStartKey: w.cursor, FilterExpression: e.condition(),
			ProjectionExpression:     aws.String(pk + ", " + token),
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.read(capacity(out.ConsumedCapacity)...)
			ahead = aheadOf(sent, out.ResultMetadata)
		}
		return err
	}); denied(err) { // a worker need not have this permission: then only the time to live cleans the gate
		w.cursor, w.end, w.gone = nil, true, nil
		return nil
	} else if err != nil {
		return explain(err, "Scan", s.o.Gate)
	}
	if ahead > s.o.skew() {
		w.running = false
		return s.aheadError(ahead)
	}
	w.cursor, w.end, w.gone = out.LastEvaluatedKey, len(out.LastEvaluatedKey) == 0, w.gone[:0]
	for _, item := range out.Items {
		if p, err := asText(item[s.shape.gateKey]); err == nil {
			w.gone = append(w.gone, gateRow{p, item["token"]})
		}
	}
	return nil
}

// dropGateRows removes rows of the gate, each only if it has not changed since it was read: a key that was completed again
// has another token.
func (s *Store) dropGateRows(ctx context.Context, rows []gateRow, sum *driver.Swept) error {
	var mu sync.Mutex
	var errs []error
	s.each(ctx, len(rows), func(i int, err error) {
		gone := false
		if err == nil {
			gone, err = s.dropGateRow(ctx, rows[i])
		}
		mu.Lock()
		defer mu.Unlock()
		if gone {
			sum.Purged++
		}
		if err != nil {
			errs = append(errs, err)
		}
	})
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d rows of the gate: %w", len(errs), len(rows), errs[0])
	}
	return nil
}

func (s *Store) dropGateRow(ctx context.Context, g gateRow) (bool, error) {
	e := newExpression()
	e.and(e.name("token") + " = " + e.value(g.token))
	rep := s.repeater()
	is, err := rep.do(ctx, func(ctx context.Context) error {
		out, err := s.client.DeleteItem(ctx, &awsdynamodb.DeleteItemInput{
			TableName: &s.o.Gate, Key: attrs{s.shape.gateKey: &types.AttributeValueMemberS{Value: g.partition}},
			ConditionExpression: e.condition(), ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.wrote(capacity(out.ConsumedCapacity)...)
		}
		return err
	})
	var failed *types.ConditionalCheckFailedException
	if is == condition && errors.As(err, &failed) {
		s.meter.failedWrite(failed.Item)
		return rep.maybe && len(failed.Item) == 0, nil // the earlier request was carried out, and its response lost
	}
	if err != nil {
		return false, fmt.Errorf("remove row %q: %w", g.partition, explain(err, "DeleteItem", s.o.Gate))
	}
	return true, nil
}

// sweepGate continues with the gate, until limit rows are removed or sweepPages pages were read, pages before included. over
// reports that the pass has ended.
func (s *Store) sweepGate(ctx context.Context, limit, pages int, sum *driver.Swept) (over, more bool, err error) {
	w := &s.sweeper
	for ; ; pages++ {
		for len(w.gone) > 0 {
			n := len(w.gone)
			if limit > 0 {
				n = min(n, limit-sum.Count())
			}
			if n == 0 {
				return false, true, nil
			}
			if err := s.dropGateRows(ctx, w.gone[:n], sum); err != nil {
				return false, false, err
			}
			w.gone = w.gone[n:]
		}
		if w.end {
			return true, false, nil
		}
		if s.o.SweepEvery >= 0 && pages >= sweepPages {
			return false, sum.Did(), nil
		}
		if err := s.gatePage(ctx); err != nil {
			return false, false, err
		}
	}
}

// left reports for how long the rows that a pass leaves have been due, beyond the time between two passes.
func (s *Store) left(sum *driver.Swept) {
	now := s.now().Add(-max(s.o.SweepEvery, 0))
	for i := range s.sweeper.todo {
		if r := &s.sweeper.todo[i]; !r.RetainUntil.IsZero() {
			sum.Overdue(now, r.RetainUntil)
		}
	}
}

func (s *Store) aheadError(ahead time.Duration) error {
	return fmt.Errorf("the clock of this machine is %v ahead of DynamoDB's, tolerated are %v: records would be purged while "+
		"their duplicates can still arrive, so none is; synchronise the clock (NTP)", ahead.Round(time.Second), s.o.skew())
}
