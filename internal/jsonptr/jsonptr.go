// Package jsonptr finds values in JSON text by JSON Pointer (RFC 6901), without building a tree of it.
//
// It is stricter than the RFC in one point: an object on the way that has the wanted member twice is an error, because
// two readers of such a text may see two values.
package jsonptr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/semel-dev/semel/internal/canonjson"
)

// Why a pointer leads to no value.
var (
	// ErrNotFound: the pointer leads to no value of the text.
	ErrNotFound = errors.New("no such value")
	// ErrNotJSON: the text is not JSON.
	ErrNotJSON = errors.New("not JSON")
	// ErrAmbiguous: an object on the way has the member twice.
	ErrAmbiguous = errors.New("the member stands there twice")
)

// Pointer is a parsed JSON Pointer. The zero Pointer means the whole text.
type Pointer struct {
	text   string
	tokens []string
}

// Parse reads the string form of a pointer: "" or /token/token, with ~1 for / and ~0 for ~ inside of tokens.
func Parse(s string) (Pointer, error) {
	if s == "" {
		return Pointer{}, nil
	}
	if s[0] != '/' {
		return Pointer{}, fmt.Errorf("JSON pointer %q does not begin with /", s)
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		u, err := unescape(t)
		if err != nil {
			return Pointer{}, fmt.Errorf("JSON pointer %q: %w", s, err)
		}
		tokens[i] = u
	}
	return Pointer{text: s, tokens: tokens}, nil
}

func unescape(t string) (string, error) {
	if !strings.Contains(t, "~") {
		return t, nil
	}
	for i := 0; i < len(t); i++ {
		if t[i] != '~' {
			continue
		}
		if i++; i == len(t) || t[i] != '0' && t[i] != '1' {
			return "", errors.New("~ must be followed by 0 or 1 (write ~0 for ~ and ~1 for /)")
		}
	}
	// In this order: ~01 is ~1, not /.
	return strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~"), nil
}

// String returns the text that was parsed.
func (p Pointer) String() string { return p.text }

// Find returns the value that p points to as it stands in doc, without the white space around it. Its errors are the
// sentinels of this package. It reads the whole text, for what is cut off or malformed anywhere is not JSON.
func (p Pointer) Find(doc []byte) ([]byte, error) {
	if !json.Valid(doc) {
		return nil, ErrNotJSON
	}
	return p.FindValid(doc)
}

// FindValid is Find for a text that is known to be JSON; of any other text it returns an error or a part of it.
func (p Pointer) FindValid(doc []byte) ([]byte, error) {
	i := space(doc, 0)
	for _, token := range p.tokens {
		var err error
		switch at(doc, i) {
		case '{':
			i, err = inObject(doc, i, token)
		case '[':
			i, err = inArray(doc, i, token)
		default:
			err = ErrNotFound
		}
		if err != nil {
			return nil, err
		}
	}
	return doc[i:skip(doc, i)], nil
}

// inObject returns where the value of the named member begins; doc[i] is the brace.
func inObject(doc []byte, i int, name string) (int, error) {
	found := -1
	for i = space(doc, i+1); at(doc, i) == '"'; i = space(doc, i+1) {
		end := skip(doc, i)
		same := isName(doc[i:end], name)
		i = space(doc, end)
		if at(doc, i) != ':' {
			return 0, ErrNotJSON
		}
		i = space(doc, i+1)
		if same {
			if found >= 0 {
				return 0, ErrAmbiguous
			}
			found = i
		}
		if i = space(doc, skip(doc, i)); at(doc, i) != ',' {
			break
		}
	}
	if found < 0 {
		return 0, ErrNotFound
	}
	return found, nil
}

// isName compares a quoted member name with a token, as characters.
func isName(raw []byte, name string) bool {
	if len(raw) < 2 {
		return false
	}
	if in := raw[1 : len(raw)-1]; string(in) == name {
		return !strings.Contains(name, `\`)
	}
	if len(raw)-2 <= len(name) || bytes.IndexByte(raw, '\\') < 0 { // escapes only make a name longer
		return false
	}
	s, err := canonjson.Unquote(raw)
	return err == nil && s == name
}

// inArray returns where the value of the element begins; doc[i] is the bracket. The token - (behind the last element)
// never has a value.
func inArray(doc []byte, i int, token string) (int, error) {
	left, ok := index(token)
	if !ok {
		return 0, ErrNotFound
	}
	for i = space(doc, i+1); i < len(doc) && doc[i] != ']'; i = space(doc, i+1) {
		if left == 0 {
			return i, nil
		}
		left--
		if i = space(doc, skip(doc, i)); at(doc, i) != ',' {
			break
		}
	}
	return 0, ErrNotFound
}

// index reads an array index: digits without leading zeros. A number that no array can have is no index.
func index(token string) (int, bool) {
	if token == "" || len(token) > 9 || len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// at is doc[i]; 0 behind the end.
func at(doc []byte, i int) byte {
	if i >= len(doc) {
		return 0
	}
	return doc[i]
}

func space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\n' || doc[i] == '\r') {
		i++
	}
	return i
}

// skip returns the end of the value that begins at i. It only counts brackets, and so needs no recursion.
func skip(doc []byte, i int) int {
	depth := 0
	for i < len(doc) {
		switch doc[i] {
		case '"':
			i = skipString(doc, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i // the end of what holds a scalar
			}
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default: // a number or literal
			for i < len(doc) && !ends(doc[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

func ends(c byte) bool {
	switch c {
	case ',', ':', ' ', '\t', '\n', '\r', '}', ']', '{', '[', '"':
		return true
	}
	return false
}

func skipString(doc []byte, i int) int {
	for i++; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(doc)
}
