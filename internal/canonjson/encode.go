package canonjson

import (
	"bytes"
	"fmt"
	"slices"
)

// MaxDepth is how deep arrays and objects may be nested.
const MaxDepth = 512

// Error is why a text has no canonical form, and where: Offset counts bytes of the input.
type Error struct {
	Offset  int
	Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("json at byte %d: %s", e.Offset, e.Problem) }

// Append appends the canonical form of src to dst. On an error (*Error) it returns dst as it was.
func Append(dst, src []byte) ([]byte, error) {
	var e Encoder
	return e.Append(dst, src)
}

// Encoder is Append with buffers that are kept between calls. The zero Encoder is ready; it serves one goroutine.
type Encoder struct {
	src, dst []byte
	pos      int
	depth    int
	members  []member // of the objects that are open, innermost last
	scratch  []byte   // the members of one object on their way into order
	digits   []byte   // of one number
}

// member is one member in dst: the quoted name is dst[start:name], the value ends at end.
type member struct {
	start, name, end int
	// plain: the bytes of the name sort like its UTF-16 code units.
	plain bool
}

// Append appends the canonical form of src to dst. On an error (*Error) it returns dst as it was.
func (e *Encoder) Append(dst, src []byte) ([]byte, error) {
	e.src, e.dst, e.pos, e.depth, e.members = src, dst, 0, 0, e.members[:0]
	err := e.document()
	out := e.dst
	e.src, e.dst = nil, nil // keep nothing of the caller's
	if err != nil {
		return dst, err
	}
	return out, nil
}

func (e *Encoder) document() error {
	if err := e.value(); err != nil {
		return err
	}
	e.space()
	if e.pos < len(e.src) {
		return e.fail("text after the value")
	}
	return nil
}

func (e *Encoder) fail(problem string) error { return &Error{Offset: e.pos, Problem: problem} }

func (e *Encoder) space() {
	for e.pos < len(e.src) {
		switch e.src[e.pos] {
		case ' ', '\t', '\n', '\r':
			e.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte; 0 at the end (no JSON text has a zero byte outside of strings).
func (e *Encoder) peek() byte {
	e.space()
	if e.pos == len(e.src) {
		return 0
	}
	return e.src[e.pos]
}

func (e *Encoder) value() error {
	switch c := e.peek(); {
	case c == '"':
		_, err := e.str()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return e.number()
	case c == '{' || c == '[':
		return e.nested(c)
	case c == 't':
		return e.literal("true")
	case c == 'f':
		return e.literal("false")
	case c == 'n':
		return e.literal("null")
	case e.pos == len(e.src):
		return e.fail("the text ends where a value is expected")
	}
	return e.fail("not a value")
}

func (e *Encoder) nested(c byte) (err error) {
	if e.depth++; e.depth > MaxDepth {
		return e.fail(fmt.Sprintf("nested deeper than %d", MaxDepth))
	}
	if c == '{' {
		err = e.object()
	} else {
		err = e.array()
	}
	e.depth--
	return err
}

func (e *Encoder) literal(word string) error {
	if !bytes.HasPrefix(e.src[e.pos:], []byte(word)) {
		return e.fail("not a value")
	}
	e.pos += len(word)
	e.dst = append(e.dst, word...)
	return nil
}

func (e *Encoder) array() error {
	e.pos++
	e.dst = append(e.dst, '[')
	if e.peek() == ']' {
		return e.closed(']')
	}
	for {
		if err := e.value(); err != nil {
			return err
		}
		switch e.peek() {
		case ']':
			return e.closed(']')
		case ',':
			e.pos++
			e.dst = append(e.dst, ',')
		default:
			return e.fail("expected , or ] in an array")
		}
	}
}

func (e *Encoder) closed(c byte) error {
	e.pos++
	e.dst = append(e.dst, c)
	return nil
}

func (e *Encoder) object() error {
	at, first := e.pos, len(e.members)
	e.pos++
	e.dst = append(e.dst, '{')
	body := len(e.dst)
	if e.peek() == '}' {
		return e.closed('}')
	}
	for {
		if err := e.member(); err != nil {
			return err
		}
		switch e.peek() {
		case '}':
			if !e.order(first, body) {
				return &Error{Offset: at, Problem: "an object has the same member name twice"}
			}
			e.members = e.members[:first]
			return e.closed('}')
		case ',':
			e.pos++
			e.dst = append(e.dst, ',')
		default:
			return e.fail("expected , or } in an object")
		}
	}
}

func (e *Encoder) member() error {
	if e.peek() != '"' {
		return e.fail("expected a member name in quotes")
	}
	m := member{start: len(e.dst)}
	var err error
	if m.plain, err = e.str(); err != nil {
		return err
	}
	m.name = len(e.dst)
	if e.peek() != ':' {
		return e.fail("expected : after a member name")
	}
	e.pos++
	e.dst = append(e.dst, ':')
	if err = e.value(); err != nil {
		return err
	}
	m.end = len(e.dst)
	e.members = append(e.members, m)
	return nil
}

// order puts the members from first on, which stand in dst from body on with commas between them, into the order of
// their names. It reports false when two names are the same.
func (e *Encoder) order(first, body int) bool {
	ms := e.members[first:]
	sorted := true
	for i := 1; i < len(ms) && sorted; i++ {
		sorted = e.compare(ms[i-1], ms[i]) < 0
	}
	if sorted {
		return true
	}
	e.sort(ms)
	e.scratch = e.scratch[:0]
	for i, m := range ms {
		if i > 0 {
			if e.compare(ms[i-1], m) == 0 {
				return false
			}
			e.scratch = append(e.scratch, ',')
		}
		e.scratch = append(e.scratch, e.dst[m.start:m.end]...)
	}
	copy(e.dst[body:], e.scratch)
	return true
}

// sort is slices.SortFunc, which costs an allocation for its function, only for the objects that gain by it.
func (e *Encoder) sort(ms []member) {
	if len(ms) > 16 {
		slices.SortFunc(ms, e.compare)
		return
	}
	for i := 1; i < len(ms); i++ {
		for j := i; j > 0 && e.compare(ms[j], ms[j-1]) < 0; j-- {
			ms[j], ms[j-1] = ms[j-1], ms[j]
		}
	}
}

func (e *Encoder) compare(a, b member) int {
	// The closing quote is left out: it must not take part in the order.
	x, y := e.dst[a.start+1:a.name-1], e.dst[b.start+1:b.name-1]
	if a.plain && b.plain {
		return bytes.Compare(x, y)
	}
	return compareUTF16(x, y)
}
