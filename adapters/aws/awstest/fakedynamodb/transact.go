package fakedynamodb

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// Limits of transactions.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
const (
	maxActions     = 100
	maxTransaction = 4 << 20
	tokenLife      = 10 * time.Minute
)

// replay is a transaction that was carried out under a token.
type replay struct {
	mark [32]byte
	at   time.Time
	read map[string]float64 // units of a repetition, by table
}

type transactInput struct {
	TransactItems               []transactItem
	ClientRequestToken          string
	ReturnConsumedCapacity      string
	ReturnItemCollectionMetrics string
}

type transactItem struct{ Put, Update, Delete, ConditionCheck *writeInput }

// only is the one action of the element.
func (i transactItem) only() (verb string, in writeInput, err error) {
	n := 0
	for _, c := range []struct {
		verb string
		in   *writeInput
	}{{"Put", i.Put}, {"Update", i.Update}, {"Delete", i.Delete}, {"ConditionCheck", i.ConditionCheck}} {
		if c.in != nil {
			verb, in = c.verb, *c.in
			n++
		}
	}
	if n != 1 {
		return "", in, invalid("TransactItems can only contain one of Check, Put, Update or Delete")
	}
	if in.ReturnValues != "" || in.ReturnConsumedCapacity != "" {
		return "", in, invalid("fakedynamodb: actions of transactions have neither ReturnValues nor ReturnConsumedCapacity")
	}
	return verb, in, nil
}

// reason is why one action cancelled a transaction.
type reason struct {
	Code    string
	Message string `json:",omitempty"`
	Item    item   `json:",omitempty"`
}

func cancelled(reasons []reason) error {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = r.Code
	}
	message := fmt.Sprintf("Transaction cancelled, please refer cancellation reasons for specific reasons [%s]",
		strings.Join(codes, ", "))
	return &awsjson.Error{
		Type: namespace + "TransactionCanceledException", Message: message,
		Fields: map[string]any{"CancellationReasons": reasons, "Message": message},
	}
}

func many(n int) error {
	if n < 1 || n > maxActions {
		return invalid(
			"1 validation error detected: Value '[%d members]' at 'transactItems' failed to satisfy constraint: Member must have length less than or equal to %d, and greater than or equal to 1", n, maxActions)
	}
	return nil
}

func (r *request) transactWrite(in transactInput) (any, error) {
	if err := errors.Join(many(len(in.TransactItems)), consumption(in.ReturnConsumedCapacity)); err != nil {
		return nil, err
	}
	mark, out, err := r.repeated(in)
	if out != nil || err != nil {
		return out, err
	}
	actions, reasons, err := r.actions(in)
	if err != nil {
		return nil, err
	}
	afters, failed, size := make([]item, len(actions)), false, 0
	for i, a := range actions {
		if reasons[i].Code == "None" {
			afters[i], reasons[i], err = r.attempt(a)
			if err != nil {
				return nil, err
			}
		}
		failed = failed || reasons[i].Code != "None"
		size += max(a.t.get(a.at).size(), afters[i].size())
	}
	if size > maxTransaction {
		return nil, invalid("The aggregate size of the items in the transaction has exceeded 4 MB")
	}
	done := &replay{mark: mark, at: r.now, read: map[string]float64{}}
	for i, a := range actions {
		before := a.t.get(a.at)
		r.use(a.t.name, Units{Write: 2 * writeUnits(before, afters[i])})
		done.read[a.t.name] += 2 * readUnits(max(before.size(), afters[i].size()), true)
	}
	if failed {
		return nil, cancelled(reasons)
	}
	for i, a := range actions {
		if a.verb != "ConditionCheck" {
			a.t.put(a.at, afters[i], r.now)
		}
	}
	if in.ClientRequestToken != "" {
		r.s.tokens[in.ClientRequestToken] = done
	}
	response := map[string]any{}
	r.consumedAll(response, in.ReturnConsumedCapacity, true)
	return response, nil
}

// repeated returns the response to a transaction whose token was used in the last ten minutes.
func (r *request) repeated(in transactInput) (mark [32]byte, out map[string]any, err error) {
	if len(in.ClientRequestToken) > 36 {
		return mark, nil,
			invalid(
				"1 validation error detected: Value '%s' at 'clientRequestToken' failed to satisfy constraint: Member must have length less than or equal to 36", in.ClientRequestToken)
	}
	b, err := json.Marshal(in.TransactItems)
	if err != nil {
		return mark, nil, fmt.Errorf("compare the transaction with the one before: %w", err)
	}
	mark = sha256.Sum256(b)
	for token, old := range r.s.tokens {
		if r.now.Sub(old.at) >= tokenLife {
			delete(r.s.tokens, token)
		}
	}
	old := r.s.tokens[in.ClientRequestToken]
	switch {
	case in.ClientRequestToken == "" || old == nil:
		return mark, nil, nil
	case old.mark != mark:
		return mark, nil, fault("IdempotentParameterMismatchException",
			"The request uses the same client token as a previous, but non-identical request. Do not reuse a client token with different requests, unless the requests are identical")
	}
	for table, units := range old.read {
		r.use(table, Units{Read: units})
	}
	out = map[string]any{}
	r.consumedAll(out, in.ReturnConsumedCapacity, true)
	return mark, out, nil
}

// actions parses the actions of a transaction; those that can never run have a reason.
func (r *request) actions(in transactInput) ([]*action, []reason, error) {
	actions, reasons := make([]*action, len(in.TransactItems)), make([]reason, len(in.TransactItems))
	for i, element := range in.TransactItems {
		verb, w, err := element.only()
		if err != nil {
			return nil, nil, err
		}
		reasons[i] = reason{Code: "None"}
		actions[i], err = r.prepare(verb, w)
		if run := (*runtimeError)(nil); errors.As(err, &run) {
			reasons[i] = reason{Code: "ValidationError", Message: messageOf(err)}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for j, other := range actions[:i] {
			if reasons[j].Code == "None" && other.t == actions[i].t && other.at.cmp(actions[i].at) == 0 {
				return nil, nil, invalid("Transaction request cannot include multiple operations on one item")
			}
		}
	}
	return actions, reasons, nil
}

// attempt finds out what an action would do.
func (r *request) attempt(a *action) (item, reason, error) {
	if r.conflicts(a.t, a.key) {
		return nil, reason{Code: "TransactionConflict", Message: "Transaction is ongoing for the item"}, nil
	}
	before := a.t.get(a.at)
	ok, err := a.holds(before)
	if err == nil && !ok {
		out := reason{Code: "ConditionalCheckFailed", Message: "The conditional request failed"}
		if a.in.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
			out.Item = before
		}
		return nil, out, nil
	}
	after := item(nil)
	if err == nil {
		after, err = a.after(before)
	}
	if run := (*runtimeError)(nil); errors.As(err, &run) {
		return nil, reason{Code: "ValidationError", Message: messageOf(err)}, nil
	}
	return after, reason{Code: "None"}, err
}

type transactGetInput struct {
	TransactItems          []struct{ Get *getInput }
	ReturnConsumedCapacity string
}

func (r *request) transactGet(in transactGetInput) (any, error) {
	if err := errors.Join(many(len(in.TransactItems)), consumption(in.ReturnConsumedCapacity)); err != nil {
		return nil, err
	}
	responses, reasons, failed, size := []any{}, make([]reason, len(in.TransactItems)), false, 0
	type where struct {
		t  *table
		at place
	}
	var seen []where
	for i, element := range in.TransactItems {
		if element.Get == nil {
			return nil, missing("transactItems.member.get")
		}
		t, at, paths, err := r.prepareGet(*element.Get)
		if run := (*runtimeError)(nil); errors.As(err, &run) {
			reasons[i], failed = reason{Code: "ValidationError", Message: messageOf(err)}, true
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, w := range seen {
			if w.t == t && w.at.cmp(at) == 0 {
				return nil, invalid("Transaction request cannot include multiple operations on one item")
			}
		}
		seen = append(seen, where{t, at})
		reasons[i] = reason{Code: "None"}
		if r.conflicts(t, element.Get.Key) {
			reasons[i], failed = reason{Code: "TransactionConflict", Message: "Transaction is ongoing for the item"}, true
		}
		it, one := t.get(at), map[string]any{}
		if it != nil {
			one["Item"] = shown(it, paths)
		}
		size += it.size()
		r.use(t.name, Units{Read: 2 * readUnits(it.size(), true)})
		responses = append(responses, one)
	}
	if failed {
		return nil, cancelled(reasons)
	}
	if size > maxTransaction {
		return nil, invalid("The aggregate size of the items in the transaction has exceeded 4 MB")
	}
	out := map[string]any{"Responses": responses}
	r.consumedAll(out, in.ReturnConsumedCapacity, true)
	return out, nil
}
