package dynamodb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// The report of a worker is an item in the partition "semel#workers". Its sort key is the worker's ID. It has a time to live.
const workersPartition = ownMark + "workers"

// reportAttr is the attribute with a report, after the prefix.
const reportAttr = "report"

// workerKey is the key of a worker's report.
func (s *Store) workerKey(id string) (attrs, error) {
	if s.shape.sk == "" {
		return nil, fmt.Errorf("table %q has no sort key, which reports of workers need: %w", s.table, driver.ErrUnsupported)
	}
	key := s.shape.keyAt(workersPartition)
	key[s.shape.sk] = text(safeName(id))
	return key, nil
}

// ReportWorker stores a report in place of the worker's earlier one, which costs one write. See [driver.WorkerLog].
func (s *Store) ReportWorker(ctx context.Context, r driver.WorkerReport) error {
	key, err := s.workerKey(r.ID)
	if err != nil {
		return fmt.Errorf("report worker: %w", err)
	}
	b, err := json.Marshal(&r)
	if err != nil {
		return fmt.Errorf("report worker: %w", err)
	}
	again := s.repeater()
	if _, err = again.do(ctx, func(ctx context.Context) error {
		out, err := s.client.UpdateItem(ctx, &awsdynamodb.UpdateItemInput{
			TableName: &s.table, Key: key, UpdateExpression: aws.String("SET #report = :report, #ttl = :ttl"),
			ExpressionAttributeNames: map[string]string{"#report": s.shape.prefix + reportAttr, "#ttl": s.shape.ttl},
			ExpressionAttributeValues: attrs{
				":report": text(string(b)), ":ttl": number(r.Seen.Add(driver.WorkerKept + time.Second - 1).Unix()),
			},
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.wrote(capacity(out.ConsumedCapacity)...)
		}
		return err
	}); err != nil {
		return fmt.Errorf("report worker: %w", explain(err, "UpdateItem", s.table))
	}
	return nil
}

// ForgetWorker removes the report of a worker that has ended. See [driver.WorkerLog].
func (s *Store) ForgetWorker(ctx context.Context, id string) error {
	key, err := s.workerKey(id)
	if err != nil {
		return fmt.Errorf("forget worker: %w", err)
	}
	again := s.repeater()
	if _, err = again.do(ctx, func(ctx context.Context) error {
		out, err := s.client.DeleteItem(ctx, &awsdynamodb.DeleteItemInput{
			TableName: &s.table, Key: key, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.wrote(capacity(out.ConsumedCapacity)...)
		}
		return err
	}); err != nil {
		return fmt.Errorf("forget worker: %w", explain(err, "DeleteItem", s.table))
	}
	return nil
}

// Workers returns all reports but those that the time to live is about to remove. See [driver.WorkerLog].
func (s *Store) Workers(ctx context.Context) (all []driver.WorkerReport, err error) {
	if _, err := s.workerKey(""); err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	var latest time.Time
	for from := attrs(nil); ; {
		var out *awsdynamodb.QueryOutput
		again := s.repeater()
		if _, err := again.do(ctx, func(ctx context.Context) (err error) {
			if out, err = s.client.Query(ctx, &awsdynamodb.QueryInput{
				TableName: &s.table, ConsistentRead: aws.Bool(true), ExclusiveStartKey: from, KeyConditionExpression: aws.String("#pk = :pk"),
				ExpressionAttributeNames:  map[string]string{"#pk": s.shape.pk},
				ExpressionAttributeValues: attrs{":pk": text(workersPartition)},
				ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
			}, once); err == nil {
				s.meter.read(capacity(out.ConsumedCapacity)...)
			}
			return err
		}); err != nil {
			return nil, fmt.Errorf("list workers: %w", explain(err, "Query", s.table))
		}
		for _, item := range out.Items {
			var r driver.WorkerReport
			if err := json.Unmarshal([]byte(plain(item[s.shape.prefix+reportAttr])), &r); err != nil {
				return nil, fmt.Errorf("list workers: %w: report of worker %q: %w", driver.ErrUnreadable, plain(item[s.shape.sk]), err)
			}
			all = append(all, r)
			if r.Seen.After(latest) {
				latest = r.Seen
			}
		}
		if from = out.LastEvaluatedKey; len(from) == 0 {
			break
		}
	}
	all = slices.DeleteFunc(all, func(r driver.WorkerReport) bool { return r.Seen.Before(latest.Add(-driver.WorkerKept)) })
	slices.SortFunc(all, driver.CompareWorkers)
	return all, nil
}
