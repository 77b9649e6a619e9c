package fakedynamodb

import (
	"slices"
	"strings"
)

// change is one action of an update expression.
type change struct {
	verb string // SET, REMOVE, ADD or DELETE
	at   path
	to   operand // SET, ADD, DELETE
}

// sum is a + b or a - b.
type sum struct {
	op   string
	a, b operand
}

// listAppend and ifNotExists are the functions of update expressions.
type (
	listAppend  struct{ a, b operand }
	ifNotExists struct {
		at   path
		then operand
	}
)

// parseUpdate reads an UpdateExpression.
func parseUpdate(src string, b *binding) ([]change, error) {
	p := newParser("UpdateExpression", src, b)
	var out []change
	seen := map[string]bool{}
	for p.err == nil {
		verb, ok := p.word("SET", "REMOVE", "ADD", "DELETE")
		if !ok {
			p.syntax()
			break
		}
		if seen[verb] {
			p.fail("The %q section can only be used once in an update expression;", verb)
		}
		seen[verb] = true
		for p.err == nil {
			out = append(out, p.change(verb))
			if _, ok := p.sign(","); !ok {
				break
			}
		}
		if p.err != nil || p.peek().kind == tokEnd {
			break
		}
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	var before []path
	for _, c := range out {
		p.overlap(before, c.at)
		before = append(before, c.at)
	}
	return out, p.err
}

func (p *parser) change(verb string) change {
	c := change{verb: verb, at: p.path()}
	if p.err != nil {
		return c
	}
	switch verb {
	case "SET":
		p.want("=")
		c.to = p.sum()
	case "ADD", "DELETE":
		if p.peek().kind != tokValue {
			p.syntax()
			return c
		}
		v := p.constant()
		c.to = constant{v}
		isSet := v.kind == "SS" || v.kind == "NS" || v.kind == "BS"
		if p.err == nil && !isSet && (verb == "DELETE" || v.kind != "N") {
			p.fail("Incorrect operand type for operator or function; operator: %s, operand type: %s, typeset: ALLOWED_FOR_%s_OPERAND",
				verb, longName(v.kind), verb)
		}
	}
	return c
}

// longName is the name of a type in messages about update expressions.
func longName(kind string) string {
	return map[string]string{
		"S": "STRING", "N": "NUMBER", "B": "BINARY", "BOOL": "BOOLEAN", "NULL": "NULL", "L": "LIST", "M": "MAP",
		"SS": "STRING_SET", "NS": "NUMBER_SET", "BS": "BINARY_SET",
	}[kind]
}

func (p *parser) sum() operand {
	a := p.term()
	op, ok := p.sign("+", "-")
	if !ok {
		return a
	}
	p.operator()
	s := sum{op: op, a: a, b: p.term()}
	for _, o := range []operand{s.a, s.b} {
		if c, ok := o.(constant); ok && p.err == nil && c.v.kind != "N" {
			p.fail("Incorrect operand type for operator or function; operator or function: %s, operand type: %s", op, c.v.kind)
		}
	}
	return s
}

// term reads a path, a constant or a function of update expressions.
func (p *parser) term() operand {
	if !p.deeper() {
		return nil
	}
	defer func() { p.depth-- }()
	switch {
	case p.peek().kind == tokValue:
		return constant{p.constant()}
	case !p.atFunction():
		if _, ok := p.sign("("); ok {
			o := p.sum()
			p.want(")")
			return o
		}
		return p.path()
	}
	name := p.next().text
	p.operator()
	p.want("(")
	var out operand
	switch name {
	case "if_not_exists":
		f := ifNotExists{}
		if p.peek().kind == tokValue || p.atFunction() {
			p.fail("Operator or function requires a document path; operator or function: if_not_exists")
			return nil
		}
		f.at = p.path()
		p.want(",")
		f.then = p.term()
		out = f
	case "list_append":
		f := listAppend{a: p.term()}
		p.want(",")
		f.b = p.term()
		for _, o := range []operand{f.a, f.b} {
			if c, ok := o.(constant); ok && c.v.kind != "L" {
				p.wrongType(name, c.v)
			}
		}
		out = f
	default:
		p.fail("Invalid function name; function: %s", name)
	}
	p.want(")")
	return out
}

const (
	errMissing = "The provided expression refers to an attribute that does not exist in the item"
	errOperand = "An operand in the update expression has an incorrect data type"
	errPath    = "The document path provided in the update expression is invalid for update"
)

// need is the value of an operand that has to be there.
func need(o operand, it item) (value, error) {
	v, ok, err := o.get(it)
	if err == nil && !ok {
		err = atRun("%s", errMissing)
	}
	return v, err
}

func pair(a, b operand, kind string, it item) (x, y value, err error) {
	if x, err = need(a, it); err != nil {
		return x, y, err
	}
	if y, err = need(b, it); err != nil {
		return x, y, err
	}
	if x.kind != kind || y.kind != kind {
		err = atRun("%s", errOperand)
	}
	return x, y, err
}

func (s sum) get(it item) (value, bool, error) {
	x, y, err := pair(s.a, s.b, "N", it)
	if err != nil {
		return value{}, false, err
	}
	return added(x, y, s.op == "-")
}

func added(x, y value, minus bool) (value, bool, error) {
	b := mustNumber(y.text)
	if minus {
		b = b.neg()
	}
	d, err := mustNumber(x.text).add(b)
	if err != nil {
		return value{}, false, asRun(err)
	}
	return value{kind: "N", text: d.String()}, true, nil
}

func (f listAppend) get(it item) (value, bool, error) {
	x, y, err := pair(f.a, f.b, "L", it)
	return value{kind: "L", list: slices.Concat(x.list, y.list)}, err == nil, err
}

func (f ifNotExists) get(it item) (value, bool, error) {
	if v, ok, err := f.at.get(it); ok || err != nil {
		return v, ok, err
	}
	return f.then.get(it)
}

// paths are the paths that changes name.
func paths(changes []change) []path {
	out := make([]path, len(changes))
	for i, c := range changes {
		out[i] = c.at
	}
	return out
}

// touchesKey refuses changes of key attributes.
func touchesKey(changes []change, keys []string) error {
	for _, c := range changes {
		if slices.Contains(keys, c.at[0].name) {
			return invalid(
				"One or more parameter values were invalid: Cannot update attribute %s. This attribute is part of the key", c.at[0].name)
		}
	}
	return nil
}

// onlyRemoves reports whether changes can add nothing to an item.
func onlyRemoves(changes []change) bool {
	return len(changes) > 0 && !slices.ContainsFunc(changes, func(c change) bool {
		return strings.HasPrefix(c.verb,
			"S") || c.verb == "ADD"
	})
}
