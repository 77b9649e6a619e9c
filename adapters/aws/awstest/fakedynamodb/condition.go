package fakedynamodb

import (
	"slices"
	"strings"
)

// operand is a side of a comparison or an argument of a function.
type operand interface {
	// get is the value against an item, false when there is none.
	get(it item) (value, bool, error)
}

type constant struct{ v value }

func (c constant) get(item) (value, bool, error) { return c.v, true, nil }

func (p path) get(it item) (value, bool, error) {
	v, ok := it[p[0].name]
	for _, s := range p[1:] {
		switch {
		case !ok:
			return value{}, false, nil
		case s.at < 0 && v.kind == "M":
			v, ok = v.m[s.name]
		case s.at >= 0 && v.kind == "L" && s.at < len(v.list):
			v = v.list[s.at]
		default:
			return value{}, false, nil
		}
	}
	return v, ok, nil
}

// cond is a condition, or a part of one.
type cond interface {
	eval(it item) (bool, error)
}

type (
	both    struct{ a, b cond }
	either  struct{ a, b cond }
	negated struct{ c cond }
	compare struct {
		op   string
		a, b operand
	}
	between struct{ v, low, high operand }
	among   struct {
		v   operand
		set []operand
	}
)

// parseCondition reads a ConditionExpression, FilterExpression or KeyConditionExpression.
func parseCondition(what, src string, b *binding) (cond, error) {
	p := newParser(what, src, b)
	c := p.or()
	return c, p.end()
}

func (p *parser) or() cond {
	c := p.and()
	for p.err == nil {
		if _, ok := p.word("OR"); !ok {
			break
		}
		p.operator()
		c = either{c, p.and()}
		p.group = false
	}
	return c
}

func (p *parser) and() cond {
	c := p.not()
	for p.err == nil {
		if _, ok := p.word("AND"); !ok {
			break
		}
		p.operator()
		c = both{c, p.not()}
		p.group = false
	}
	return c
}

func (p *parser) not() cond {
	if !p.deeper() {
		return nil
	}
	defer func() { p.depth-- }()
	if _, ok := p.word("NOT"); ok {
		p.operator()
		c := negated{p.not()}
		p.group = false
		return c
	}
	if _, ok := p.sign("("); ok {
		c := p.or()
		p.want(")")
		if p.group {
			p.redundant()
		}
		p.group = true
		return c
	}
	p.group = false
	return p.simple()
}

// simple reads a comparison or a boolean function.
func (p *parser) simple() cond {
	if p.atFunction() {
		f := p.function()
		if f.name != "size" {
			return f
		}
		return p.comparison(f)
	}
	return p.comparison(p.operand())
}

func (p *parser) comparison(a operand) cond {
	p.operator()
	if op, ok := p.sign("=", "<>", "<", "<=", ">", ">="); ok {
		c := compare{op, a, p.operand()}
		p.orderable(op, c.a, c.b)
		p.distinct(op, c.a, c.b)
		return c
	}
	if _, ok := p.word("BETWEEN"); ok {
		c := between{v: a, low: p.operand()}
		if _, ok := p.word("AND"); !ok {
			p.syntax()
			return nil
		}
		c.high = p.operand()
		p.orderable("BETWEEN", c.v, c.low, c.high)
		p.bounds(c)
		return c
	}
	if _, ok := p.word("IN"); ok {
		c := among{v: a}
		p.want("(")
		for p.err == nil {
			c.set = append(c.set, p.operand())
			if _, ok := p.sign(","); !ok {
				break
			}
		}
		p.want(")")
		if len(c.set) > 100 {
			p.fail("The IN operator is provided with too many operands; number of operands: %d", len(c.set))
		}
		return c
	}
	p.syntax()
	return nil
}

func (p *parser) atFunction() bool {
	return p.peek().kind == tokWord && p.toks[p.i+1].kind == tokSign && p.toks[p.i+1].text == "("
}

func (p *parser) operand() operand {
	if p.err != nil {
		return nil
	}
	switch {
	case p.peek().kind == tokValue:
		return constant{p.constant()}
	case p.atFunction():
		f := p.function()
		if p.err == nil && f.name != "size" {
			p.fail("The function is not allowed to be used this way in an expression; function: %s", f.name)
		}
		return f
	}
	if _, ok := p.sign("("); ok {
		if !p.deeper() {
			return nil
		}
		defer func() { p.depth-- }()
		if p.peek().text == "(" {
			p.redundant()
		}
		o := p.operand()
		p.want(")")
		return o
	}
	return p.path()
}

// distinct refuses to compare an attribute with itself.
func (p *parser) distinct(op string, a, b operand) {
	x, ok1 := a.(path)
	y, ok2 := b.(path)
	if ok1 && ok2 && p.err == nil && slices.Equal(x, y) {
		p.fail("The first operand must be distinct from the remaining operands for this operator or function; operator: %s, first operand: %s", op, x)
	}
}

// orderable refuses constants that have no order.
func (p *parser) orderable(op string, all ...operand) {
	for _, o := range all {
		if c, ok := o.(constant); ok && p.err == nil && op != "=" && op != "<>" && !c.v.ordered() {
			p.fail("Incorrect operand type for operator or function; operator or function: %s, operand type: %s", op, c.v.kind)
		}
	}
}

// bounds refuses constant bounds of BETWEEN that hold nothing.
func (p *parser) bounds(c between) {
	low, ok1 := c.low.(constant)
	high, ok2 := c.high.(constant)
	if !ok1 || !ok2 || p.err != nil {
		return
	}
	if low.v.kind != high.v.kind {
		p.fail("The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: AttributeValue: %s, upper bound operand: AttributeValue: %s",
			low.v, high.v)
	} else if low.v.cmp(high.v) > 0 {
		p.fail("The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: %s, upper bound operand: AttributeValue: %s",
			low.v, high.v)
	}
}

func (c both) eval(it item) (bool, error) {
	a, err := c.a.eval(it)
	if err != nil || !a {
		return false, err
	}
	return c.b.eval(it)
}

func (c either) eval(it item) (bool, error) {
	a, err := c.a.eval(it)
	if err != nil || a {
		return a, err
	}
	return c.b.eval(it)
}

func (c negated) eval(it item) (bool, error) {
	yes, err := c.c.eval(it)
	return !yes, err
}

// eval compares two values. A missing value equals nothing and has no order, so only <> holds for it.
func (c compare) eval(it item) (bool, error) {
	a, okA, err := c.a.get(it)
	if err != nil {
		return false, err
	}
	b, okB, err := c.b.get(it)
	if err != nil {
		return false, err
	}
	there := okA && okB
	switch c.op {
	case "=":
		return there && a.equal(b), nil
	case "<>":
		return !there || !a.equal(b), nil
	}
	return there && holds(c.op, a, b), nil
}

// holds compares by order: only values of one type have one.
func holds(op string, a, b value) bool {
	if a.kind != b.kind || !a.ordered() {
		return false
	}
	n := a.cmp(b)
	switch op {
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	case ">":
		return n > 0
	case ">=":
		return n >= 0
	}
	return n == 0
}

func (c between) eval(it item) (bool, error) {
	return both{compare{">=", c.v, c.low}, compare{"<=", c.v, c.high}}.eval(it)
}

func (c among) eval(it item) (bool, error) {
	for _, o := range c.set {
		if yes, err := (compare{"=", c.v, o}).eval(it); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}

// contains reports whether a value contains another one.
func contains(a, b value) bool {
	switch a.kind {
	case "S", "B":
		return a.kind == b.kind && strings.Contains(a.text, b.text)
	case "SS", "NS", "BS":
		return a.kind == b.kind+"S" && slices.Contains(a.set, b.text)
	case "L":
		return slices.ContainsFunc(a.list, b.equal)
	}
	return false
}
