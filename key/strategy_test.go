package key_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// TestS1_39_StrategiesByText: every strategy is chosen by its text, and reads versions that order as they should.
func TestS1_39_StrategiesByText(t *testing.T) {
	body := func(s string) *driver.Message { return &driver.Message{ID: "m", Body: []byte(s)} }
	head := func(s string) *driver.Message {
		return &driver.Message{ID: "m", Body: []byte("no JSON"), Headers: map[string]string{"X-Version": s}}
	}
	for _, x := range []struct {
		strategy string
		older    *driver.Message
		newer    *driver.Message
		text     string // of the older one
	}{
		{"version:/v", body(`{"v":9}`), body(`{"v":10}`), "9"},
		{"version:/v", body(`{"v":"9"}`), body(`{"v":10}`), "9"},
		{"version:/v", body(`{"v":-10}`), body(`{"v":-9}`), "-10"},
		{"version:/v", body(`{"v":9007199254740992}`), body(`{"v":9007199254740993}`), "9007199254740992"},
		{"version:/v", body(`{"v":18446744073709551615}`), body(`{"v":18446744073709551616}`), "18446744073709551615"},
		{"version:/meta/a~1b", body(`{"meta":{"a/b":1}}`), body(`{"meta":{"a/b":2}}`), "1"},
		{"version:header:x-version", head("9"), head("10"), "9"},
		{"sequence:/v", body(`{"v":1}`), body(`{"v":2}`), "1"},
		{"sequence:/v,gap=accept", body(`{"v":1}`), body(`{"v":2}`), "1"},
		{"sequence:header:x-version,gap=park:30s,first=0", head("1"), head("2"), "1"},
		{"timestamp:/at", body(`{"at":"2026-01-01T12:00:00+02:00"}`), body(`{"at":"2026-01-01T11:00:00Z"}`), "2026-01-01T10:00:00Z"},
		{"timestamp:/at", body(`{"at":"2026-01-01T12:00:00.1Z"}`), body(`{"at":"2026-01-01T12:00:00.100000001Z"}`), "2026-01-01T12:00:00.1Z"},
		{"timestamp:/at", body(`{"at":"2026-01-01T12:00:00.1000000000Z"}`), body(`{"at":"2026-01-01T12:00:01Z"}`), "2026-01-01T12:00:00.1Z"},
		{"timestamp:/at,/n", body(`{"at":"2026-01-01T12:00:00Z","n":9}`), body(`{"at":"2026-01-01T12:00:00Z","n":10}`), "2026-01-01T12:00:00Z 9"},
		{"timestamp:/at,/id,/n", body(`{"at":"2026-01-01T12:00:00Z","id":"a","n":2}`), body(`{"at":"2026-01-01T12:00:00Z","id":"b","n":1}`), "2026-01-01T12:00:00Z a 2"},
		{"sequencer:/s", body(`{"s":"0055AED6DCD90281E5"}`), body(`{"s":"0055AED6DCD90281E501"}`), "0055AED6DCD90281E5"},
		{"text:/u", body(`{"u":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}`), body(`{"u":"01BX5ZZKBKACTAV9WEVGEMMVRZ"}`), "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
	} {
		v, err := key.ParseVersions(x.strategy)
		if err != nil {
			t.Errorf("%s: %v", x.strategy, err)
			continue
		}
		a, errA := v.Of(x.older)
		b, errB := v.Of(x.newer)
		if errA != nil || errB != nil || a >= b || a.String() != x.text {
			t.Errorf("%s: %q (%v) is not before %q (%v)", x.strategy, a, errA, b, errB)
		}
	}
	for _, kind := range []string{"version:/v", "timestamp:/at,/n", "sequence:/v", "sequencer:/s", "text:/u", "version:header:x"} {
		if v, err := key.ParseVersions(kind); err != nil || v == nil {
			t.Errorf("%s: %+v, %v", kind, v, err)
		}
	}
	if v, err := key.ParseVersions("once"); v != nil || err != nil {
		t.Errorf("once: %v, %v", v, err)
	}
}

func TestStrategiesThatAreNone(t *testing.T) {
	for text, hint := range map[string]string{
		"":                                  "once, version:PLACE",
		"best":                              "once, version:PLACE",
		"once:":                             "once, version:PLACE",
		"version":                           "version:/POINTER",
		"version:":                          "version:/POINTER",
		"version:v":                         "JSON Pointer (/version)",
		"version:header:":                   "JSON Pointer (/version)",
		"version:/a~2":                      "JSON Pointer (/version)",
		"version:/v,/w":                     "only timestamp takes ties",
		"version:/v,gap=park:30s":           "only sequence",
		"timestamp:/at,first=1":             "only sequence",
		"sequence:/v,gap=park":              "gap=park:30s",
		"sequence:/v,gap=park:0s":           "gap=park:30s",
		"sequence:/v,gap=wait:3s":           "gap=park:30s",
		"sequence:/v,first=1":               "add gap=park:30s",
		"sequence:/v,gap=park:1s,first":     "JSON Pointer (/version)",
		"sequence:/v,gap=park:1s,first=one": "first=1",
		"sequence:/v,gaps=park:1s":          "gap=park:30s or first=1",
		"sequence:gap=park:1s":              "name one",
		"version:/v,keep=first":             "only sequence",
		"version:/v,keep":                   "only timestamp takes ties",
		"sequence:/v,keep=first":            "gap=park:30s",
		"once,first=1":                      "once, version:PLACE",
	} {
		_, err := key.ParseVersions(text)
		var e *key.SpecError
		switch {
		case text == "sequence:/v,gap=park:1s,first":
			if !errors.As(err, &e) {
				t.Errorf("%s: %v", text, err)
			}
		case !errors.As(err, &e) || e.Field != "Versions" || !strings.Contains(e.Hint, hint):
			t.Errorf("%q: %v (wanted %q)", text, err, hint)
		}
	}
}

// TestVersionsOfMessagesThatHaveNone: what has no version that can be compared is refused with the place and the reason.
func TestVersionsOfMessagesThatHaveNone(t *testing.T) {
	for _, x := range []struct{ strategy, body, reason string }{
		{"version:/v", `not JSON`, "not JSON"},
		{"version:/v", `{}`, `no value at "/v"`},
		{"version:/v", `{"v":null}`, "neither a number nor a string"},
		{"version:/v", `{"v":true}`, "neither a number nor a string"},
		{"version:/v", `{"v":{}}`, "neither a number nor a string"},
		{"version:/v", `{"v":""}`, "empty string"},
		{"version:/v", `{"v":1.0}`, "without point or exponent"},
		{"version:/v", `{"v":1e3}`, "without point or exponent"},
		{"version:/v", `{"v":"1.5"}`, "without point or exponent"},
		{"version:/v", `{"v":1,"v":2}`, "/v"},
		{"version:header:x-version", `{}`, `no header "x-version"`},
		{"timestamp:/at", `{"at":"2026-01-01"}`, "RFC 3339"},
		{"timestamp:/at", `{"at":"2026-01-01T12:00:00"}`, "RFC 3339"},
		{"timestamp:/at", `{"at":"2026-01-01T12:00:00,5Z"}`, "RFC 3339"},
		{"timestamp:/at", `{"at":"2026-01-01T12:00:00.1234567891Z"}`, "finer than nanoseconds"},
		{"timestamp:/at", `{"at":1767225600}`, "version:/at"},
		{"timestamp:/at,/id", `{"at":"2026-01-01T12:00:00Z"}`, `no value at "/id"`},
		{"timestamp:/at,/id", `{"at":"2026-01-01T12:00:00Z","id":1.5}`, "without point or exponent"},
		{"sequencer:/s", `{"s":"xyz"}`, "hexadecimal"},
		{"sequence:/v,gap=park:1s", `{"v":"a"}`, "not an integer"},
	} {
		v, err := key.ParseVersions(x.strategy)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Of(&driver.Message{ID: "m-7", Body: []byte(x.body)})
		var e *key.VersionError
		if !errors.As(err, &e) || e.MessageID != "m-7" || !strings.Contains(e.Reason, x.reason) || got != "" {
			t.Errorf("%s of %s: %q, %v", x.strategy, x.body, got, err)
		}
	}
}

func TestByFunctionsPanicOnMalformedPlaces(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "JSON Pointer") {
			t.Errorf("panic %v", v)
		}
	}()
	key.ByVersion("version")
}
