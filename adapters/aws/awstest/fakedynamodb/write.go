package fakedynamodb

import "slices"

// writeInput has the members of PutItem, UpdateItem, DeleteItem and of the actions of TransactWriteItems.
type writeInput struct {
	TableName                           string
	Item                                item
	Key                                 item
	ConditionExpression                 *string
	UpdateExpression                    *string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           item
	ReturnValues                        string
	ReturnValuesOnConditionCheckFailure string
	ReturnConsumedCapacity              string
	ReturnItemCollectionMetrics         string // without local indexes there are none
}

// action is one write, parsed and not yet carried out.
type action struct {
	verb    string // Put, Update, Delete or ConditionCheck
	in      writeInput
	t       *table
	at      place
	key     item
	cond    cond
	changes []change
}

// prepare parses a write. Errors of the item and its key are marked with asRun: they cancel transactions.
func (r *request) prepare(verb string, in writeInput) (*action, error) {
	t, err := r.table(in.TableName)
	if err != nil {
		return nil, err
	}
	a := &action{verb: verb, in: in, t: t}
	if err := a.members(); err != nil {
		return nil, err
	}
	if err := a.expressions(); err != nil {
		return nil, err
	}
	if verb != "Put" {
		a.key = in.Key
		a.at, err = t.key(in.Key)
		return a, asRun(err)
	}
	if a.at, err = t.place(in.Item); err != nil {
		return a, asRun(err)
	}
	a.key = t.keyOf(in.Item)
	return a, asRun(tooMuch(in.Item, "Item size has exceeded the maximum allowed size"))
}

func tooMuch(it item, message string) error {
	if it.size() > maxItem {
		return invalid("%s", message)
	}
	if it.depth() > maxDepth {
		return invalid("Nesting Levels have exceeded supported limits")
	}
	return nil
}

// members refuses what does not belong to the action.
func (a *action) members() error {
	in := a.in
	switch {
	case a.verb == "Put" && in.Item == nil:
		return missing("item")
	case a.verb != "Put" && in.Key == nil:
		return missing("key")
	case a.verb == "Put" && in.Key != nil, a.verb != "Put" && in.Item != nil, a.verb != "Update" && in.UpdateExpression != nil:
		return invalid("fakedynamodb: a member of %s belongs to another action", a.verb)
	case a.verb == "ConditionCheck" && in.ConditionExpression == nil:
		return missing("conditionExpression")
	}
	if err := enum(in.ReturnValues, "returnValues", "", "ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"); err != nil {
		return err
	}
	if a.verb != "Update" && !slices.Contains([]string{"", "NONE", "ALL_OLD"}, in.ReturnValues) {
		return invalid("ReturnValues can only be ALL_OLD or NONE")
	}
	if err := enum(in.ReturnValuesOnConditionCheckFailure, "returnValuesOnConditionCheckFailure", "", "ALL_OLD",
		"NONE"); err != nil {
		return err
	}
	return consumption(in.ReturnConsumedCapacity)
}

func missing(member string) error {
	return invalid("1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null", member)
}

func (a *action) expressions() error {
	in := a.in
	b, err := bind(in.ExpressionAttributeNames, in.ExpressionAttributeValues,
		in.ConditionExpression != nil || in.UpdateExpression != nil)
	if err != nil {
		return err
	}
	if in.UpdateExpression != nil {
		if a.changes, err = parseUpdate(*in.UpdateExpression, b); err != nil {
			return err
		}
	}
	if in.ConditionExpression != nil {
		if a.cond, err = parseCondition("ConditionExpression", *in.ConditionExpression, b); err != nil {
			return err
		}
	}
	if err := b.unused(); err != nil {
		return err
	}
	return touchesKey(a.changes, a.t.keyNames())
}

// holds reports whether the condition holds.
func (a *action) holds(before item) (bool, error) {
	if a.cond == nil {
		return true, nil
	}
	return a.cond.eval(before)
}

// after is the item that the write leaves, nil for none.
func (a *action) after(before item) (item, error) {
	switch a.verb {
	case "Put":
		return a.in.Item, nil
	case "Delete":
		return nil, nil
	case "ConditionCheck":
		return before, nil
	}
	base := before
	if base == nil {
		if onlyRemoves(a.changes) {
			return nil, nil
		}
		base = a.key
	}
	out, err := apply(base, a.changes)
	if err != nil {
		return nil, err
	}
	return out, asRun(tooMuch(out, "Item size to update has exceeded the maximum allowed size"))
}

// single carries out PutItem, UpdateItem or DeleteItem.
func (r *request) single(in writeInput) (any, error) {
	a, err := r.prepare(r.op[:len(r.op)-len("Item")], in)
	if err != nil {
		return nil, err
	}
	if r.conflicts(a.t, a.key) {
		return nil, fault("TransactionConflictException", "Transaction is ongoing for the item")
	}
	before := a.t.get(a.at)
	ok, err := a.holds(before)
	if err != nil {
		return nil, err
	}
	if !ok {
		r.use(a.t.name, Units{Write: writeUnits(before, nil)})
		return nil, conditionFailed(before, in.ReturnValuesOnConditionCheckFailure == "ALL_OLD")
	}
	after, err := a.after(before)
	if err != nil {
		return nil, err
	}
	a.t.put(a.at, after, r.now)
	r.use(a.t.name, Units{Write: writeUnits(before, after)})
	out := map[string]any{}
	if attributes := a.returned(before, after); len(attributes) > 0 {
		out["Attributes"] = attributes
	}
	if c := r.consumed(in.ReturnConsumedCapacity, a.t.name, false); c != nil {
		out["ConsumedCapacity"] = c
	}
	return out, nil
}

// returned are the attributes that ReturnValues asks for.
func (a *action) returned(before, after item) item {
	switch a.in.ReturnValues {
	case "ALL_OLD":
		return before
	case "ALL_NEW":
		return after
	case "UPDATED_OLD":
		return project(before, paths(a.changes))
	case "UPDATED_NEW":
		return project(after, paths(a.changes))
	}
	return nil
}

// getInput has the members of GetItem and of the actions of TransactGetItems.
type getInput struct {
	TableName                string
	Key                      item
	ConsistentRead           bool
	ProjectionExpression     *string
	ExpressionAttributeNames map[string]string
	ReturnConsumedCapacity   string
}

func (r *request) getItem(in getInput) (any, error) {
	if err := consumption(in.ReturnConsumedCapacity); err != nil {
		return nil, err
	}
	t, at, paths, err := r.prepareGet(in)
	if err != nil {
		return nil, err
	}
	it := r.read(t, at, in.ConsistentRead)
	r.use(t.name, Units{Read: readUnits(it.size(), in.ConsistentRead)})
	out := map[string]any{}
	if it != nil {
		out["Item"] = shown(it, paths)
	}
	if c := r.consumed(in.ReturnConsumedCapacity, t.name, false); c != nil {
		out["ConsumedCapacity"] = c
	}
	return out, nil
}

func (r *request) prepareGet(in getInput) (*table, place, []path, error) {
	t, err := r.table(in.TableName)
	if err != nil {
		return nil, place{}, nil, err
	}
	if in.Key == nil {
		return nil, place{}, nil, missing("key")
	}
	b, err := bind(in.ExpressionAttributeNames, nil, in.ProjectionExpression != nil)
	if err != nil {
		return nil, place{}, nil, err
	}
	paths, err := projection(in.ProjectionExpression, b)
	if err == nil {
		err = b.unused()
	}
	if err != nil {
		return nil, place{}, nil, err
	}
	at, err := t.key(in.Key)
	return t, at, paths, asRun(err)
}

// projection reads an optional ProjectionExpression.
func projection(src *string, b *binding) ([]path, error) {
	if src == nil {
		return nil, nil
	}
	return parseProjection(*src, b)
}

// shown is the part of an item that was asked for, all of it without paths.
func shown(it item, paths []path) item {
	if paths == nil {
		return it
	}
	return project(it, paths)
}
