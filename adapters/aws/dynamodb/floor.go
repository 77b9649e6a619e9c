package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// floor is the number above which tokens are drawn. The tokens of a key must grow forever (I3), even after the record with
// the last one is gone. They start at the microseconds of the clock. Three things keep them growing where clocks do not:
//
//   - A process never draws a token below what its own clock has shown before.
//   - A sweep removes only records whose tokens every clock within MaxClockSkew has passed.
//   - Before that it raises the floor in the table, which every process reads when it opens the table.
type floor struct {
	mu   sync.Mutex
	high uint64
}

// drawn returns the next number of the token sequence. DecideClaim uses it if it is above the record's token.
func (s *Store) drawn() uint64 {
	now := uint64(max(0, s.o.Clock().UnixMicro()))
	s.floor.mu.Lock()
	defer s.floor.mu.Unlock()
	s.floor.high = max(s.floor.high, now)
	return s.floor.high + 1
}

func (f *floor) raise(to uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.high = max(f.high, to)
}

// floorKey is the key of the item with the floor. Its only attribute is "floor".
func (s *Store) floorKey() attrs { return s.shape.keyAt(ownMark + "floor") }

const floorAttr = "floor"

// readFloor reads the stored floor.
func (s *Store) readFloor(ctx context.Context) error {
	item, err := s.get(ctx, s.floorKey())
	if err != nil || item[floorAttr] == nil {
		return err
	}
	n, err := asUint(item[floorAttr])
	if err != nil {
		return fmt.Errorf("read attribute %s of item %q: %w", floorAttr, ownMark+"floor", err)
	}
	s.floor.raise(n)
	return nil
}

// raiseFloor stores a floor, unless a higher one is stored. A sweep calls it before it removes records, with their greatest
// token.
func (s *Store) raiseFloor(ctx context.Context, to uint64) error {
	s.floor.raise(to)
	r := s.repeater()
	is, err := r.do(ctx, func(ctx context.Context) error {
		out, err := s.client.UpdateItem(ctx, &awsdynamodb.UpdateItemInput{
			TableName: &s.table, Key: s.floorKey(),
			UpdateExpression:          aws.String("SET #f = :to"),
			ConditionExpression:       aws.String("attribute_not_exists(#f) OR #f < :to"),
			ExpressionAttributeNames:  map[string]string{"#f": floorAttr},
			ExpressionAttributeValues: attrs{":to": number(to)},
			ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
		}, once)
		if err == nil {
			s.meter.wrote(capacity(out.ConsumedCapacity)...)
		}
		return err
	})
	var failed *types.ConditionalCheckFailedException
	if is == condition && errors.As(err, &failed) {
		s.meter.failedWrite(nil)
		return nil
	}
	return explain(err, "UpdateItem", s.table)
}
