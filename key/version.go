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

// VersionFunc takes the version out of a message. A message with an error, or with the version "", becomes a dead letter:
// without its version nobody can tell whether it is older than what is there.
type VersionFunc func(m *driver.Message) (driver.Version, error)

// Versions makes a key an entity whose messages replace each other: only the newest counts. An older one than the one
// that was applied is acknowledged unseen (the decision Stale); the same version is a duplicate, or a mismatch when its
// payload differs. It suits messages that carry a state ("the order is paid now"), never such that carry a change ("add
// 5"): of those none may be left out.
//
// Config.Key has to name the entity then, and Config.Fingerprint defaults to the body.
type Versions struct {
	// Of takes the version out of a message.
	Of VersionFunc
	// Park makes a version wait until the one before it was applied, for as long as its message is not older than this; then
	// it runs all the same, and what it passed over becomes a dead letter if it still comes. It needs integers that count by one
	// (BySequence), and a queue that tells when a message was sent or how often it was handed out; without both nobody
	// waits. In an ordered group nobody waits either: the message would keep its own predecessor from coming. Defaults to
	// 0: gaps are accepted, and what comes too late is stale.
	Park time.Duration
	// First is where a sequence begins: nothing is missing before it. BySequence sets 1. Only for Park.
	First int64
	// Clocked says that the versions are times of the senders' clocks, for the guarantee. ByTimestamp sets it.
	Clocked bool
}

// ByVersion takes integers as versions, of any size up to 300 digits: where is a JSON Pointer (/version) to a number or a
// string of digits, or header:NAME. A number with a point or an exponent (1.0, 1e3) is refused: senders that write those
// lose digits sooner or later.
//
// It panics when where is malformed, as the other By functions do; [ParseVersions] returns an error instead.
func ByVersion(where string) *Versions { return must(newVersions(kindVersion, where)) }

// ByTimestamp takes times as versions: RFC 3339 with an offset, in a string, to the nanosecond and whatever the zone.
// ties decide between equal times, in their order: integers as numbers, strings byte by byte. Equal times without a tie
// are one version: the second message is a duplicate, or a mismatch when its payload differs.
//
// Times order what one clock stamped. Of two senders whose clocks differ, the one that is behind loses its updates; a
// clock that once ran ahead blocks everything until the time it told. Where there is a counter, prefer ByVersion.
func ByTimestamp(where string, ties ...string) *Versions {
	return must(newVersions(kindTimestamp, append([]string{where}, ties...)...))
}

// BySequence takes integers that count by one, as ByVersion does. Set Park for versions that have to come one after the
// other.
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

// field is a place in a message: a JSON Pointer into its body, or a header.
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

// find reads the value: a string, or a number as it is written. checked: the body is known to be JSON.
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

// VersionError reports a message whose version cannot be used: it becomes a dead letter.
type VersionError struct{ MessageID, Reason string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("semel: version of message %q: %s", e.MessageID, e.Reason)
}

// Take reads the version of a message, and the one that has to be applied before it ("" = none). An error is a *VersionError, or
// that of Of.
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
		return "", "", &VersionError{MessageID: m.ID, Reason: fmt.Sprintf("%s is no integer, so nobody knows which comes before it", version)}
	case before < driver.IntVersion(v.First):
		return version, "", nil
	}
	return version, before, nil
}
