package dynamodb

import (
	"errors"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The placeholders of a [Fence] in expressions.
const (
	fenceName  = "#semel_fence"
	fenceValue = ":semel_fence"
)

// Fence guards a write to an item of your own with a fencing token, of a lock (package lock) or of an attempt. The write
// succeeds only while no newer token has written the item, and it leaves its own token there. Without a fence a lock is
// advisory: a process that lost it while it was paused still writes (protocol section 9).
//
//	fence := dynamodb.Guard("fence", held.Token())
//	in := &awsdynamodb.UpdateItemInput{ /* as without a lock */ }
//	fence.Update(in)
//	if _, err := client.UpdateItem(ctx, in); fence.IsStale(err) {
//		// another process has the lock: stop
//	}
//
// The attribute always has a placeholder, so reserved words ("owner", "token", "ttl") are fine.
type Fence struct {
	// Condition and Set are the condition and the assignment that the write must contain, Names and Values their
	// placeholders. Use them for requests that the methods do not cover.
	Condition, Set string
	Names          map[string]string
	Values         map[string]types.AttributeValue

	attr  string
	token uint64
}

// Guard makes a fence from a token. attr is the attribute of the guarded items with the newest token that wrote them, a
// number. An item without it accepts any token but 0, which is that of an attempt without a fence (semel.Config.ClaimAtCommit):
// every item refuses it.
func Guard(attr string, token uint64) Fence {
	f := Fence{
		Condition: "(attribute_not_exists(" + fenceName + ") OR " + fenceName + " <= " + fenceValue + ")",
		Set:       fenceName + " = " + fenceValue,
		Names:     map[string]string{fenceName: attr},
		Values:    map[string]types.AttributeValue{fenceValue: tokenValue(token)},
		attr:      attr,
		token:     token,
	}
	if token == 0 {
		f.Condition = "(" + fenceName + " < " + fenceValue + ")" // which no fence is
	}
	return f
}

func tokenValue(token uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(token, 10)}
}

// Update adds the fence to the condition and the assignments of an update.
func (f Fence) Update(in *awsdynamodb.UpdateItemInput) {
	in.ConditionExpression = f.and(in.ConditionExpression)
	in.UpdateExpression = f.assign(in.UpdateExpression)
	in.ExpressionAttributeNames = merge(in.ExpressionAttributeNames, f.Names)
	in.ExpressionAttributeValues = merge(in.ExpressionAttributeValues, f.Values)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
}

// Put adds the fence to a put.
func (f Fence) Put(in *awsdynamodb.PutItemInput) {
	in.ConditionExpression = f.and(in.ConditionExpression)
	in.Item = merge(in.Item, map[string]types.AttributeValue{f.attr: tokenValue(f.token)})
	in.ExpressionAttributeNames = merge(in.ExpressionAttributeNames, f.Names)
	in.ExpressionAttributeValues = merge(in.ExpressionAttributeValues, f.Values)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
}

// UpdateTx adds the fence to an update of a transaction, for example one of [Writes].
func (f Fence) UpdateTx(in *types.Update) {
	in.ConditionExpression = f.and(in.ConditionExpression)
	in.UpdateExpression = f.assign(in.UpdateExpression)
	in.ExpressionAttributeNames = merge(in.ExpressionAttributeNames, f.Names)
	in.ExpressionAttributeValues = merge(in.ExpressionAttributeValues, f.Values)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
}

// PutTx adds the fence to a put of a transaction.
func (f Fence) PutTx(in *types.Put) {
	in.ConditionExpression = f.and(in.ConditionExpression)
	in.Item = merge(in.Item, map[string]types.AttributeValue{f.attr: tokenValue(f.token)})
	in.ExpressionAttributeNames = merge(in.ExpressionAttributeNames, f.Names)
	in.ExpressionAttributeValues = merge(in.ExpressionAttributeValues, f.Values)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
}

// IsStale reports that a guarded write was refused because a newer token has written the item. Its sender has lost the lock
// and must stop. A write that was refused for a condition of its own is not stale: the item in the error shows the
// difference.
func (f Fence) IsStale(err error) bool {
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return f.newer(failed.Item)
	}
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return false
	}
	for _, r := range cancelled.CancellationReasons {
		if aws.ToString(r.Code) == "ConditionalCheckFailed" && f.newer(r.Item) {
			return true
		}
	}
	return false
}

// newer reports that an item was written with a newer token. An attribute that is no valid number counts as newer.
func (f Fence) newer(item map[string]types.AttributeValue) bool {
	v, ok := item[f.attr]
	if !ok {
		return false
	}
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return true
	}
	seen, err := strconv.ParseUint(n.Value, 10, 64)
	return err != nil || seen > f.token
}

// and adds the fence's condition to another one.
func (f Fence) and(condition *string) *string {
	if aws.ToString(condition) == "" {
		return aws.String(f.Condition)
	}
	return aws.String("(" + *condition + ") AND " + f.Condition)
}

// assign adds the fence's assignment to an update expression, which may have one SET clause at most.
func (f Fence) assign(update *string) *string {
	u := aws.ToString(update)
	if at := setClause(u); at >= 0 {
		return aws.String(u[:at] + " " + f.Set + "," + u[at:])
	}
	return aws.String(strings.TrimSpace("SET " + f.Set + " " + u))
}

// setClause finds the end of the word SET; -1 = there is none. SET is a reserved word, so outside of placeholders it is
// always the clause.
func setClause(u string) int {
	for at := 0; at+3 <= len(u); at++ {
		begins := at == 0 || !wordByte(u[at-1])
		ends := at+3 == len(u) || !wordByte(u[at+3])
		if begins && ends && strings.EqualFold(u[at:at+3], "set") {
			return at + 3
		}
	}
	return -1
}

func wordByte(b byte) bool {
	return b == '_' || b == '#' || b == ':' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// merge adds to a copy: the caller may use its map for another request.
func merge[V any](old, more map[string]V) map[string]V {
	all := make(map[string]V, len(old)+len(more))
	for k, v := range old {
		all[k] = v
	}
	for k, v := range more {
		all[k] = v
	}
	return all
}
