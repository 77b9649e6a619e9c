package key_test

import (
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

func fp(t *testing.T, f key.FingerprintFunc, m *driver.Message) driver.Fingerprint {
	t.Helper()
	got, err := f(m)
	if err != nil {
		t.Fatalf("%s: %v", m.Body, err)
	}
	if len(got) != driver.FingerprintRecipe+32 {
		t.Fatalf("%s: a fingerprint of %d bytes", m.Body, len(got))
	}
	return got
}

func body(s string) *driver.Message { return &driver.Message{ID: "m", Body: []byte(s)} }

func parseFP(t *testing.T, spec string) key.FingerprintFunc {
	t.Helper()
	f, err := key.ParseFingerprint(spec)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Failure mode 51: another payload behind the same key is a mismatch.
func TestFM51_FingerprintsDiffer(t *testing.T) {
	for _, v := range []struct{ spec, a, b string }{
		{"body", `{"amount":100}`, `{"amount":101}`},
		{"body", `{"amount":9007199254740993}`, `{"amount":9007199254740992}`},
		{"body", `pay 100`, `pay 101`},
		{"body", ``, `{}`},
		{"json:/amount", `{"amount":100}`, `{"amount":101}`},
		{"json:/amount", `{"amount":null}`, `{}`},
		{"json:/a,/b", `{"a":1}`, `{"b":1}`},
		{"json:/a,/b", `{"a":"x","b":"y"}`, `{"a":"xy","b":""}`},
		{"json:/a,/b", `{"a":1,"b":23}`, `{"a":12,"b":3}`},
		{"json:/amount", `pay 100`, `pay 101`},
		{"json:/amount", `{"amount":100`, `{"amount":100}`},
		{"json:/amount", `{"amount":1,"amount":2}`, `{"amount":1}`},
		{"json:/a", `{"a":"\ud800"}`, `{"a":"\ud801"}`},
		{"cloudevents", `{"specversion":"1.0","source":"/s","id":"1"}`, `{"specversion":"1.0","source":"/s","id":"2"}`},
		{"cloudevents", `{"specversion":"1.0","source":"/s","id":"1"}`, `{}`},
	} {
		f := parseFP(t, v.spec)
		a, b := fp(t, f, body(v.a)), fp(t, f, body(v.b))
		if !a.Differs(b) {
			t.Errorf("%s: %s and %s are taken for one payload", v.spec, v.a, v.b)
		}
	}
}

// Failure mode 52: what does not matter makes no mismatch.
func TestFM52_FingerprintsIgnore(t *testing.T) {
	for _, v := range []struct{ spec, a, b string }{
		{"body", `{"amount":100,"to":"x"}`, ` {"to":"\u0078", "amount":1e2}`},
		{"json:/amount", `{"amount":100,"trace":"1"}`, `{"trace":"2","amount":100.0}`},
		{"json:/o", `{"o":{"b":1,"a":2}}`, `{"o":{"a":2,"b":1},"at":"now"}`},
		{"json:/amount", `{"x":1,"x":2,"amount":1}`, `{"amount":1}`},
	} {
		f := parseFP(t, v.spec)
		if fp(t, f, body(v.a)) != fp(t, f, body(v.b)) {
			t.Errorf("%s: %s and %s are a false mismatch", v.spec, v.a, v.b)
		}
	}
}

// A changed recipe is not compared: never a mismatch (protocol section 0).
func TestFM52_ChangedRecipesAreNotCompared(t *testing.T) {
	m := &driver.Message{ID: "m", Body: []byte(`{"a":1,"b":2}`), Headers: map[string]string{"Digest": "d"}}
	specs := []string{"body", "json:/a", "json:/b", "json:/a,/b", "id", "header:digest", "header:other", "cloudevents"}
	for i, x := range specs {
		for _, y := range specs[:i] {
			a, b := fp(t, parseFP(t, x), m), fp(t, parseFP(t, y), m)
			if a[:driver.FingerprintRecipe] == b[:driver.FingerprintRecipe] {
				t.Errorf("%s and %s have one recipe id", x, y)
			}
			if a.Differs(b) {
				t.Errorf("%s and %s are compared", x, y)
			}
		}
	}
	for _, v := range [][2]string{
		{"json:/a,/b", "json:/b,/a"}, {"json:/a,/b", "json:/a,/b,/a"}, {"header:digest", "header:DIGEST"},
	} {
		if fp(t, parseFP(t, v[0]), m) != fp(t, parseFP(t, v[1]), m) {
			t.Errorf("%s and %s are one recipe", v[0], v[1])
		}
	}
	if got := fp(t, key.FingerprintJSON("/b", "/a"), m); got != fp(t, parseFP(t, "json:/a,/b"), m) {
		t.Error("the flag and the function are two recipes")
	}
}

func TestFingerprintByHeader(t *testing.T) {
	f := parseFP(t, "header:digest")
	with := func(v string) *driver.Message { return &driver.Message{Headers: map[string]string{"Digest": v}} }
	if !fp(t, f, with("a")).Differs(fp(t, f, with("b"))) {
		t.Error("two digests are taken for one payload")
	}
	if !fp(t, f, with("a")).Differs(fp(t, f, with(""))) {
		t.Error("a message without the header passes for one with it")
	}
	if fp(t, f, with("")) != fp(t, f, body("other")) {
		t.Error("two messages without the header differ")
	}
	two := `{"Records":[{},{}]}`
	if got, err := parseFP(t, "s3")(body(two)); err == nil {
		t.Errorf("two records gave %x", got)
	}
}

func TestFingerprintNone(t *testing.T) {
	if f, err := key.ParseFingerprint("none"); f != nil || err != nil {
		t.Errorf("none: %v", err)
	}
}

func TestDefaultFingerprint(t *testing.T) {
	for _, spec := range []string{"json:/order_id", "body"} {
		if key.DefaultFingerprint(spec) != nil {
			t.Errorf("%s: a fingerprint, want none", spec)
		}
	}
	m := body(`{"a":1}`)
	for _, spec := range []string{"id", "header:json", "cloudevents"} {
		f := key.DefaultFingerprint(spec)
		if f == nil || fp(t, f, m) != fp(t, key.FingerprintBody(), m) {
			t.Errorf("%s: want the fingerprint of the body", spec)
		}
	}
}

// Records in the stores depend on a recipe: this value changes only together with fingerprintVersion.
func TestFingerprintIsStable(t *testing.T) {
	got := fp(t, key.FingerprintBody(), body(`{}`))
	if want := recipeGolden; string(got[:driver.FingerprintRecipe]) != want {
		t.Errorf("recipe %x, want %x", got[:driver.FingerprintRecipe], want)
	}
}

// The first bytes of SHA-256("semel-fingerprint-1|body").
const recipeGolden = "\x58\x0b\xe1\xbc"

// Whatever the body, a fingerprint is made, and the same bytes give the same one.
func FuzzFingerprint(f *testing.F) {
	all, fields := key.FingerprintBody(), key.FingerprintJSON("/a", "/b/0")
	for _, s := range []string{`{"a":1,"b":[2]}`, ``, `null`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `[1`, `{"b":["\ud800"]}`} {
		f.Add([]byte(s), []byte(s+" "))
	}
	f.Fuzz(func(t *testing.T, x, y []byte) {
		for _, fn := range []key.FingerprintFunc{all, fields} {
			a, b := fp(t, fn, &driver.Message{Body: x}), fp(t, fn, &driver.Message{Body: y})
			if string(x) == string(y) && a != b {
				t.Fatalf("%q has two fingerprints", x)
			}
		}
	})
}
