// Package key reads keys, fingerprints and versions from messages.
//
// A key identifies the operation that must take effect once. Prefer one that names the business operation: [FromJSON] takes it
// from fields of the body, [FromHeader] from a header. There are functions for the events of S3, EventBridge, SNS, Cloud
// Storage, Pub/Sub, Kafka, Stripe and GitHub, and for CloudEvents. Use [ByID], the default, only as a last resort: a producer
// that sends the same operation twice gives the two messages different IDs.
//
// The text form of a key ([Tuple]) and the recipe of a fingerprint are stored for as long as records are kept. Changing them
// turns duplicates into new messages.
package key

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
	"github.com/semel-dev/semel/internal/jsonptr"
)

// Func returns the key of a message, in its text form. It returns ErrMissing (wrapped or not) if the message has none. It must
// not block.
type Func func(m *driver.Message) (string, error)

// MaxBytes is the maximum length of a key's text form, in bytes.
const MaxBytes = 1024

const lowerHex = "0123456789abcdef"

// Tuple returns the text form of a key with one or more parts: the parts joined by |. Inside a part, | and \ are escaped with
// \, and control bytes and bytes that are not UTF-8 are written as \xNN. Different tuples have different texts: ("a|b", "c")
// differs from ("a", "b|c"). Parts are used byte by byte: case, white space and Unicode forms are not normalized. A tuple
// without parts is "", as is the tuple of one empty part, but a key cannot be empty (see [Check]).
func Tuple(parts ...string) string {
	n, plain := len(parts), true
	for _, p := range parts {
		n += len(p)
		plain = plain && isPlain(p)
	}
	if plain {
		return strings.Join(parts, "|")
	}
	b := make([]byte, 0, n+16)
	for i, p := range parts {
		if i > 0 {
			b = append(b, '|')
		}
		b = appendPart(b, p)
	}
	return string(b)
}

func isPlain(p string) bool {
	ascii := true
	for i := range len(p) {
		switch c := p[i]; {
		case c < 0x20 || c == 0x7F || c == '|' || c == '\\':
			return false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return ascii || utf8.ValidString(p)
}

func appendPart(b []byte, p string) []byte {
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRuneInString(p[i:])
		switch {
		case r == '|' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20 || r == 0x7F || r == utf8.RuneError && n == 1:
			b = append(b, '\\', 'x', lowerHex[p[i]>>4], lowerHex[p[i]&0xF])
		default:
			b = append(b, p[i:i+n]...)
		}
		i += n
	}
	return b
}

// SplitTuple is the inverse of [Tuple]: it returns the parts of a text form, at least one. It returns an *Error for a text that
// Tuple cannot have written.
func SplitTuple(text string) ([]string, error) {
	var parts []string
	var b []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '|':
			parts = append(parts, string(b))
			b = b[:0]
		case c != '\\':
			b = append(b, c)
		default:
			d, n := escapedByte(text[i+1:])
			b = append(b, d)
			i += n
		}
	}
	parts = append(parts, string(b))
	// Exactly the texts that Tuple writes: an escape too many or too few would be a second text of the same tuple.
	if Tuple(parts...) != text {
		return nil, &Error{Reason: fmt.Sprintf("%.80q is no text form of a tuple: write it with Tuple", text)}
	}
	return parts, nil
}

// escapedByte decodes the escape after a backslash: the byte, and the length of the escape. For an invalid escape it returns a
// byte that Tuple would write differently.
func escapedByte(s string) (c byte, n int) {
	if len(s) > 0 && s[0] != 'x' {
		return s[0], 1
	}
	if len(s) < 3 {
		return 0, 0
	}
	hi, lo := strings.IndexByte(lowerHex, s[1]), strings.IndexByte(lowerHex, s[2])
	return byte(hi<<4 | lo), 3
}

// Check returns an *Error for a text that cannot be a key: it is empty or blank, has more than [MaxBytes] bytes, or contains
// control bytes or bytes that are not UTF-8, which some stores cannot keep (Tuple escapes them). The engine checks every key.
// A message with an invalid key becomes a dead letter.
func Check(raw string) error {
	switch {
	case strings.TrimSpace(raw) == "":
		return &Error{Reason: "the key is empty: give the id of the operation"}
	case len(raw) > MaxBytes:
		return &Error{Reason: fmt.Sprintf("the key has %d bytes, more than %d: take fewer fields, or hash them",
			len(raw), MaxBytes)}
	case !utf8.ValidString(raw):
		return &Error{Reason: fmt.Sprintf("the key %.80q is not UTF-8: escape it with Tuple", raw)}
	}
	for i := range len(raw) {
		if raw[i] < 0x20 || raw[i] == 0x7F {
			return &Error{Reason: fmt.Sprintf("the key %.80q has a control character: escape it with Tuple", raw)}
		}
	}
	return nil
}

// keyOf returns the text form of parts, checked.
func keyOf(m *driver.Message, parts ...string) (string, error) {
	raw := Tuple(parts...)
	if err := Check(raw); err != nil {
		if e := (*Error)(nil); errors.As(err, &e) {
			e.MessageID = m.ID
		}
		return "", err
	}
	return raw, nil
}

func noKey(m *driver.Message, format string, args ...any) error {
	return &Error{MessageID: m.ID, Reason: fmt.Sprintf(format, args...), Missing: true}
}

func badKey(m *driver.Message, format string, args ...any) error {
	return &Error{MessageID: m.ID, Reason: fmt.Sprintf(format, args...)}
}

// ByID is the default Func. It uses the first of these that exists: the header idempotency-key, the CloudEvents headers (source
// and id), the headers message-id and nats-msg-id, and the broker's ID.
//
// Unless the sender sets one of the headers, the key identifies a delivery: a producer that sends twice, or a redrive by the
// broker, makes a second key for the same business operation. Prefer a field of the message: [FromJSON].
func ByID(m *driver.Message) (string, error) {
	if len(m.Headers) > 0 {
		if v := m.Header("idempotency-key"); v != "" {
			return keyOf(m, v)
		}
		if source, id, ok := cloudEventHeaders(m); ok {
			return keyOf(m, source, id)
		}
		if v := m.Header("message-id"); v != "" {
			return keyOf(m, v)
		}
		if v := m.Header("nats-msg-id"); v != "" {
			return keyOf(m, v)
		}
	}
	if m.ID == "" {
		return "", noKey(m, "the broker gives no id, and no header has one: set the header idempotency-key")
	}
	return keyOf(m, m.ID)
}

// First returns the first key that one of the functions finds. A function that returns ErrMissing passes the message to the
// next. Any other error ends the search, and the message becomes a dead letter: an empty ID is the sender's mistake, and
// another key would hide it. All functions share one key space: a broker's ID in one message and an equal order number in
// another are the same key. If no function finds a key, the error is ErrMissing and lists what each of them missed.
//
// First(FromJSON("/id"), ByID) uses the field id, or otherwise the headers and the broker's ID as [ByID] does, with its
// limits.
//
// It panics if there are no functions or one is nil.
func First(fns ...Func) Func {
	if len(fns) == 0 || slices.ContainsFunc(fns, func(f Func) bool { return f == nil }) {
		panic("semel: First: a key function is missing")
	}
	fns = slices.Clone(fns)
	return func(m *driver.Message) (string, error) {
		var missing []string
		for _, f := range fns {
			raw, err := f(m)
			if !errors.Is(err, ErrMissing) {
				return raw, err
			}
			reason := err.Error()
			if e := (*Error)(nil); errors.As(err, &e) {
				reason = e.Reason
			}
			missing = append(missing, reason)
		}
		return "", noKey(m, "%s", strings.Join(missing, "; "))
	}
}

// FromHeader takes the key from a header. The case of its name does not matter. A message without the header, or with an empty
// one, has no key (ErrMissing).
func FromHeader(name string) Func {
	return func(m *driver.Message) (string, error) {
		v := m.Header(name)
		if v == "" {
			return "", noKey(m, "no header %q", name)
		}
		return keyOf(m, v)
	}
}

// FromPosition makes the key from the message's position in the log: log/partition/offset. A message of a queue that is not a
// log has no key (ErrMissing).
//
// A producer that sends twice makes two keys, and so does a copy of the log: prefer a field of the message ([FromJSON]).
// The header semel-position of a redriven message takes precedence over its position.
func FromPosition() Func {
	return func(m *driver.Message) (string, error) {
		if v := m.Header(driver.PositionHeader); v != "" {
			return keyOf(m, v)
		}
		if m.Position == nil {
			return "", noKey(m, "queue %s gives no position: it is no log; take the key from the message (json:/order_id) or its id (id)",
				m.Queue)
		}
		return keyOf(m, m.Position.String())
	}
}

// FromJSON makes the key from fields of a JSON body: the [Tuple] of the values at the JSON Pointers (RFC 6901), in the given
// order.
//
// A string is used unchanged, a number in its canonical text (1, 1.0 and 1e0 are "1", and beyond 2^53 every digit counts),
// true and false as these words, an array or object as its canonical JSON. So the string "1" and the number 1 are the same
// part.
//
// A missing field, null, or a body that is not JSON is ErrMissing, with the pointer in its text. An empty string, array or
// object (only white space, or only nulls and empty values inside) is another error: it is the sender's mistake, and would
// give all messages without a value the same key. A duplicate member on the path is such an error too.
//
// It panics if there are no pointers or one is malformed. [Parse] returns an error instead.
func FromJSON(pointers ...string) Func {
	ptrs, err := parsePointers(pointers)
	if err != nil {
		panic("semel: FromJSON: " + err.Error())
	}
	return keyFromJSON(ptrs)
}

func parsePointers(pointers []string) ([]jsonptr.Pointer, error) {
	if len(pointers) == 0 {
		return nil, errors.New("no JSON pointer given")
	}
	ptrs := make([]jsonptr.Pointer, 0, len(pointers))
	for _, s := range pointers {
		p, err := jsonptr.Parse(s)
		if err != nil {
			return nil, err
		}
		ptrs = append(ptrs, p)
	}
	return ptrs, nil
}

func keyFromJSON(ptrs []jsonptr.Pointer) Func {
	return func(m *driver.Message) (string, error) {
		var array [4]string
		parts := array[:0]
		for i, p := range ptrs {
			find := p.FindValid
			if i == 0 {
				find = p.Find // validates the body, for the others too
			}
			raw, err := find(m.Body)
			if err != nil {
				return "", pointerError(m, "", p, err)
			}
			part, err := keyPart(raw)
			switch {
			case err != nil:
				return "", badKey(m, "the value at %q: %v", p, err)
			case string(raw) == "null":
				return "", noKey(m, "the value at %q is null", p)
			case isBlank(raw):
				return "", badKey(m, "the value at %q is %s, and it would be the key of every message without a value: "+
					"send the id, or leave the field out", p, emptyKind(raw))
			}
			parts = append(parts, part)
		}
		return keyOf(m, parts...)
	}
}

func pointerError(m *driver.Message, what string, p jsonptr.Pointer, err error) error {
	switch {
	case errors.Is(err, jsonptr.ErrNotJSON):
		return noKey(m, "%sno value at %q: the body is not JSON", what, p)
	case errors.Is(err, jsonptr.ErrNotFound):
		return noKey(m, "%sno value at %q in the body", what, p)
	}
	return badKey(m, "%sno value at %q: %v", what, p, err)
}

// isBlank reports whether a valid JSON text has no value that could name anything: it is null, a string of only white space,
// or an array or object that contains only such values. It returns at the first other value.
func isBlank(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == 'n':
			i += len("null") - 1
		case c == '"':
			end := i + 1
			for ; raw[end] != '"'; end++ {
				if raw[end] == '\\' {
					end++
				}
			}
			text := raw[i : end+1]
			i = end
			if rest := bytes.TrimLeft(raw[i+1:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				continue // the name of a member
			}
			if v, err := canonjson.Unquote(text); err != nil || strings.TrimSpace(v) != "" {
				return false
			}
		case strings.IndexByte("{}[],: \t\r\n", c) < 0:
			return false // a number, true or false
		}
	}
	return true
}

func emptyKind(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an empty object"
	case '[':
		return "an empty array"
	}
	return "an empty string"
}

// keyPart returns the text of a JSON value in a key.
func keyPart(raw []byte) (string, error) {
	if raw[0] == '"' {
		return canonjson.Unquote(raw)
	}
	b, err := canonjson.Append(nil, raw)
	return string(b), err
}
