package dynamodb

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// get reads the current item of a key, consistently; nil if there is none.
func (s *Store) get(ctx context.Context, key attrs) (item attrs, err error) {
	r := s.repeater()
	_, err = r.do(ctx, func(ctx context.Context) error {
		out, err := s.client.GetItem(ctx, &awsdynamodb.GetItemInput{
			TableName: &s.table, Key: key, ConsistentRead: aws.Bool(true), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.read(capacity(out.ConsumedCapacity)...)
			item = out.Item
		}
		return err
	})
	return item, err
}

// batchGet is the maximum number of items that one request reads.
const batchGet = 100

// load reads the current rows of keys, consistently. Keys that could not be read are missing, and the error says why. A row
// that cannot be decoded has an error in bad.
func (s *Store) load(ctx context.Context, keys []driver.Key) (rows map[driver.Key]row, bad map[driver.Key]error, err error) {
	rows, bad = make(map[driver.Key]row, len(keys)), map[driver.Key]error{}
	byPartition := map[string][]driver.Key{}
	var todo []string
	for _, k := range keys {
		p := s.shape.partition(k)
		if byPartition[p] == nil {
			todo = append(todo, p)
		}
		byPartition[p] = append(byPartition[p], k)
	}
	for ; len(todo) > 0; todo = todo[min(batchGet, len(todo)):] {
		part := todo[:min(batchGet, len(todo))]
		items, e := s.getMany(ctx, part)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		for _, p := range part {
			for _, k := range byPartition[p] {
				r, e := s.shape.decode(k, items[p])
				if e != nil {
					bad[k] = e
					continue
				}
				s.seen.saw(s, &r)
				rows[k] = r
			}
		}
	}
	return rows, bad, err
}

// getMany reads up to batchGet items by their partition keys. It asks again for the items that the service left out for lack
// of capacity.
func (s *Store) getMany(ctx context.Context, partitions []string) (map[string]attrs, error) {
	items := make(map[string]attrs, len(partitions))
	if len(partitions) == 1 {
		item, err := s.get(ctx, s.shape.keyAt(partitions[0]))
		items[partitions[0]] = item
		return items, err
	}
	want := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for _, p := range partitions {
		want.Keys = append(want.Keys, s.shape.keyAt(p))
	}
	r := s.repeater()
	for len(want.Keys) > 0 {
		var left []map[string]types.AttributeValue
		_, err := r.do(ctx, func(ctx context.Context) error {
			out, err := s.client.BatchGetItem(ctx, &awsdynamodb.BatchGetItemInput{
				RequestItems:           map[string]types.KeysAndAttributes{s.table: want},
				ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
			}, once)
			if err != nil {
				return err
			}
			s.meter.read(out.ConsumedCapacity...)
			for _, found := range out.Responses {
				for _, item := range found {
					p, _ := asText(item[s.shape.pk])
					items[p] = item
				}
			}
			left = nil
			for _, u := range out.UnprocessedKeys {
				left = append(left, u.Keys...)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %d items: %w", len(partitions), explain(err, "BatchGetItem", s.table))
		}
		if want.Keys = left; len(left) > 0 {
			if err := r.wait(ctx); err != nil {
				return nil, fmt.Errorf("read %d items, of which %d were throttled: %w", len(partitions), len(left), err)
			}
		}
	}
	return items, nil
}
