package dynamodb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Writes are effects as data: writes of items that commit with the record in one transaction (mode A2). A handler that
// [github.com/semel-dev/semel.InTx] makes gets a buffer of them:
//
//	semel.InTx(func(ctx context.Context, w *dynamodb.Writes, a *semel.Attempt) error { ... })
//
// If one of their conditions fails, the attempt fails and nothing of it is written. A transaction takes 100 items, one of
// them the record (two with Options.Gate), 4 MB in all, and at most one write of each item. Writes beyond these limits are
// refused before they are sent. The items may be in any table of the account and region, but not the records themselves.
type Writes struct{ list []types.TransactWriteItem }

// Put queues a put.
func (w *Writes) Put(p types.Put) { w.list = append(w.list, types.TransactWriteItem{Put: &p}) }

// Update queues an update.
func (w *Writes) Update(u types.Update) { w.list = append(w.list, types.TransactWriteItem{Update: &u}) }

// Delete queues a deletion.
func (w *Writes) Delete(d types.Delete) { w.list = append(w.list, types.TransactWriteItem{Delete: &d}) }

// Check queues a condition on an item that is not written.
func (w *Writes) Check(c types.ConditionCheck) {
	w.list = append(w.list, types.TransactWriteItem{ConditionCheck: &c})
}

// Create queues a put of an item that must not exist yet. key names an attribute of the table's primary key.
func (w *Writes) Create(table, key string, item map[string]types.AttributeValue) {
	w.Put(types.Put{
		TableName: &table, Item: item, ConditionExpression: aws.String("attribute_not_exists(#key)"),
		ExpressionAttributeNames: map[string]string{"#key": key},
	})
}

// Add queues an addition to a number of an item (a counter, a balance). The item is created if it does not exist.
func (w *Writes) Add(table string, key map[string]types.AttributeValue, attr string, n int64) {
	w.Update(types.Update{
		TableName: &table, Key: key, UpdateExpression: aws.String("ADD #attr :n"),
		ExpressionAttributeNames: map[string]string{"#attr": attr}, ExpressionAttributeValues: attrs{":n": number(n)},
	})
}

// Len returns the number of queued writes.
func (w *Writes) Len() int { return len(w.list) }

// Limits of a transaction.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-dynamodb-transactions
const (
	maxItems = 100
	maxBytes = 4 << 20
)

// target is the item of a write.
type target struct {
	table string
	key   attrs // nil for a put: only its table knows which attributes are the key
	item  attrs
	bytes int
}

// targetOf reads a write.
func targetOf(w *types.TransactWriteItem) (t target, err error) {
	values := attrs(nil)
	switch {
	case w.Put != nil:
		t.table, t.item, values = aws.ToString(w.Put.TableName), w.Put.Item, w.Put.ExpressionAttributeValues
	case w.Update != nil:
		t.table, t.key, values = aws.ToString(w.Update.TableName), w.Update.Key, w.Update.ExpressionAttributeValues
	case w.Delete != nil:
		t.table, t.key, values = aws.ToString(w.Delete.TableName), w.Delete.Key, w.Delete.ExpressionAttributeValues
	case w.ConditionCheck != nil:
		t.table, t.key = aws.ToString(w.ConditionCheck.TableName), w.ConditionCheck.Key
		values = w.ConditionCheck.ExpressionAttributeValues
	}
	if t.table == "" {
		return t, errors.New("it names no table")
	}
	if i := strings.LastIndex(t.table, ":table/"); i >= 0 {
		t.table = t.table[i+len(":table/"):] // an ARN
	}
	if len(t.key) == 0 && len(t.item) == 0 {
		return t, errors.New("it has no key")
	}
	t.bytes = itemSize(t.key) + itemSize(t.item) + itemSize(values)
	return t, nil
}

// same reports that two writes are for one item, as far as that is known without the descriptions of the tables.
func (t *target) same(o *target) bool {
	switch {
	case t.table != o.table:
		return false
	case t.key != nil && o.key != nil:
		return maps.EqualFunc(t.key, o.key, same)
	case t.key != nil:
		return within(t.key, o.item)
	case o.key != nil:
		return within(o.key, t.item)
	}
	return false
}

func within(key, item attrs) bool {
	for name, v := range key {
		if !same(v, item[name]) {
			return false
		}
	}
	return true
}

// checkWrites refuses writes that no transaction accepts, before anything is sent.
func (s *Store) checkWrites(list []types.TransactWriteItem) (targets []target, err error) {
	room := maxItems - 1
	if s.o.Gate != "" {
		room--
	}
	if len(list) > room {
		return nil, fmt.Errorf("%d writes for one message: a transaction takes %d besides the record; split the work, or write "+
			"less in the transaction", len(list), room)
	}
	total := 0
	for i := range list {
		t, err := targetOf(&list[i])
		if err == nil {
			err = s.foreignItem(&t)
		}
		if err != nil {
			return nil, fmt.Errorf("write %d: %w", i+1, err)
		}
		if j := slices.IndexFunc(targets, func(o target) bool { return t.same(&o) }); j >= 0 {
			return nil, fmt.Errorf("writes %d and %d are for the same item of table %q, and a transaction takes one write of an item: "+
				"combine them", j+1, i+1, t.table)
		}
		total += t.bytes
		targets = append(targets, t)
	}
	if total > maxBytes-(512<<10) {
		return nil, fmt.Errorf("writes of %d bytes for one message: a transaction takes 4 MB in all, the record included; write "+
			"large contents before, outside of the transaction", total)
	}
	return targets, nil
}

// foreignItem refuses writes to semel's own items.
func (s *Store) foreignItem(t *target) error {
	if s.o.Gate != "" && t.table == s.o.Gate {
		return fmt.Errorf("table %q is the gate, which only semel writes: use another table", t.table)
	}
	if t.table != s.table {
		return nil
	}
	key := t.key
	if key == nil {
		key = t.item
	}
	partition, _ := asText(key[s.shape.pk])
	sort, _ := asText(key[s.shape.sk])
	if s.shape.sk != "" && sort != s.shape.sortValue && !strings.HasPrefix(partition, hashMark) && !strings.HasPrefix(partition, ownMark) {
		return nil
	}
	return fmt.Errorf("item %q of table %q is a record, which only semel writes: use another table or another sort key", partition, t.table)
}
