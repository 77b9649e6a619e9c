package awstest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
)

// This file holds parts of batches back, and returns stale reads.

// object is a JSON object whose members are passed on as they are.
type object map[string]json.RawMessage

func (o object) list(member string) (l []json.RawMessage) {
	_ = json.Unmarshal(o[member], &l) // anything but a list has no items
	return l
}

// partial holds a part of a batch back.
func (c *call) partial(ctx context.Context) (*reply, error) {
	var in object
	if json.Unmarshal(c.body, &in) != nil {
		return c.read(ctx)
	}
	switch c.op {
	case "BatchGetItem":
		return c.unprocessed(ctx, in, "UnprocessedKeys", "Responses")
	case "BatchWriteItem":
		return c.unprocessed(ctx, in, "UnprocessedItems", "")
	case "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch":
		return c.failedEntries(ctx, in)
	}
	return c.read(ctx)
}

// split divides items into sent and held ones. Of two or more items at least one is held.
func split(r *rand.Rand, all []json.RawMessage) (sent, held []json.RawMessage) {
	for _, x := range all {
		if r.IntN(2) == 0 {
			held = append(held, x)
		} else {
			sent = append(sent, x)
		}
	}
	if len(held) == 0 && len(all) > 1 {
		return all[1:], all[:1]
	}
	return sent, held
}

// unprocessed holds back items of a DynamoDB batch. At least one is processed: if none can be, the service throttles the
// whole batch.
func (c *call) unprocessed(ctx context.Context, in object, member, responses string) (*reply, error) {
	var tables object
	_ = json.Unmarshal(in["RequestItems"], &tables)
	sent, held := object{}, object{}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		s, h := split(c.fate.random, itemsOf(tables[name]))
		if len(sent) == 0 && len(s) == 0 && len(h) > 0 {
			s, h = h[:1], h[1:]
		}
		if len(s) > 0 {
			sent[name] = withItems(tables[name], s)
		}
		if len(h) > 0 {
			held[name] = withItems(tables[name], h)
		}
	}
	if len(held) == 0 {
		return c.read(ctx)
	}
	in["RequestItems"] = encode(sent)
	return c.amend(ctx, in, func(out object) {
		var also object // items that the service did not process either
		_ = json.Unmarshal(out[member], &also)
		for name, table := range also {
			held[name] = withItems(table, append(itemsOf(table), itemsOf(held[name])...))
		}
		out[member] = encode(held)
		if responses != "" && out[responses] == nil {
			out[responses] = json.RawMessage("{}")
		}
	})
}

// itemsOf are the items of one table in a batch: the Keys of a read, or the list of a write.
func itemsOf(table json.RawMessage) (items []json.RawMessage) {
	var read object
	if json.Unmarshal(table, &read) == nil {
		return read.list("Keys")
	}
	_ = json.Unmarshal(table, &items)
	return items
}

func withItems(table json.RawMessage, items []json.RawMessage) json.RawMessage {
	var read object
	if json.Unmarshal(table, &read) != nil {
		return encode(items)
	}
	read["Keys"] = encode(items)
	return encode(read)
}

// failedEntries reports entries of an SQS batch as failed. If the fate is done, they are carried out nevertheless: the
// service did it but could not report it.
func (c *call) failedEntries(ctx context.Context, in object) (*reply, error) {
	sent, held := split(c.fate.random, in.list("Entries"))
	if len(held) == 0 {
		held, sent = sent, nil // the only one
	}
	if len(held) == 0 {
		return c.read(ctx)
	}
	failed, ids := []json.RawMessage{}, map[string]bool{}
	for _, e := range held {
		id := entryID(e)
		ids[id] = true
		failed = append(failed, encode(map[string]any{
			"Id": id, "SenderFault": false, "Code": "InternalError", "Message": "injected fault",
		}))
	}
	change := func(out object) {
		kept := []json.RawMessage{}
		for _, e := range out.list("Successful") {
			if !ids[entryID(e)] {
				kept = append(kept, e)
			}
		}
		for _, e := range out.list("Failed") {
			if !ids[entryID(e)] {
				failed = append(failed, e)
			}
		}
		out["Successful"], out["Failed"] = encode(kept), encode(failed)
	}
	if len(sent) == 0 && !c.fate.done {
		c.f.count(Partial)
		out := object{}
		change(out)
		return c.made(http.StatusOK, encode(out)), nil
	}
	if !c.fate.done {
		in["Entries"] = encode(sent)
	}
	return c.amend(ctx, in, change)
}

func entryID(entry json.RawMessage) string {
	var o struct {
		ID string `json:"Id"`
	}
	_ = json.Unmarshal(entry, &o)
	return o.ID
}

// amend sends the part of a batch that is not held back, and adds the rest to the response.
func (c *call) amend(ctx context.Context, in object, change func(out object)) (*reply, error) {
	a, err := c.send(ctx, encode(in))
	if err != nil || a.status != http.StatusOK {
		return a, err
	}
	var out object
	if err := json.Unmarshal(a.body, &out); err != nil {
		return nil, fmt.Errorf("read the response of %s: %w", c.op, err)
	}
	c.f.count(Partial)
	change(out)
	a.body = encode(out)
	a.head.Del("Content-Length")
	c.seal(a)
	return a, nil
}

// read sends an unchanged request. It remembers responses of GetItem, to return them again for stale reads.
func (c *call) read(ctx context.Context) (*reply, error) {
	if c.op != "GetItem" {
		return c.send(ctx, c.body)
	}
	var in struct {
		TableName, ProjectionExpression string
		Key                             map[string]any
		ExpressionAttributeNames        map[string]string
		ConsistentRead                  bool
	}
	if json.Unmarshal(c.body, &in) != nil {
		return c.send(ctx, c.body)
	}
	key := string(encode([]any{in.TableName, in.Key, in.ProjectionExpression, in.ExpressionAttributeNames}))
	c.f.mu.Lock()
	before := c.f.seen[key]
	c.f.mu.Unlock()
	if c.fate.kind == Stale && !in.ConsistentRead {
		c.f.count(Stale)
		if before == nil {
			before = c.made(http.StatusOK, []byte("{}"))
		}
		return before, nil
	}
	a, err := c.send(ctx, c.body)
	if err == nil && a.status == http.StatusOK {
		c.f.mu.Lock()
		c.f.seen[key] = a
		c.f.mu.Unlock()
	}
	return a, err
}
