package fakedynamodb

// keyCondition is what a Query asks of keys: one partition, and optionally a range of sort keys.
type keyCondition struct {
	at   place
	sort func(value) bool
}

const errKeyCondition = "Query key condition not supported"

// keyCondition understands a KeyConditionExpression: the partition key equals a value, and the sort key stands in one
// relation to constants.
func (t *table) keyCondition(src string, b *binding) (*keyCondition, error) {
	c, err := parseCondition("KeyConditionExpression", src, b)
	if err != nil {
		return nil, err
	}
	parts := []cond{c}
	if and, ok := c.(both); ok {
		parts = []cond{and.a, and.b}
	}
	out, key, seen := &keyCondition{}, item{}, map[string]bool{}
	for _, part := range parts {
		name, test, equals, err := relation(part)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, invalid("KeyConditionExpressions must only contain one condition per key")
		}
		seen[name] = true
		switch {
		case name == t.keys[0].name && equals == nil:
			return nil, invalid("%s", errKeyCondition)
		case name == t.keys[0].name:
			key[name] = *equals
		case len(t.keys) == 2 && name == t.keys[1].name:
			if err := sortKind(part, t.keys[1]); err != nil {
				return nil, err
			}
			out.sort = test
		}
	}
	if !seen[t.keys[0].name] {
		return nil, invalid("Query condition missed key schema element: %s", t.keys[0].name)
	}
	if len(parts) == 2 && out.sort == nil {
		if len(t.keys) == 2 {
			return nil, invalid("Query condition missed key schema element: %s", t.keys[1].name)
		}
		return nil, invalid("%s", errKeyCondition)
	}
	if k := t.keys[0]; key[k.name].kind != k.kind {
		return nil, invalid("One or more parameter values were invalid: Condition parameter type does not match schema type")
	}
	only := &table{keys: t.keys[:1]}
	out.at, err = only.place(key)
	return out, err
}

// sortKind refuses constants of another type than the sort key's.
func sortKind(c cond, k attribute) error {
	var all []operand
	switch c := c.(type) {
	case compare:
		all = []operand{c.a, c.b}
	case between:
		all = []operand{c.low, c.high}
	case call:
		all = c.args
		if k.kind == "N" {
			return invalid(
				"Invalid KeyConditionExpression: Incorrect operand type for operator or function; operator or function: begins_with, operand type: N")
		}
	}
	for _, o := range all {
		if v, ok := o.(constant); ok && v.v.kind != k.kind {
			return invalid("One or more parameter values were invalid: Condition parameter type does not match schema type")
		}
	}
	return nil
}

// relation reads one part: the attribute, the test of its value, and the value when it is an equation.
func relation(c cond) (name string, test func(value) bool, equals *value, err error) {
	unsupported := invalid("%s", errKeyCondition)
	var of operand
	var constants []operand
	switch c := c.(type) {
	case compare:
		of, constants = c.a, []operand{c.b}
		if _, ok := c.a.(constant); ok { // :v = pk
			of, constants = c.b, []operand{c.a}
		}
	case between:
		of, constants = c.v, []operand{c.low, c.high}
	case call:
		if c.name == "begins_with" {
			of, constants = c.args[0], c.args[1:]
		}
	}
	p, ok := of.(path)
	if !ok || len(p) != 1 {
		return "", nil, nil, unsupported
	}
	for _, o := range constants {
		if _, ok := o.(constant); !ok {
			return "", nil, nil, unsupported
		}
	}
	name = p[0].name
	test = func(v value) bool {
		yes, err := c.eval(item{name: v})
		return yes && err == nil
	}
	if cmp, ok := c.(compare); ok {
		if cmp.op == "<>" {
			return "", nil, nil, unsupported
		}
		if v := constants[0].(constant).v; cmp.op == "=" {
			equals = &v
		}
	}
	return name, test, equals, nil
}

// keyInFilter is a key attribute that a filter mentions, "" for none.
func keyInFilter(c cond, keys []string) string {
	found := ""
	look := func(all ...operand) {
		for _, o := range all {
			for {
				f, ok := o.(call)
				if !ok {
					break
				}
				o = f.args[0]
			}
			p, ok := o.(path)
			for _, k := range keys {
				if ok && p[0].name == k {
					found = k
				}
			}
		}
	}
	switch c := c.(type) {
	case both:
		return firstOf(keyInFilter(c.a, keys), keyInFilter(c.b, keys))
	case either:
		return firstOf(keyInFilter(c.a, keys), keyInFilter(c.b, keys))
	case negated:
		return keyInFilter(c.c, keys)
	case compare:
		look(c.a, c.b)
	case between:
		look(c.v, c.low, c.high)
	case among:
		look(append([]operand{c.v}, c.set...)...)
	case call:
		look(c.args...)
	}
	return found
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
