package fakedynamodb

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A fake spends most of its time reading and writing items, and most items are plain. This file reads and writes these
// without reflection. encoding/json, which knows all the rules, handles the others.

// MarshalJSON writes the item as the protocol has it.
func (m item) MarshalJSON() ([]byte, error) { return m.appendJSON(nil) }

// MarshalJSON writes the value as the protocol has it.
func (v value) MarshalJSON() ([]byte, error) { return v.appendJSON(nil) }

func (m item) appendJSON(b []byte) (_ []byte, err error) {
	if m == nil {
		return append(b, "null"...), nil
	}
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendText(b, name); err != nil {
			return nil, err
		}
		if b, err = m[name].appendJSON(append(b, ':')); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func (v value) appendJSON(b []byte) (_ []byte, err error) {
	b = append(append(append(b, `{"`...), v.kind...), `":`...)
	switch v.kind {
	case "S", "N":
		b, err = appendText(b, v.text)
	case "B":
		b = appendBytes(b, v.text)
	case "BOOL":
		b = strconv.AppendBool(b, v.yes)
	case "NULL":
		b = append(b, "true"...)
	case "M":
		b, err = v.m.appendJSON(b)
	case "L":
		b = append(b, '[')
		for i := 0; i < len(v.list) && err == nil; i++ {
			if i > 0 {
				b = append(b, ',')
			}
			b, err = v.list[i].appendJSON(b)
		}
		b = append(b, ']')
	default:
		b, err = v.appendSet(b)
	}
	return append(b, '}'), err
}

func (v value) appendSet(b []byte) (_ []byte, err error) {
	b = append(b, '[')
	for i := 0; i < len(v.set) && err == nil; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		if v.kind == "BS" {
			b = appendBytes(b, v.set[i])
		} else {
			b, err = appendText(b, v.set[i])
		}
	}
	return append(b, ']'), err
}

func appendBytes(b []byte, text string) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), []byte(text)), '"')
}

// plain reports that encoding/json writes a byte unchanged.
func plain(c byte) bool {
	return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func appendText(b []byte, text string) ([]byte, error) {
	for i := range len(text) {
		if !plain(text[i]) {
			quoted, err := json.Marshal(text)
			return append(b, quoted...), err
		}
	}
	return append(append(append(b, '"'), text...), '"'), nil
}

// UnmarshalJSON reads an item, and holds its values against the rules of their types.
func (m *item) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	r := reader{b: b}
	if it, ok := r.item(); ok && r.rest() {
		*m = it
		return nil
	}
	return json.Unmarshal(b, (*map[string]value)(m))
}

// reader reads JSON that encoding/json has found to be valid. ok is false where it is not plain: then nothing of what was
// read counts.
type reader struct {
	b []byte
	i int
}

// next passes white space and a byte, if it is the next one.
func (r *reader) next(c byte) bool {
	for r.i < len(r.b) && (r.b[r.i] == ' ' || r.b[r.i] == '\n' || r.b[r.i] == '\t' || r.b[r.i] == '\r') {
		r.i++
	}
	if r.i < len(r.b) && r.b[r.i] == c {
		r.i++
		return true
	}
	return false
}

// rest reports that nothing is left to read.
func (r *reader) rest() bool {
	r.next(0)
	return r.i == len(r.b)
}

func (r *reader) item() (item, bool) {
	if !r.next('{') {
		return nil, false
	}
	m := item{}
	if r.next('}') {
		return m, true
	}
	for {
		name, ok := r.text()
		if !ok || !r.next(':') {
			return nil, false
		}
		v, ok := r.value()
		if !ok {
			return nil, false
		}
		m[name] = v
		if r.next('}') {
			return m, true
		}
		if !r.next(',') {
			return nil, false
		}
	}
}

// value reads an object of one member. Sets, and what breaks a rule, are not plain.
func (r *reader) value() (v value, ok bool) {
	if !r.next('{') {
		return v, false
	}
	kind, ok := r.text()
	if !ok || !r.next(':') {
		return v, false
	}
	switch kind {
	case "S":
		v.kind = "S"
		v.text, ok = r.text()
	case "N":
		v.kind = "N"
		v.text, ok = r.number()
	case "B":
		v.kind = "B"
		v.text, ok = r.bytes()
	case "BOOL":
		v.kind = "BOOL"
		v.yes = r.word("true")
		ok = v.yes || r.word("false")
	case "NULL":
		v.kind = "NULL"
		ok = r.word("true")
	case "L":
		v.kind = "L"
		v.list, ok = r.list()
	case "M":
		v.kind = "M"
		v.m, ok = r.item()
	default:
		return v, false
	}
	return v, ok && r.next('}')
}

func (r *reader) word(w string) bool {
	r.next(0)
	if r.i+len(w) <= len(r.b) && string(r.b[r.i:r.i+len(w)]) == w {
		r.i += len(w)
		return true
	}
	return false
}

func (r *reader) text() (string, bool) {
	if !r.next('"') {
		return "", false
	}
	start, ascii := r.i, true
	for r.i < len(r.b) {
		switch c := r.b[r.i]; {
		case c == '"':
			s := string(r.b[start:r.i])
			r.i++
			return s, ascii || utf8.ValidString(s)
		case c == '\\' || c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
		r.i++
	}
	return "", false
}

// number reads a number in the form that the service returns: a few digits.
func (r *reader) number() (string, bool) {
	s, ok := r.text()
	if !ok || s == "" || len(s) > maxDigits || len(s) > 1 && s[0] == '0' {
		return "", false
	}
	for i := range len(s) {
		if !digit(s[i]) {
			return "", false
		}
	}
	return s, true
}

func (r *reader) bytes() (string, bool) {
	s, ok := r.text()
	if !ok {
		return "", false
	}
	b, err := base64.StdEncoding.DecodeString(s)
	return string(b), err == nil
}

func (r *reader) list() ([]value, bool) {
	if !r.next('[') {
		return nil, false
	}
	l := []value{}
	if r.next(']') {
		return l, true
	}
	for {
		v, ok := r.value()
		if !ok {
			return nil, false
		}
		l = append(l, v)
		if r.next(']') {
			return l, true
		}
		if !r.next(',') {
			return nil, false
		}
	}
}
