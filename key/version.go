package key

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
	"github.com/semel-dev/semel/internal/jsonptr"
)

// VersionFunc returns the version of a message. If it returns an error or the version "", the message becomes a dead letter,
// because it cannot be ordered. It must not block.
type VersionFunc func(m *driver.Message) (driver.Version, error)

// Versions makes a key an entity whose messages replace each other: only the newest counts. A version older than the applied
// one is acked without running the handler (the decision Stale). The same version is a duplicate, or a mismatch if its payload
// differs. Use it for messages that contain a state ("the order is paid now"), but not for messages that contain a change
// ("add 5"), because none of those may be skipped.
//
// Config.Key must name the entity. Config.Fingerprint defaults to the body.
type Versions struct {
	// Of returns the version of a message.
	Of VersionFunc
	// Park makes a version wait until the one before it was applied, until its message is older than Park. Then the version
	// runs all the same, and a version that it passed over becomes a dead letter if it still comes.
	//
	// Park needs integers that count by one (BySequence), and a queue that reports when a message was sent or how often it was
	// delivered. Without either, no version waits. A message in an ordered group does not wait either, because it would block
	// its own predecessor. Defaults to 0: gaps are accepted, and a version that comes too late is stale.
	Park time.Duration
	// First is the first version of a sequence: no version is missing before it. BySequence sets 1. Only for Park.
	First int64
	// Clocked: the versions are times of the senders' clocks, which the guarantee mentions. ByTimestamp sets it.
	Clocked bool
}

// ByVersion uses integers of up to 300 digits as versions. where is a JSON Pointer (/version) to a number or a string of
// digits, or header:NAME. A number with a point or an exponent (1.0, 1e3) is refused, because senders that write those lose
// digits sooner or later.
//
// It panics if where is malformed, as the other By functions do. [ParseVersions] returns an error instead.
func ByVersion(where string) *Versions { return must(newVersions(kindVersion, where)) }

// ByTimestamp uses times as versions: RFC 3339 with an offset, in a string, to the nanosecond, in any zone. ties order equal
// times, the first one first: integers as numbers, strings byte by byte. Equal times without ties are one version: the second
// message is a duplicate, or a mismatch if its payload differs.
//
// Times order messages of one clock. If the clocks of two senders differ, updates of the sender that is behind are lost. A
// clock that once ran ahead blocks all updates until that time. If there is a counter, prefer ByVersion.
func ByTimestamp(where string, ties ...string) *Versions {
	return must(newVersions(kindTimestamp, append([]string{where}, ties...)...))
}

// BySequence uses integers that count by one, in the form of ByVersion. Set Park if the versions must be applied in order,
// without gaps.
func BySequence(where string) *Versions { return must(newVersions(kindSequence, where)) }

func must(v *Versions, err error) *Versions {
	if err != nil {
		panic(err.Error())
	}
	return v
}

// The kinds of versions, as strategies name them.
const (
	kindVersion   = "version"
	kindTimestamp = "timestamp"
	kindSequence  = "sequence"
	kindSequencer = "sequencer"
	kindText      = "text"
)

func newVersions(kind string, where ...string) (*Versions, error) {
	fields := make([]field, len(where))
	for i, w := range where {
		f, err := parseField(w)
		if err != nil {
			return nil, err
		}
		fields[i] = f
	}
	v := &Versions{Clocked: kind == kindTimestamp}
	if kind == kindSequence {
		v.First = 1
	}
	switch kind {
	case kindVersion, kindSequence:
		v.Of = single(fields[0], driver.DecimalVersion)
	case kindSequencer:
		v.Of = single(fields[0], driver.SequencerVersion)
	case kindText:
		v.Of = single(fields[0], func(text string) (driver.Version, error) { return driver.TextVersion(text), nil })
	default:
		v.Of = timestamp(fields)
	}
	return v, nil
}

func single(f field, parse func(text string) (driver.Version, error)) VersionFunc {
	return func(m *driver.Message) (driver.Version, error) {
		text, _, err := f.find(m, false)
		if err != nil {
			return "", err
		}
		v, err := parse(text)
		if err != nil {
			return "", &VersionError{MessageID: m.ID, Reason: fmt.Sprintf("%s: %v", f, err)}
		}
		return v, nil
	}
}

func timestamp(fields []field) VersionFunc {
	return func(m *driver.Message) (driver.Version, error) {
		text, number, err := fields[0].find(m, false)
		if err != nil {
			return "", err
		}
		fail := func(f field, err error) (driver.Version, error) {
			return "", &VersionError{MessageID: m.ID, Reason: fmt.Sprintf("%s: %v", f, err)}
		}
		if number {
			return fail(fields[0], fmt.Errorf("%.40s may be seconds or milliseconds: send RFC 3339 text, or take it as an integer "+
				"(version:%s)", text, fields[0].text))
		}
		t, err := parseTime(text)
		if err != nil {
			return fail(fields[0], err)
		}
		ties := make([]driver.Version, len(fields)-1)
		for i, f := range fields[1:] {
			text, number, err := f.find(m, true)
			if err != nil {
				return "", err
			}
			if ties[i] = driver.TextVersion(text); number {
				if ties[i], err = driver.DecimalVersion(text); err != nil {
					return fail(f, err)
				}
			}
		}
		return driver.TimeVersion(t, ties...), nil
	}
}

// parseTime reads RFC 3339. More digits than nanoseconds are refused, because two versions would become one.
func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || strings.Contains(text, ",") {
		return t, fmt.Errorf("%.60q is not a time in RFC 3339 with an offset (2026-01-31T12:00:00.25Z)", text)
	}
	if _, fraction, ok := strings.Cut(text, "."); ok {
		if n := strings.IndexAny(fraction, "Z+-"); n > 9 && strings.Trim(fraction[9:n], "0") != "" {
			return t, fmt.Errorf("%.60q is finer than nanoseconds", text)
		}
	}
	return t, nil
}

// field is a location in a message: a JSON Pointer into its body, or a header.
type field struct {
	text, header string
	pointer      jsonptr.Pointer
}

func parseField(where string) (field, error) {
	f := field{text: where}
	if name, ok := strings.CutPrefix(where, "header:"); ok && name != "" {
		f.header = name
		return f, nil
	}
	const hint = "write a JSON Pointer (/version) or header:NAME"
	if !strings.HasPrefix(where, "/") {
		return f, &SpecError{"Versions", fmt.Sprintf("%q is no place of a version", where), hint}
	}
	p, err := jsonptr.Parse(where)
	if err != nil {
		return f, &SpecError{"Versions", err.Error(), hint}
	}
	f.pointer = p
	return f, nil
}

func (f field) String() string {
	if f.header != "" {
		return fmt.Sprintf("header %q", f.header)
	}
	return fmt.Sprintf("the value at %q", f.pointer)
}

// find reads the value: a string, or a number as written. checked: the body is known to be JSON.
func (f field) find(m *driver.Message, checked bool) (text string, number bool, err error) {
	bad := func(format string, args ...any) (string, bool, error) {
		return "", false, &VersionError{MessageID: m.ID, Reason: fmt.Sprintf(format, args...)}
	}
	if f.header != "" {
		if text = m.Header(f.header); text == "" {
			return bad("no header %q", f.header)
		}
		return text, false, nil
	}
	find := f.pointer.Find
	if checked {
		find = f.pointer.FindValid
	}
	raw, err := find(m.Body)
	switch {
	case errors.Is(err, jsonptr.ErrNotJSON):
		return bad("no value at %q: the body is not JSON", f.pointer)
	case errors.Is(err, jsonptr.ErrNotFound):
		return bad("no value at %q in the body", f.pointer)
	case err != nil:
		return bad("no value at %q: %v", f.pointer, err)
	case raw[0] == '"':
		if text, err = canonjson.Unquote(raw); err != nil {
			return bad("the value at %q: %v", f.pointer, err)
		}
		if text == "" {
			return bad("the value at %q is an empty string", f.pointer)
		}
		return text, false, nil
	case raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9':
		return string(raw), true, nil
	}
	return bad("the value at %q is neither a number nor a string", f.pointer)
}

// VersionError reports a message whose version cannot be used. The message becomes a dead letter.
type VersionError struct{ MessageID, Reason string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("semel: version of message %q: %s", e.MessageID, e.Reason)
}

// Take returns the version of a message, and the version that must be applied before it ("" = none). An error is a
// *VersionError, or the error of Of.
func (v *Versions) Take(m *driver.Message) (version, after driver.Version, err error) {
	version, err = v.Of(m)
	if err == nil && version == "" {
		err = &VersionError{MessageID: m.ID, Reason: "it is empty"}
	}
	if err != nil || v.Park <= 0 {
		return version, "", err
	}
	before := version.Before()
	switch {
	case before == "":
		return "", "", &VersionError{MessageID: m.ID, Reason: fmt.Sprintf("%s is not an integer, so the version before it is unknown", version)}
	case before < driver.IntVersion(v.First):
		return version, "", nil
	}
	return version, before, nil
}
