package fakedynamodb

import (
	"slices"
	"strings"
)

// call is a function of conditions. All but size are boolean.
type call struct {
	name string
	args []operand
	what string // the expression, for errors
}

// arity is how many arguments the functions of conditions take.
var arity = map[string]int{
	"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2, "size": 1,
}

var typeNames = []string{"B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M"}

// function reads a call.
func (p *parser) function() call {
	c := call{name: p.next().text, what: p.what}
	p.want("(")
	if !p.deeper() {
		return c
	}
	defer func() { p.depth-- }()
	p.operator()
	n, known := arity[c.name]
	if !known {
		p.fail("Invalid function name; function: %s", c.name)
		return c
	}
	for p.err == nil {
		c.args = append(c.args, p.operand())
		if _, ok := p.sign(","); !ok {
			break
		}
	}
	p.want(")")
	if p.err == nil && len(c.args) != n {
		p.fail("Incorrect number of operands for operator or function; operator or function: %s, number of operands: %d",
			c.name, len(c.args))
	}
	if p.err == nil {
		p.arguments(c)
	}
	return c
}

// arguments refuses what a function can never take.
func (p *parser) arguments(c call) {
	if len(c.args) == 2 {
		p.distinct(c.name, c.args[0], c.args[1])
	}
	first, isConstant := c.args[0].(constant)
	_, isPath := c.args[0].(path)
	switch c.name {
	case "attribute_exists", "attribute_not_exists", "attribute_type":
		if !isPath {
			p.fail("Operator or function requires a document path; operator or function: %s", c.name)
			return
		}
	case "size":
		if isConstant && !sizeable(first.v) {
			p.wrongType(c.name, first.v)
		}
		return
	}
	if len(c.args) < 2 {
		return
	}
	second, ok := c.args[1].(constant)
	switch {
	case c.name == "begins_with" && isConstant && !textual(first.v):
		p.wrongType(c.name, first.v)
	case c.name == "begins_with" && ok && !textual(second.v):
		p.wrongType(c.name, second.v)
	case c.name == "attribute_type" && ok && second.v.kind != "S":
		p.wrongType(c.name, second.v)
	case c.name == "attribute_type" && ok && !slices.Contains(typeNames, second.v.text):
		p.fail("Invalid attribute type name found; type: %s, valid types: {%s}", second.v.text, strings.Join(typeNames, ","))
	}
}

func (p *parser) wrongType(function string, v value) {
	p.fail("Incorrect operand type for operator or function; operator or function: %s, operand type: %s", function, v.kind)
}

func textual(v value) bool  { return v.kind == "S" || v.kind == "B" }
func sizeable(v value) bool { return v.kind != "N" && v.kind != "BOOL" && v.kind != "NULL" }

// get is size.
func (c call) get(it item) (value, bool, error) {
	v, ok, err := c.args[0].get(it)
	if err != nil || !ok {
		return value{}, false, err
	}
	if !sizeable(v) {
		return value{}, false, atRun(
			"Invalid %s: Incorrect operand type for operator or function; operator or function: size, operand type: %s",
			c.what, v.kind)
	}
	n := len(v.text) + len(v.list) + len(v.set) + len(v.m)
	return number(n), true, nil
}

func (c call) eval(it item) (bool, error) {
	a, ok, err := c.args[0].get(it)
	if err != nil {
		return false, err
	}
	switch c.name {
	case "attribute_exists":
		return ok, nil
	case "attribute_not_exists":
		return !ok, nil
	}
	b, ok2, err := c.args[1].get(it)
	if err != nil || !ok || !ok2 {
		return false, err
	}
	switch c.name {
	case "attribute_type":
		return b.kind == "S" && a.kind == b.text, nil
	case "begins_with":
		return a.kind == b.kind && textual(a) && strings.HasPrefix(a.text, b.text), nil
	}
	return contains(a, b), nil
}
