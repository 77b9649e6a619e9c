package fakedynamodb

import (
	"maps"
	"slices"
)

// Limits of batches.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
const (
	maxBatchGet   = 100
	maxBatchBytes = 16 << 20
	maxBatchWrite = 25
)

type keysOfTable struct {
	Keys                     []item
	ConsistentRead           bool              `json:",omitempty"`
	ProjectionExpression     *string           `json:",omitempty"`
	ExpressionAttributeNames map[string]string `json:",omitempty"`
}

type batchGetInput struct {
	RequestItems           map[string]keysOfTable
	ReturnConsumedCapacity string
}

func (r *request) batchGet(in batchGetInput) (any, error) {
	if err := consumption(in.ReturnConsumedCapacity); err != nil {
		return nil, err
	}
	total := 0
	for name, k := range in.RequestItems {
		total += len(k.Keys)
		if len(k.Keys) == 0 {
			return nil, invalid(
				"1 validation error detected: Value '[]' at 'requestItems.%s.member.keys' failed to satisfy constraint: Member must have length greater than or equal to 1", name)
		}
	}
	if total > maxBatchGet {
		return nil, invalid("Too many items requested for the BatchGetItem call")
	}
	if total == 0 {
		return nil, missing("requestItems")
	}
	responses, left, size := map[string][]item{}, map[string]keysOfTable{}, 0
	for _, name := range slices.Sorted(maps.Keys(in.RequestItems)) {
		k := in.RequestItems[name]
		t, places, paths, err := r.batchKeys(name, k)
		if err != nil {
			return nil, err
		}
		responses[name] = []item{}
		for i, at := range places {
			it := r.read(t, at, k.ConsistentRead)
			if size+it.size() > maxBatchBytes {
				rest := k
				rest.Keys = k.Keys[i:]
				left[name] = rest
				break
			}
			size += it.size()
			if it != nil {
				responses[name] = append(responses[name], shown(it, paths))
			}
			r.use(name, Units{Read: readUnits(it.size(), k.ConsistentRead)})
		}
	}
	out := map[string]any{"Responses": responses, "UnprocessedKeys": left}
	r.consumedAll(out, in.ReturnConsumedCapacity, false)
	return out, nil
}

// batchKeys parses the keys of one table.
func (r *request) batchKeys(name string, k keysOfTable) (*table, []place, []path, error) {
	t, err := r.table(name)
	if err != nil {
		return nil, nil, nil, err
	}
	b, err := bind(k.ExpressionAttributeNames, nil, k.ProjectionExpression != nil)
	if err != nil {
		return nil, nil, nil, err
	}
	paths, err := projection(k.ProjectionExpression, b)
	if err == nil {
		err = b.unused()
	}
	if err != nil {
		return nil, nil, nil, err
	}
	var places []place
	for _, key := range k.Keys {
		at, err := t.key(key)
		if err != nil {
			return nil, nil, nil, err
		}
		if slices.ContainsFunc(places, func(p place) bool { return p.cmp(at) == 0 }) {
			return nil, nil, nil, invalid("Provided list of item keys contains duplicates")
		}
		places = append(places, at)
	}
	return t, places, paths, nil
}

type batchWriteInput struct {
	RequestItems map[string][]struct {
		PutRequest    *struct{ Item item }
		DeleteRequest *struct{ Key item }
	}
	ReturnConsumedCapacity      string
	ReturnItemCollectionMetrics string
}

// batchWrite carries out writes without conditions, each by itself. It leaves none unprocessed: faults of the transport do
// that.
func (r *request) batchWrite(in batchWriteInput) (any, error) {
	if err := consumption(in.ReturnConsumedCapacity); err != nil {
		return nil, err
	}
	var all []*action
	for _, name := range slices.Sorted(maps.Keys(in.RequestItems)) {
		for _, one := range in.RequestItems[name] {
			verb, w := "Put", writeInput{TableName: name}
			switch {
			case (one.PutRequest == nil) == (one.DeleteRequest == nil):
				return nil, invalid(
					"Supplied AttributeValue has more than one datatypes set, must contain exactly one of PutRequest and DeleteRequest")
			case one.PutRequest != nil:
				w.Item = one.PutRequest.Item
			default:
				verb, w.Key = "Delete", one.DeleteRequest.Key
			}
			a, err := r.prepare(verb, w)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(all, func(b *action) bool { return a.t == b.t && a.at.cmp(b.at) == 0 }) {
				return nil, invalid("Provided list of item keys contains duplicates")
			}
			all = append(all, a)
		}
	}
	if len(all) > maxBatchWrite {
		return nil, invalid("Too many items requested for the BatchWriteItem call")
	}
	if len(all) == 0 {
		return nil, missing("requestItems")
	}
	for _, a := range all {
		if r.conflicts(a.t, a.key) {
			return nil, fault("TransactionConflictException", "Transaction is ongoing for the item")
		}
	}
	for _, a := range all {
		before := a.t.get(a.at)
		a.t.put(a.at, a.in.Item, r.now)
		r.use(a.t.name, Units{Write: writeUnits(before, a.in.Item)})
	}
	out := map[string]any{"UnprocessedItems": map[string]any{}}
	r.consumedAll(out, in.ReturnConsumedCapacity, false)
	return out, nil
}
