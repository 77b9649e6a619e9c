package dynamodb

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// A dead letter is two or more items in the partition of its queue ("semel#dead-letters#" and the name). They are written
// and deleted in one transaction:
//
//	sk = id#ID                 the key of the next item: makes the ID unique, and finds the dead letter by it
//	sk = dead-letter#TIME#ID   the dead letter, in the order of writing
//	sk = part#ID#N             the rest of a dead letter that does not fit into that item
//
// None of them has a time to live: dead letters stay until an operator deletes or redrives them.

const (
	// partSize is how much of a dead letter is in one item, which may have 400 KB.
	partSize = 320 << 10
	// maxDeadLetter keeps a dead letter within one transaction, which may have 4 MB.
	maxDeadLetter = 11 * partSize
	// maxDeadLetterReason bounds the reason of a dead letter.
	maxDeadLetterReason = 256 << 10
)

// DeadLetterClient is the part of *awsdynamodb.Client that a [DeadLetterQueue] uses.
type DeadLetterClient interface {
	GetItem(context.Context, *awsdynamodb.GetItemInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.GetItemOutput, error)
	Query(context.Context, *awsdynamodb.QueryInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.QueryOutput, error)
	TransactWriteItems(context.Context, *awsdynamodb.TransactWriteItemsInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.TransactWriteItemsOutput, error)
}

// DeadLetterQueue keeps dead letters in a table, which may be that of the records. Unlike a queue it keeps them forever, and
// finds each by its ID. All methods may be called concurrently.
type DeadLetterQueue struct {
	client DeadLetterClient
	table  string
	queue  string // the partition
	keys   layout
	now    func() time.Time
}

// DeadLetters returns a dead-letter queue in a table, for sqs.Options.DeadLetters. The table needs a sort key.
func DeadLetters(client DeadLetterClient, table, queue string, o Options) (*DeadLetterQueue, error) {
	sh, err := o.shape()
	if err != nil {
		return nil, fmt.Errorf("dead letters in table %q: %w", table, err)
	}
	if sh.sk == "" {
		return nil, fmt.Errorf("dead letters in table %q: the options name no sort key; dead letters need a table that has one", table)
	}
	return newDeadLetterQueue(client, table, queue, sh, o.clock()), nil
}

func newDeadLetterQueue(client DeadLetterClient, table, queue string, sh *shape, now func() time.Time) *DeadLetterQueue {
	return &DeadLetterQueue{client: client, table: table, queue: ownMark + "dead-letters#" + safeName(queue), keys: sh.table(), now: now}
}

// DeadLetterQueue returns the place for the dead letters of a queue in the table of the records; nil if that has no sort key.
// See [driver.DeadLetterStore].
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue {
	if s.shape.sk == "" {
		return nil
	}
	return newDeadLetterQueue(s.client, s.table, queue, s.shape, s.now)
}

// safeName returns a name as it can be part of an item's key: keys are UTF-8.
func safeName(name string) string {
	plain := len(name) > 0 && len(name) <= 200
	for i := range len(name) {
		b := name[i]
		plain = plain && (b == '-' || b == '_' || b == '.' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z')
	}
	if plain {
		return name
	}
	return "=" + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func (b *DeadLetterQueue) key(sk string) attrs {
	return attrs{b.keys.pk: &types.AttributeValueMemberS{Value: b.queue}, b.keys.sk: &types.AttributeValueMemberS{Value: sk}}
}

// attr returns the name of an attribute, with a prefix if a key of the table has that name.
func (b *DeadLetterQueue) attr(name string) string {
	if name == b.keys.pk || name == b.keys.sk {
		return "semel_" + name
	}
	return name
}

func partKey(id string, n int) string { return "part#" + safeName(id) + "#" + strconv.Itoa(n) }

// PutDeadLetter publishes a dead letter; publishing an id twice is one dead letter.
func (b *DeadLetterQueue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("put dead letter: it has no ID")
	}
	l.DeadAt = b.now()
	if len(l.Reason) > maxDeadLetterReason {
		l.Reason = strings.ToValidUTF8(l.Reason[:maxDeadLetterReason], "") + "…" // the message must not be lost, the reason may be cut
	}
	data, err := encodeDeadLetter(&l)
	if err != nil {
		return fmt.Errorf("put dead letter %s: %w", l.ID, err)
	}
	if len(data) > maxDeadLetter || len(l.ID) > 512 {
		return fmt.Errorf("put dead letter %s: it has %d bytes, and its ID %d; a table takes dead letters of %d bytes with IDs of 512",
			l.ID, len(data), len(l.ID), maxDeadLetter)
	}
	at := fmt.Sprintf("dead-letter#%020d#%s", l.DeadAt.UnixMicro(), safeName(l.ID))
	parts := (len(data) - 1) / partSize
	where := b.key("id#" + safeName(l.ID))
	where[b.attr("at")], where[b.attr("parts")] = text(at), number(parts)
	head := b.key(at)
	head[b.attr("data")], head[b.attr("parts")] = binary(data[:min(len(data), partSize)]), number(parts)
	head[b.attr("dead_letter")] = binary([]byte(l.ID))
	for name, v := range map[string]string{"kind": string(l.Kind), "reason": l.Reason, "key": l.Key.Raw} {
		if len(v) > 1024 {
			v = v[:1024]
		}
		head[b.attr(name)] = text(strings.ToValidUTF8(v, "\uFFFD")) // for operators who look at the table
	}
	writes := []types.TransactWriteItem{b.put(where, "attribute_not_exists(#pk)"), b.put(head, "")}
	for n := 1; n <= parts; n++ {
		part := b.key(partKey(l.ID, n))
		part[b.attr("data")] = binary(data[n*partSize : min(len(data), (n+1)*partSize)])
		writes = append(writes, b.put(part, ""))
	}
	if refused, err := b.write(ctx, writes); err != nil && !refused {
		return fmt.Errorf("put dead letter %s: %w", l.ID, explain(err, "TransactWriteItems", b.table))
	}
	return nil
}

func (b *DeadLetterQueue) put(it attrs, condition string) types.TransactWriteItem {
	p := &types.Put{TableName: &b.table, Item: it}
	if condition != "" {
		p.ConditionExpression, p.ExpressionAttributeNames = &condition, map[string]string{"#pk": b.keys.pk}
	}
	return types.TransactWriteItem{Put: p}
}

// write carries out a transaction whose first write has a condition. refused means that the condition failed. A transaction
// that conflicts with another one, or is throttled, is repeated until ctx is done.
func (b *DeadLetterQueue) write(ctx context.Context, w []types.TransactWriteItem) (refused bool, err error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err = b.client.TransactWriteItems(ctx, &awsdynamodb.TransactWriteItemsInput{TransactItems: w})
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return false, err
		}
		again := false
		for _, r := range cancelled.CancellationReasons {
			switch aws.ToString(r.Code) {
			case "ConditionalCheckFailed":
				return true, err
			case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
				again = true
			}
		}
		if !again {
			return false, err
		}
		if end := sleep(ctx, pause); end != nil {
			return false, errors.Join(end, err)
		}
	}
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (b *DeadLetterQueue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	var all []driver.DeadLetter
	for in := b.inOrder(); ; {
		if limit > 0 {
			in.Limit = aws.Int32(int32(min(limit-len(all), 1000))) //nolint:gosec // at most 1000
		}
		out, err := b.client.Query(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", explain(err, "Query", b.table))
		}
		for _, head := range out.Items {
			l, ok, err := b.deadLetter(ctx, head)
			if err != nil {
				return nil, fmt.Errorf("list dead letters: %w", err)
			}
			if ok {
				all = append(all, l)
			}
		}
		if len(out.LastEvaluatedKey) == 0 || limit > 0 && len(all) >= limit {
			return all, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// inOrder is a query for the dead letters in the order of writing.
func (b *DeadLetterQueue) inOrder() *awsdynamodb.QueryInput {
	return &awsdynamodb.QueryInput{
		TableName: &b.table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("#pk = :queue AND begins_with(#sk, :dead)"),
		ExpressionAttributeNames:  map[string]string{"#pk": b.keys.pk, "#sk": b.keys.sk},
		ExpressionAttributeValues: attrs{":queue": text(b.queue), ":dead": text("dead-letter#")},
	}
}

// pageRead is how many dead letters a page with a filter reads at most.
const pageRead = 100

// PageDeadLetters lists a page of dead letters, with one query. See [driver.DeadLetterPager]. It reads their bodies, too.
func (b *DeadLetterQueue) PageDeadLetters(ctx context.Context, f driver.DeadLetterFilter) (page []driver.DeadLetter, next driver.Cursor, err error) {
	if err := f.Check(); err != nil {
		return nil, "", err
	}
	in := b.inOrder()
	in.ScanIndexForward, in.Limit = aws.Bool(!f.Newest), aws.Int32(int32(min(max(f.Limit, pageRead), 1000))) //nolint:gosec // at most 1000
	if f.After != "" {
		_, sk, err := f.After.Parts()
		if err != nil {
			return nil, "", err
		}
		in.ExclusiveStartKey = b.key(string(sk))
	}
	out, err := b.client.Query(ctx, in)
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", explain(err, "Query", b.table))
	}
	last := ""
	for _, head := range out.Items {
		if len(page) == f.Limit {
			return page, driver.NewCursor(0, []byte(last)), nil
		}
		l, ok, err := b.deadLetter(ctx, head)
		if err != nil {
			return nil, "", fmt.Errorf("list dead letters: %w", err)
		}
		if l.Message.Body, l.Message.Headers = nil, nil; ok && f.Selects(&l) {
			page = append(page, l)
		}
		last = plain(head[b.keys.sk])
	}
	if len(out.LastEvaluatedKey) > 0 {
		next = driver.NewCursor(0, []byte(last))
	}
	return page, next, nil
}

// deadLetter reads a dead letter from its item and its parts. ok is false if it was deleted in the meantime.
func (b *DeadLetterQueue) deadLetter(ctx context.Context, head attrs) (l driver.DeadLetter, ok bool, err error) {
	id := string(blob(head[b.attr("dead_letter")]))
	data := blob(head[b.attr("data")])
	for n := 1; n <= count(head[b.attr("parts")]); n++ {
		part, err := b.get(ctx, partKey(id, n))
		if err != nil || part == nil {
			return l, false, err
		}
		data = append(data[:len(data):len(data)], blob(part[b.attr("data")])...)
	}
	if l, err = decodeDeadLetter(data); err != nil {
		return l, false, fmt.Errorf("dead letter %s: %w", id, err)
	}
	return l, true, nil
}

func (b *DeadLetterQueue) get(ctx context.Context, sk string) (attrs, error) {
	out, err := b.client.GetItem(ctx, &awsdynamodb.GetItemInput{TableName: &b.table, Key: b.key(sk), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, explain(err, "GetItem", b.table)
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	return out.Item, nil
}

// DeadLetter returns one dead letter; ok is false when there is none.
func (b *DeadLetterQueue) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	where, err := b.get(ctx, "id#"+safeName(id))
	if err == nil && where != nil {
		var head attrs
		if head, err = b.get(ctx, plain(where[b.attr("at")])); err == nil && head != nil {
			l, ok, err = b.deadLetter(ctx, head)
		}
	}
	if err != nil {
		return l, false, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	return l, ok, nil
}

// DeleteDeadLetter removes a dead letter; one that is not there is no error.
func (b *DeadLetterQueue) DeleteDeadLetter(ctx context.Context, id string) error {
	for {
		where, err := b.get(ctx, "id#"+safeName(id))
		if err != nil {
			return fmt.Errorf("delete dead letter %s: %w", id, err)
		}
		if where == nil {
			return nil
		}
		at := plain(where[b.attr("at")])
		writes := []types.TransactWriteItem{
			{Delete: &types.Delete{
				TableName: &b.table, Key: b.key("id#" + safeName(id)), ConditionExpression: aws.String("#at = :at"),
				ExpressionAttributeNames:  map[string]string{"#at": b.attr("at")},
				ExpressionAttributeValues: attrs{":at": text(at)},
			}},
			{Delete: &types.Delete{TableName: &b.table, Key: b.key(at)}},
		}
		for n := 1; n <= count(where[b.attr("parts")]); n++ {
			writes = append(writes, types.TransactWriteItem{Delete: &types.Delete{TableName: &b.table, Key: b.key(partKey(id, n))}})
		}
		refused, err := b.write(ctx, writes)
		if err == nil {
			return nil
		}
		if !refused {
			return fmt.Errorf("delete dead letter %s: %w", id, explain(err, "TransactWriteItems", b.table))
		}
		// Another caller deleted it, and it may have been written again since: look once more.
	}
}

// plain, blob and count read attributes of items that were written here. An attribute of another type is read as empty.
func plain(v types.AttributeValue) string {
	s, _ := asText(v)
	return s
}

func blob(v types.AttributeValue) []byte {
	b, _ := asBytes(v)
	return b
}

func count(v types.AttributeValue) int {
	n, _ := asInt(v)
	return int(n)
}
