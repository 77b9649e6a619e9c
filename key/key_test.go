package key_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// keyError asserts what a refused key says, and whether it counts as missing.
func keyError(t *testing.T, what string, err error, missing bool, words ...string) {
	t.Helper()
	var e *key.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: got %v, want a *key.Error", what, err)
		return
	}
	if e.Missing != missing || errors.Is(err, key.ErrMissing) != missing {
		t.Errorf("%s: missing is %v (%v), want %v", what, e.Missing, err, missing)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

func wantKey(t *testing.T, f key.Func, m *driver.Message, want string) {
	t.Helper()
	got, err := f(m)
	if err != nil || got != want {
		t.Errorf("body %.200q headers %v: got %q, %v; want %q", m.Body, m.Headers, got, err, want)
	}
}

func TestTuple(t *testing.T) {
	for _, v := range []struct {
		parts []string
		want  string
	}{
		{[]string{"order-1", "charge"}, "order-1|charge"},
		{[]string{"one"}, "one"},
		{[]string{""}, ""},
		{[]string{"", ""}, "|"},
		{[]string{"a|b", "c"}, `a\|b|c`},
		{[]string{"a", "b|c"}, `a|b\|c`},
		{[]string{`a\`, "|c"}, `a\\|\|c`},
		{[]string{"nul\x00", "tab\t", "del\x7f", "\x1f\n"}, `nul\x00|tab\x09|del\x7f|\x1f\x0a`},
		{[]string{`\x00`}, `\\x00`},
		{[]string{"José 😀\u0085"}, "José 😀\u0085"},
		{[]string{"bad\xff\xfe", "\xe2\x82"}, `bad\xff\xfe|\xe2\x82`},
		{[]string{"\uFFFD", "\xff"}, "\uFFFD|\\xff"},
	} {
		got := key.Tuple(v.parts...)
		if got != v.want {
			t.Errorf("Tuple(%q) = %q, want %q", v.parts, got, v.want)
		}
		back, err := key.SplitTuple(got)
		if err != nil || !slices.Equal(back, v.parts) {
			t.Errorf("SplitTuple(%q) = %q, %v; want %q", got, back, err, v.parts)
		}
	}
	if got := key.Tuple(); got != "" {
		t.Errorf("Tuple() = %q", got)
	}
}

// A text that Tuple does not write would be a second text of some tuple.
func TestSplitTupleIsStrict(t *testing.T) {
	for _, s := range []string{
		`\`, `a\`, `\a`, `\x`, `\x0`, `\x4`, `\x41`, `\xGG`, `\xg5`, `\x5g`, `\x0A`, "a\nb", "a\x00", "\xff", `\xe2\x82\xac`,
		`a|\`, `\x7e`, `\|\`,
	} {
		parts, err := key.SplitTuple(s)
		if err == nil {
			t.Errorf("%q was split into %q", s, parts)
			continue
		}
		keyError(t, s, err, false, "Tuple")
	}
}

// Failure mode 54: two tuples never share a text, whatever their parts hold.
func TestFM54_TupleIsInjective(t *testing.T) {
	alphabet := []string{"", "|", `\`, "a", "x", "0", "\x00", "\xff", "é", `\x00`, `\|`, "||"}
	r := rand.New(rand.NewPCG(54, 1))
	seen := map[string][]string{}
	for range 200_000 {
		parts := make([]string, 1+r.IntN(4))
		for i := range parts {
			for range r.IntN(4) {
				parts[i] += alphabet[r.IntN(len(alphabet))]
			}
		}
		text := key.Tuple(parts...)
		if old, ok := seen[text]; ok && !slices.Equal(old, parts) {
			t.Fatalf("%q and %q are both %q", old, parts, text)
		}
		seen[text] = parts
	}
	if len(seen) < 50_000 {
		t.Fatalf("only %d different tuples were tried", len(seen))
	}
}

func FuzzTuple(f *testing.F) {
	f.Add("a|b", "c", "a", "b|c")
	f.Add(`a\`, "b", "a", `\b`)
	f.Add("", "", "|", "")
	f.Add("\x00", "\xff", `\x00`, "\\\xff")
	f.Add("é", "\xc3\xa9", "\xc3", "\xa9")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		x, y := key.Tuple(a, b), key.Tuple(c, d)
		if (x == y) != (a == c && b == d) {
			t.Fatalf("(%q, %q) is %q, (%q, %q) is %q", a, b, x, c, d, y)
		}
		if x == key.Tuple(a) || x == key.Tuple(a, b, c) {
			t.Fatalf("%q stands for tuples of two lengths", x)
		}
		back, err := key.SplitTuple(x)
		if err != nil || !slices.Equal(back, []string{a, b}) {
			t.Fatalf("%q splits into %q (%v), not (%q, %q)", x, back, err, a, b)
		}
		if !utf8.ValidString(x) {
			t.Fatalf("%q is not UTF-8", x)
		}
		if len(x) <= key.MaxBytes {
			if err := key.Check(x); err != nil {
				t.Fatalf("a text form is refused: %v", err)
			}
		}
		if parts, err := key.SplitTuple(a); err == nil && key.Tuple(parts...) != a {
			t.Fatalf("%q was split into %q", a, parts)
		}
	})
}

// Failure mode 55: empty keys, and those that a store cannot keep, are refused with a reason.
func TestFM55_CheckKey(t *testing.T) {
	for _, ok := range []string{"a", "José|1", strings.Repeat("k", key.MaxBytes), `a\x00`} {
		if err := key.Check(ok); err != nil {
			t.Errorf("%.20q: %v", ok, err)
		}
	}
	for raw, word := range map[string]string{
		"":                                    "empty",
		strings.Repeat("k", key.MaxBytes+1):   "1025 bytes",
		strings.Repeat("é", key.MaxBytes/2+1): "1026 bytes",
		"a\x00b":                              "control character",
		"a\nb":                                "control character",
		"a\x7fb":                              "control character",
		"\xff":                                "not UTF-8",
	} {
		keyError(t, raw[:min(len(raw), 8)], key.Check(raw), false, word)
	}
}

func TestKeyByID(t *testing.T) {
	h := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, v := range []struct {
		headers map[string]string
		want    string
	}{
		{nil, "broker-7"},
		{h("other", "x"), "broker-7"},
		{h("Idempotency-Key", "ik", "ce-id", "1", "ce-source", "/s", "message-id", "m", "nats-msg-id", "n"), "ik"},
		{h("Ce-Id", "1", "Ce-Source", "/s|t", "message-id", "m"), `/s\|t|1`},
		{h("ce-id", "1", "message-id", "m", "nats-msg-id", "n"), "m"}, // an id without its source is not unique
		{h("ce-source", "/s", "Nats-Msg-Id", "n"), "n"},
		{h("idempotency-key", "", "message-id", "m"), "m"},
		{h("message-id", "a|b"), `a\|b`},
	} {
		wantKey(t, key.ByID, &driver.Message{ID: "broker-7", Headers: v.headers}, v.want)
	}
	_, err := key.ByID(&driver.Message{})
	keyError(t, "no id at all", err, true, "idempotency-key")
	_, err = key.ByID(&driver.Message{ID: "7", Headers: h("message-id", strings.Repeat("x", 2000))})
	keyError(t, "long id", err, false, `message "7"`, "2000 bytes")
}

func TestS3_13_KeyFirst(t *testing.T) {
	first := key.First(key.FromHeader("order"), key.FromJSON("/id"), key.ByID)
	m := func(id, order, body string) *driver.Message {
		return &driver.Message{ID: id, Headers: map[string]string{"order": order}, Body: []byte(body)}
	}
	wantKey(t, first, m("broker-7", "o-1", `{"id":"j-1"}`), "o-1")
	wantKey(t, first, m("broker-7", "", `{"id":"j-1"}`), "j-1")
	for _, body := range []string{`{"other":1}`, `{"id":null}`, `no JSON`, ``} {
		wantKey(t, first, m("broker-7", "", body), "broker-7")
	}
	// What is there and cannot be a key ends the search.
	for _, id := range []string{"", strings.Repeat("x", 2000)} {
		_, err := first(m("broker-7", "", fmt.Sprintf(`{"id":%q}`, id)))
		keyError(t, "an id that is none", err, false, "broker-7")
	}
	other := errors.New("the key service is away")
	_, err := key.First(func(*driver.Message) (string, error) { return "", other }, key.ByID)(m("broker-7", "", ""))
	if !errors.Is(err, other) {
		t.Errorf("another error: %v", err)
	}
	// When all are missing, it is ErrMissing and says what each missed.
	_, err = first(m("", "", `{"other":1}`))
	keyError(t, "no key at all", err, true, `no header "order"; no value at "/id" in the body; the broker gives no id`)
	_, err = key.First(func(*driver.Message) (string, error) { return "", key.ErrMissing })(m("broker-7", "", ""))
	keyError(t, "a plain ErrMissing", err, true, key.ErrMissing.Error())
	for _, fns := range [][]key.Func{nil, {key.ByID, nil}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d functions do not panic", len(fns))
				}
			}()
			key.First(fns...)
		}()
	}
}

func TestKeyFromHeader(t *testing.T) {
	f := key.FromHeader("X-Order")
	wantKey(t, f, &driver.Message{Headers: map[string]string{"x-order": "A 1"}}, "A 1")
	// Failure mode 56: byte by byte, no levelling of case, space or normal form.
	wantKey(t, f, &driver.Message{Headers: map[string]string{"x-order": " a 1e\u0301"}}, " a 1e\u0301")
	for _, headers := range []map[string]string{nil, {"x-order": ""}, {"x-orders": "1"}} {
		_, err := f(&driver.Message{ID: "m1", Headers: headers})
		keyError(t, "no header", err, true, `message "m1"`, `"X-Order"`)
	}
}

func TestKeyFromJSON(t *testing.T) {
	f := key.FromJSON("/order_id", "/action")
	for body, want := range map[string]string{
		`{"order_id":"A-1","action":"charge"}`:                 "A-1|charge",
		` { "action" : "charge", "x":[1], "order_id":"A-1" } `: "A-1|charge",
		`{"order_id":"a|b","action":"c"}`:                      `a\|b|c`,
		`{"order_id":1,"action":true}`:                         "1|true",
		`{"order_id":1.0,"action":false}`:                      "1|false",
		`{"order_id":1e0,"action":-0.0}`:                       "1|0",
		`{"order_id":"1","action":0}`:                          "1|0", // the type of a value is not part of the key
		`{"order_id":9007199254740993,"action":0}`:             "9007199254740993|0",
		`{"order_id":9007199254740992,"action":0}`:             "9007199254740992|0",
		`{"order_id":{"b":1.50,"a":[ ]},"action":[1, "x"]}`:    `{"a":[],"b":1.5}|[1,"x"]`,
		`{"order_id":"\u0041\u0000","action":"\ud83d\ude00"}`:  `A\x00|😀`,
		`{"order_id":1,"action":2,"x":1,"x":2}`:                "1|2", // what is not asked for does not matter
		`{"order_id":"[1]","action":"null"}`:                   "[1]|null",
		`{"order_id":[[],0],"action":{"a":{"b":false}}}`:       `[[],0]|{"a":{"b":false}}`,
		`{"order_id":" a ","action":["","b"]}`:                 ` a |["","b"]`,
	} {
		wantKey(t, f, &driver.Message{Body: []byte(body)}, want)
	}
	wantKey(t, key.FromJSON("/items/1/sku", "/a~1b", "/~0"),
		&driver.Message{Body: []byte(`{"items":[{},{"sku":"s"}],"a/b":2,"~":3}`)}, "s|2|3")
	wantKey(t, key.FromJSON(""), &driver.Message{Body: []byte(` "whole" `)}, "whole")
	wantKey(t, key.FromJSON("/a", "/b", "/c", "/d", "/e"),
		&driver.Message{Body: []byte(`{"a":1,"b":2,"c":3,"d":4,"e":5}`)}, "1|2|3|4|5")
}

func TestFM55_KeyFromJSONRefuses(t *testing.T) {
	f := key.FromJSON("/order_id", "/action")
	for _, v := range []struct {
		body    string
		missing bool
		words   string
	}{
		{`{"order_id":"A"}`, true, `"/action"`},
		{`{"action":"c"}`, true, `"/order_id"`},
		{`{"order_id":null,"action":"c"}`, true, `"/order_id" is null`},
		{`{"order_id":"A","action":null}`, true, `"/action" is null`},
		{``, true, "not JSON"},
		{`order 7`, true, "not JSON"},
		{`{"order_id":"A","action":"c"`, true, "not JSON"},
		{`["A","c"]`, true, `"/order_id"`},
		{`{"order_id":"","action":"c"}`, false, `"/order_id" is an empty string`},
		{`{"order_id":" \t\u00a0","action":"c"}`, false, `"/order_id" is an empty string`},
		{`{"order_id":[],"action":"c"}`, false, `"/order_id" is an empty array`},
		{`{"order_id":"A","action":{}}`, false, `"/action" is an empty object, and it would be the key of every message without a value: send the id`},
		{`{"order_id":[ [ ] , {"a\"b:":[null," "]} ],"action":"c"}`, false, `"/order_id" is an empty array`},
		{`{"order_id":{"id" : ""},"action":"c"}`, false, `"/order_id" is an empty object`},
		{`{"order_id":[null],"action":"c"}`, false, `"/order_id" is an empty array`},
		{`{"order_id":"A","action":"c","order_id":"B"}`, false, "twice"},
		{`{"order_id":"\ud800","action":"c"}`, false, "lone surrogate"},
		{"{\"order_id\":\"\xff\",\"action\":\"c\"}", false, "UTF-8"},
		{`{"order_id":{"a":1,"a":2},"action":"c"}`, false, "twice"},
		{`{"order_id":"` + strings.Repeat("x", 1100) + `","action":"c"}`, false, "1102 bytes"},
	} {
		_, err := f(&driver.Message{ID: "m", Body: []byte(v.body)})
		keyError(t, v.body[:min(len(v.body), 40)], err, v.missing, `message "m"`, v.words)
	}
}

func TestPointersPanic(t *testing.T) {
	for _, f := range []func(){
		func() { key.FromJSON() },
		func() { key.FromJSON("order_id") },
		func() { key.FingerprintJSON() },
		func() { key.FingerprintJSON("/a", "/~2") },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.Contains(s, "pointer") {
					t.Errorf("the panic says %q", s)
				}
			}()
			f()
		}()
	}
}
