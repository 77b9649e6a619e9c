package fakedynamodb

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// binding is what the names and values of a request's expressions stand for, and which of them were used.
type binding struct {
	names      map[string]string
	values     item
	usedNames  map[string]bool
	usedValues map[string]bool
}

// bind checks the placeholders of a request. any: there is an expression that may use them.
func bind(names map[string]string, values item, any bool) (*binding, error) {
	b := &binding{names: names, values: values, usedNames: map[string]bool{}, usedValues: map[string]bool{}}
	switch {
	case names != nil && !any:
		return nil, invalid("ExpressionAttributeNames can only be specified when using expressions")
	case values != nil && !any:
		return nil, invalid("ExpressionAttributeValues can only be specified when using expressions")
	case names != nil && len(names) == 0:
		return nil, invalid("ExpressionAttributeNames must not be empty")
	case values != nil && len(values) == 0:
		return nil, invalid("ExpressionAttributeValues must not be empty")
	}
	for k := range names {
		if !substitute(k, '#') {
			return nil, invalid("ExpressionAttributeNames contains invalid key: Syntax error; key: %q", k)
		}
	}
	for k := range values {
		if !substitute(k, ':') {
			return nil, invalid("ExpressionAttributeValues contains invalid key: Syntax error; key: %q", k)
		}
	}
	return b, nil
}

func substitute(k string, sign byte) bool {
	if len(k) < 2 || k[0] != sign {
		return false
	}
	return wordEnd(k, 1) == len(k)
}

// unused refuses placeholders that no expression uses.
func (b *binding) unused() error {
	if k := leftOver(b.names, b.usedNames); k != "" {
		return invalid("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", k)
	}
	if k := leftOver(b.values, b.usedValues); k != "" {
		return invalid("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", k)
	}
	return nil
}

func leftOver[V any](all map[string]V, used map[string]bool) string {
	var left []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if !used[k] {
			left = append(left, k)
		}
	}
	return strings.Join(left, ", ")
}

// step is one element of a document path: a name, or an index when name is "" and at ≥ 0.
type step struct {
	name string
	at   int // -1 for names
}

// path is a document path: a name and what follows it.
type path []step

func (p path) String() string {
	out := make([]string, len(p))
	for i, s := range p {
		if out[i] = s.name; s.at >= 0 {
			out[i] = "[" + strconv.Itoa(s.at) + "]"
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// parser reads one expression. The first error stops it: later errors do not count.
type parser struct {
	what  string // "ConditionExpression"
	src   string
	toks  []token
	i     int
	b     *binding
	err   error
	depth int
	// operators counts operators and functions. group means that the last part was all in parentheses.
	operators int
	group     bool
}

func newParser(what, src string, b *binding) *parser {
	p := &parser{what: what, src: src, b: b}
	switch {
	case strings.TrimSpace(src) == "":
		p.toks = scan("")
		p.fail("The expression can not be empty;")
	case len(src) > maxExpression:
		p.toks = scan("")
		p.fail("Expression size has exceeded the maximum allowed size; expression size: %d", len(src))
	default:
		p.toks = scan(src)
	}
	return p
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = invalid("Invalid %s: %s", p.what, fmt.Sprintf(format, args...))
	}
	p.i = len(p.toks) - 1
}

func (p *parser) syntax() {
	t := p.peek()
	from, to := max(p.i-1, 0), min(p.i+2, len(p.toks))
	near := p.src[p.toks[from].at:min(p.toks[to-1].at+len(p.toks[to-1].text), len(p.src))]
	p.fail("Syntax error; token: %q, near: %q", t.text, near)
}

func (p *parser) peek() token { return p.toks[p.i] }

func (p *parser) next() token {
	t := p.toks[p.i]
	if t.kind != tokEnd {
		p.i++
	}
	return t
}

// sign takes one of the signs when it is next.
func (p *parser) sign(texts ...string) (string, bool) {
	if t := p.peek(); t.kind == tokSign && slices.Contains(texts, t.text) {
		return p.next().text, true
	}
	return "", false
}

func (p *parser) want(text string) {
	if _, ok := p.sign(text); !ok {
		p.syntax()
	}
}

// word takes a keyword if it is next, in upper or lower case.
func (p *parser) word(texts ...string) (string, bool) {
	if t := p.peek(); t.kind == tokWord && slices.Contains(texts, strings.ToUpper(t.text)) {
		return strings.ToUpper(p.next().text), true
	}
	return "", false
}

// end is the error of the whole expression; behind its end nothing may follow.
func (p *parser) end() error {
	if p.err == nil && p.peek().kind != tokEnd {
		p.syntax()
	}
	return p.err
}

// name reads one element of a path between dots.
func (p *parser) name() string {
	t := p.next()
	switch {
	case t.kind == tokName:
		n, ok := p.b.names[t.text]
		if !ok {
			p.fail("An expression attribute name used in the document path is not defined; attribute name: %s", t.text)
		}
		p.b.usedNames[t.text] = true
		return n
	case t.kind == tokWord && isReserved(t.text):
		p.fail("Attribute name is a reserved keyword; reserved keyword: %s", t.text)
	case t.kind != tokWord:
		p.i = max(p.i-1, 0)
		p.syntax()
	}
	return t.text
}

func (p *parser) path() path {
	out := path{{name: p.name(), at: -1}}
	for p.err == nil {
		if _, ok := p.sign("."); ok {
			out = append(out, step{name: p.name(), at: -1})
			continue
		}
		if _, ok := p.sign("["); !ok {
			break
		}
		at, err := strconv.ParseInt(p.peek().text, 10, 32)
		if p.peek().kind != tokIndex || err != nil {
			p.syntax()
			break
		}
		p.next()
		p.want("]")
		out = append(out, step{at: int(at)})
	}
	if len(out) > maxDepth {
		p.fail("The document path has too many nesting elements; nesting limit: %d", maxDepth)
	}
	return out
}

// constant reads a :value.
func (p *parser) constant() value {
	t := p.next()
	v, ok := p.b.values[t.text]
	if !ok {
		p.fail("An expression attribute value used in expression is not defined; attribute value: %s", t.text)
	}
	p.b.usedValues[t.text] = true
	return v
}

// maxOperators is how many operators and functions an expression may have.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
const maxOperators = 300

// operator counts one.
func (p *parser) operator() {
	if p.operators++; p.operators > maxOperators {
		p.fail("The expression contains too many operators; operator count: %d, max operator count: %d", p.operators, maxOperators)
	}
}

func (p *parser) redundant() { p.fail("The expression has redundant parentheses;") }

// deeper bounds recursion.
func (p *parser) deeper() bool {
	if p.depth++; p.depth > maxOperators {
		p.fail("The expression contains too many operators; operator count: %d, max operator count: %d", p.depth, maxOperators)
		return false
	}
	return p.err == nil
}

// projection reads the paths of a ProjectionExpression.
func parseProjection(src string, b *binding) ([]path, error) {
	p := newParser("ProjectionExpression", src, b)
	var out []path
	for p.err == nil {
		one := p.path()
		if p.err == nil {
			p.overlap(out, one)
			out = append(out, one)
		}
		if _, ok := p.sign(","); !ok {
			break
		}
	}
	return out, p.end()
}

// overlap refuses a path that contains another one, or takes a list for a map.
func (p *parser) overlap(before []path, one path) {
	for _, other := range before {
		n := min(len(one), len(other))
		same := 0
		for same < n && one[same] == other[same] {
			same++
		}
		if same == n {
			p.fail("Two document paths overlap with each other; must remove or rewrite one of these paths; path one: %s, path two: %s", other, one)
			return
		}
		if (one[same].at >= 0) != (other[same].at >= 0) {
			p.fail("Two document paths conflict with each other; must remove or rewrite one of these paths; path one: %s, path two: %s", other, one)
			return
		}
	}
}
