package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// change is one change of one record. Records are written in no other way.
type change struct {
	key driver.Key
	// row is the row as it was last seen, the zero row if none is known. read means that this call has read it: only then
	// may the call return a result from it without a write.
	row  row
	read bool
	// decide is the decision of the table: the row afterwards, and whether to write it. It is called again when the item has
	// changed, so it must not change anything but the result that its caller keeps.
	decide func(r row, now time.Time) (after row, write bool, err error)
}

// maxRounds bounds how often a change is decided again because other writers were faster.
const maxRounds = 64

// change carries out a change: decide on the row as last seen, write it if the item has not changed, and otherwise decide
// again on the new row. It returns the row that the result is based on.
func (s *Store) change(ctx context.Context, c *change) (row, error) {
	r := s.repeater()
	for round := range maxRounds {
		after, write, err := c.decide(c.row, s.now())
		if err != nil {
			return c.row, err
		}
		if !write {
			if c.read {
				return c.row, nil
			}
			if err := s.reload(ctx, c); err != nil {
				return c.row, r.failed(err, "GetItem")
			}
			continue
		}
		if s.gated(&c.row, &after) {
			return s.changeWith(ctx, c, nil)
		}
		after.rev, after.foreign = c.row.rev+1, false
		now, won, err := s.write(ctx, &r, c.row, after)
		if err != nil {
			return c.row, err
		}
		if won {
			s.rows.put(after)
			s.seen.saw(s, &after)
			return after, nil
		}
		c.row, c.read = now, true
		if round > 2 {
			if err := r.wait(ctx); err != nil {
				return c.row, r.failed(err, "UpdateItem")
			}
		}
	}
	return c.row, r.failed(errors.New("other writers kept changing the record"), "UpdateItem")
}

// reload reads the row of a change.
func (s *Store) reload(ctx context.Context, c *change) error {
	item, err := s.get(ctx, s.shape.keyOf(c.key))
	if err != nil {
		return err
	}
	if c.row, err = s.shape.decode(c.key, item); err != nil {
		return err
	}
	c.read = true
	s.seen.saw(s, &c.row)
	return nil
}

// write writes a row if its item has not changed. Otherwise now is the row that is in the table instead.
//
// A write without a response is repeated unchanged. If the repetition fails because the first write was applied (the SDK, a
// proxy or this loop sent it twice), the response contains exactly the item that was to be written. Then the write was ours.
func (s *Store) write(ctx context.Context, r *repeater, before, after row) (now row, won bool, err error) {
	u, err := s.update(&before, &after)
	if err != nil {
		return now, false, err
	}
	in := &awsdynamodb.UpdateItemInput{
		TableName: u.TableName, Key: u.Key, UpdateExpression: u.UpdateExpression, ConditionExpression: u.ConditionExpression,
		ExpressionAttributeNames: u.ExpressionAttributeNames, ExpressionAttributeValues: u.ExpressionAttributeValues,
		ReturnValuesOnConditionCheckFailure: u.ReturnValuesOnConditionCheckFailure,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	}
	is, err := r.do(ctx, func(ctx context.Context) error {
		out, err := s.client.UpdateItem(ctx, in, once)
		if err == nil {
			s.meter.wrote(capacity(out.ConsumedCapacity)...)
		}
		return err
	})
	if err == nil {
		return now, true, nil
	}
	var failed *types.ConditionalCheckFailedException
	if is != condition || !errors.As(err, &failed) {
		s.rows.forget(after.Key)
		return now, false, r.failed(tooLarge(err, &after), "UpdateItem")
	}
	s.meter.failedWrite(failed.Item)
	return s.instead(&after, failed.Item)
}

// instead reads the item that a failed condition returned. It is the row of another writer, or our own.
func (s *Store) instead(after *row, item attrs) (now row, ours bool, err error) {
	if s.isOurs(after, item) {
		return now, true, nil
	}
	s.rows.forget(after.Key)
	if now, err = s.shape.decode(after.Key, item); err != nil {
		return now, false, err
	}
	s.seen.saw(s, &now)
	return now, false, nil
}

// isOurs reports that an item is the one that was to be written: revision, token, nonce and everything else.
func (s *Store) isOurs(after *row, item attrs) bool {
	want := s.shape.encode(after, s.o.TTLSlack)
	for name, v := range want {
		if !same(v, item[name]) {
			return false
		}
	}
	return true
}

// maxReason bounds the reason of a record, in bytes. An error may quote a whole document, the item must have room for the
// reason next to everything else, and every duplicate of a failed key is billed by the item's size. The dead letter has the
// whole reason.
const maxReason = 8 << 10

func clipped(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	at := maxReason
	for at > maxReason-utf8.UTFMax && !utf8.RuneStart(reason[at]) {
		at--
	}
	return reason[:at] + "…"
}

// itemLimit is the largest item in bytes.
const itemLimit = 400 << 10

var errTooLarge = errors.New("an item takes at most 400 KB")

// tooLargeItem reports that an item would exceed the limit.
func tooLargeItem(err error) bool {
	return errors.Is(err, errTooLarge) || err != nil && strings.Contains(err.Error(), "tem size")
}

// tooLarge explains how to fix an item that is too large.
func tooLarge(err error, after *row) error {
	if !tooLargeItem(err) {
		return err
	}
	journal := 0
	for name, v := range after.extra {
		journal += len(name) + sizeOf(v)
	}
	return fmt.Errorf("the record of key %q does not fit into its item (result %d bytes, journal and audit log %d bytes): make them "+
		"smaller, or keep the contents elsewhere: %w", after.Key.Raw, len(after.Result), journal, err)
}

// update is the conditional update from one row to the next. It sets and removes the attributes that differ, and leaves
// those of other programs alone. The condition names revision, token and nonce (law 2): the revision shows that nothing
// changed, token and nonce that it is not a later record of the same key that has reached the same revision.
func (s *Store) update(before, after *row) (*types.Update, error) {
	if after.Key == (driver.Key{}) && after.State == driver.Absent {
		return nil, errors.New("a record is removed by a sweep, not by an update")
	}
	e := newExpression()
	s.guard(e, before)
	old, item := s.shape.encode(before, s.o.TTLSlack), s.shape.encode(after, s.o.TTLSlack)
	if itemSize(item) > itemLimit {
		return nil, tooLarge(errTooLarge, after)
	}
	for _, name := range slices.Sorted(maps.Keys(item)) {
		if !same(old[name], item[name]) {
			e.set = append(e.set, e.name(name)+" = "+e.value(item[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, stays := item[name]; !stays {
			e.remove = append(e.remove, e.name(name))
		}
	}
	return &types.Update{
		TableName: &s.table, Key: s.shape.keyOf(after.Key), UpdateExpression: e.update(), ConditionExpression: e.condition(),
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, nil
}

// guard adds the condition that the item still is the given row. Deletes use it too.
func (s *Store) guard(e *expression, r *row) {
	n := s.shape.names
	switch {
	case r.rev > 0:
		e.and(e.name(n["rev"]) + " = " + e.value(number(r.rev)))
		if r.Token == 0 { // adopted, and never run since
			e.and("attribute_not_exists(" + e.name(n["token"]) + ")")
		} else {
			e.and(e.name(n["token"]) + " = " + e.value(number(r.Token)))
		}
		if r.Nonce == (driver.Nonce{}) {
			e.and("attribute_not_exists(" + e.name(n["nonce"]) + ")")
			return
		}
		e.and(e.name(n["nonce"]) + " = " + e.value(binary(r.Nonce[:])))
	case r.foreign:
		e.and("attribute_not_exists(" + e.name(n["rev"]) + ")")
		if r.adopted == nil {
			e.and("attribute_not_exists(" + e.name(n["state"]) + ")")
			return
		}
		e.and(e.name(n["state"]) + " = " + e.value(r.adopted))
	default:
		e.and("attribute_not_exists(" + e.name(s.shape.pk) + ")")
	}
}

// expression collects the parts of a request's expressions. Every name has a placeholder, so reserved words are fine.
type expression struct {
	set, remove, conditions []string
	names                   map[string]string
	values                  attrs
	known                   map[string]string
}

func newExpression() *expression {
	return &expression{names: map[string]string{}, values: attrs{}, known: map[string]string{}}
}

func (e *expression) name(n string) string {
	if p, ok := e.known[n]; ok {
		return p
	}
	p := "#a" + strconv.Itoa(len(e.names))
	e.names[p], e.known[n] = n, p
	return p
}

func (e *expression) value(v types.AttributeValue) string {
	p := ":v" + strconv.Itoa(len(e.values))
	e.values[p] = v
	return p
}

func (e *expression) and(c string) { e.conditions = append(e.conditions, c) }

func (e *expression) condition() *string { return aws.String(strings.Join(e.conditions, " AND ")) }

func (e *expression) update() *string {
	var parts []string
	if len(e.set) > 0 {
		parts = append(parts, "SET "+strings.Join(e.set, ", "))
	}
	if len(e.remove) > 0 {
		parts = append(parts, "REMOVE "+strings.Join(e.remove, ", "))
	}
	return aws.String(strings.Join(parts, " "))
}
