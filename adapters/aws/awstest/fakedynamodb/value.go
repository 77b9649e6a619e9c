package fakedynamodb

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// maxDepth is how deep documents may be nested.
const maxDepth = 32

// value is an attribute's value. Values are never changed once they are made: items share them.
type value struct {
	kind string // S, N, B, BOOL, NULL, L, M, SS, NS or BS
	text string // S; N in the form that the service returns; B as bytes
	yes  bool   // BOOL
	list []value
	set  []string
	m    item
}

// item is an item, a key or the inside of a map.
type item map[string]value

// UnmarshalJSON reads a value and holds it against the rules of its type.
func (v *value) UnmarshalJSON(b []byte) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return serialization("an attribute value is not an object: %v", err)
	}
	maps.DeleteFunc(in, func(_ string, raw json.RawMessage) bool { return string(raw) == "null" }) // it is not there
	if len(in) == 0 {
		return invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
	}
	if len(in) > 1 {
		return invalid(
			"Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes")
	}
	for kind, raw := range in {
		v.kind = kind
		return v.read(raw)
	}
	return nil
}

func (v *value) read(raw json.RawMessage) error {
	var err error
	switch v.kind {
	case "S":
		err = typed(raw, &v.text)
	case "N":
		if err = typed(raw, &v.text); err == nil {
			v.text, err = canonical(v.text)
		}
	case "B":
		var b []byte
		err = typed(raw, &b)
		v.text = string(b)
	case "BOOL":
		err = typed(raw, &v.yes)
	case "NULL":
		var yes bool
		if err = typed(raw, &yes); err == nil && !yes {
			err = invalid("One or more parameter values were invalid: Null attribute value types must have the value of true")
		}
	case "L":
		err = typed(raw, &v.list)
	case "M":
		err = typed(raw, &v.m)
		if v.m == nil {
			v.m = item{}
		}
	case "SS", "NS", "BS":
		err = v.readSet(raw)
	default:
		err = serialization("unknown type %q of an attribute value", v.kind)
	}
	return err
}

// typed decodes JSON of the expected type; what it is not is a matter of the protocol, not of validation.
func typed(raw json.RawMessage, into any) error {
	err := json.Unmarshal(raw, into)
	wrong, syntax, base := (*json.UnmarshalTypeError)(nil), (*json.SyntaxError)(nil), base64.CorruptInputError(0)
	if errors.As(err, &wrong) || errors.As(err, &syntax) || errors.As(err, &base) {
		return serialization("%v", err)
	}
	return err
}

func canonical(s string) (string, error) {
	d, err := parseNumber(s)
	if err != nil {
		return "", err
	}
	return d.String(), nil
}

// readSet reads the members of a set: at least one, no two the same.
func (v *value) readSet(raw json.RawMessage) error {
	if v.kind == "BS" {
		var in [][]byte
		if err := typed(raw, &in); err != nil {
			return err
		}
		for _, b := range in {
			v.set = append(v.set, string(b))
		}
	} else if err := typed(raw, &v.set); err != nil {
		return err
	}
	if len(v.set) == 0 {
		word := map[string]string{"SS": "string", "NS": "number", "BS": "binary"}[v.kind]
		return invalid("One or more parameter values were invalid: An %s set  may not be empty", word)
	}
	for i, s := range v.set {
		if v.kind == "NS" {
			n, err := canonical(s)
			if err != nil {
				return err
			}
			v.set[i] = n
		}
		if slices.Contains(v.set[:i], v.set[i]) {
			return invalid("One or more parameter values were invalid: Input collection [%s] contains duplicates.",
				strings.Join(v.set, ", "))
		}
	}
	return nil
}

// equal compares type and contents; sets have no order.
func (v value) equal(w value) bool {
	if v.kind != w.kind {
		return false
	}
	switch v.kind {
	case "L":
		return slices.EqualFunc(v.list, w.list, value.equal)
	case "M":
		return v.m.equal(w.m)
	case "SS", "NS", "BS":
		return len(v.set) == len(w.set) && !slices.ContainsFunc(v.set, func(s string) bool { return !slices.Contains(w.set, s) })
	}
	return v.text == w.text && v.yes == w.yes
}

func (m item) equal(n item) bool {
	if len(m) != len(n) {
		return false
	}
	for k, v := range m {
		if w, ok := n[k]; !ok || !v.equal(w) {
			return false
		}
	}
	return true
}

// ordered reports whether values of the type can be compared by order.
func (v value) ordered() bool { return v.kind == "S" || v.kind == "N" || v.kind == "B" }

// cmp orders two values of one ordered type: numbers by value, text and bytes by their bytes.
func (v value) cmp(w value) int {
	if v.kind == "N" {
		return mustNumber(v.text).cmp(mustNumber(w.text))
	}
	return strings.Compare(v.text, w.text)
}

// size is what the value counts by the documented rules.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
func (v value) size() int {
	n := 0
	switch v.kind {
	case "S", "B":
		n = len(v.text)
	case "N":
		n = numberSize(v.text)
	case "BOOL", "NULL":
		n = 1
	case "L":
		n = 3
		for _, e := range v.list {
			n += 1 + e.size()
		}
	case "M":
		n = 3 + len(v.m) + v.m.size()
	case "NS":
		for _, s := range v.set {
			n += numberSize(s)
		}
	default:
		for _, s := range v.set {
			n += len(s)
		}
	}
	return n
}

func (m item) size() int {
	n := 0
	for k, v := range m {
		n += len(k) + v.size()
	}
	return n
}

func (m item) depth() int {
	d := 0
	for _, v := range m {
		d = max(d, v.depth())
	}
	return d
}

func (v value) depth() int {
	d := 0
	switch v.kind {
	case "M":
		d = 1 + v.m.depth()
	case "L":
		for _, e := range v.list {
			d = max(d, e.depth())
		}
		d++
	}
	return d
}

// String is the value in messages.
func (v value) String() string {
	if v.ordered() {
		return "{" + v.kind + ":" + v.text + "}"
	}
	return "{" + v.kind + "}"
}
