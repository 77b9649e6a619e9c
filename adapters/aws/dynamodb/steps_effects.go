package dynamodb

import (
	"fmt"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// carried is the list of writes that steps carry, as one transaction accepts them, with the step of each.
type carried struct {
	list []types.TransactWriteItem
	of   []int // the step's index in the call
}

// add adds the effects of a step. Several steps of a call often add to one number (a counter, a balance), but a transaction
// writes an item only once: such additions become one. Other writes of the same item are kept, and refused later.
func (c *carried) add(step int, w *driver.StepWrite) {
	e, ok := w.Effects.(*Writes)
	if !ok || e == nil {
		return
	}
	for _, x := range e.list {
		if !c.sum(&x) {
			c.list, c.of = append(c.list, x), append(c.of, step)
		}
	}
}

// sum adds x to an existing addition to the same number.
func (c *carried) sum(x *types.TransactWriteItem) bool {
	attr, n, ok := addition(x)
	if !ok {
		return false
	}
	for i := range c.list {
		other, m, ok := addition(&c.list[i])
		if !ok || other != attr || aws.ToString(c.list[i].Update.TableName) != aws.ToString(x.Update.TableName) ||
			!maps.EqualFunc(c.list[i].Update.Key, x.Update.Key, same) {
			continue
		}
		if (n > 0) == (m > 0) && (n > 0) != (n+m > 0) {
			return false // beyond 64 bits
		}
		u := *c.list[i].Update
		u.ExpressionAttributeValues = attrs{":n": number(n + m)}
		c.list[i].Update = &u
		return true
	}
	return false
}

// addition reads what [Writes.Add] made.
func addition(x *types.TransactWriteItem) (attr string, n int64, ok bool) {
	u := x.Update
	if u == nil || u.ConditionExpression != nil || aws.ToString(u.UpdateExpression) != "ADD #attr :n" ||
		len(u.ExpressionAttributeNames) != 1 || len(u.ExpressionAttributeValues) != 1 {
		return "", 0, false
	}
	n, err := asInt(u.ExpressionAttributeValues[":n"])
	return u.ExpressionAttributeNames["#attr"], n, err == nil
}

// checkEffects refuses effects that no transaction can write. The error names the step.
func (s *Store) checkEffects(w []driver.StepWrite) error {
	var all carried
	for i := range w {
		if _, ok := w[i].Effects.(*Writes); !ok && w[i].Effects != nil {
			return &driver.ItemError{Index: i, Err: fmt.Errorf("effects of type %T: %w", w[i].Effects, driver.ErrUnsupported)}
		}
		before := len(all.list)
		if all.add(i, &w[i]); len(all.list) > before {
			if _, err := s.checkWrites(all.list); err != nil {
				return &driver.ItemError{Index: i, Err: err}
			}
		}
	}
	return nil
}
