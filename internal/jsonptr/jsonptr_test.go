package jsonptr

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// RFC 6901, section 5.
const rfcDoc = `
   {
      "foo": ["bar", "baz"],
      "": 0,
      "a/b": 1,
      "c%d": 2,
      "e^f": 3,
      "g|h": 4,
      "i\\j": 5,
      "k\"l": 6,
      " ": 7,
      "m~n": 8
   }
`

func find(t *testing.T, doc, ptr string) (string, error) {
	t.Helper()
	p, err := Parse(ptr)
	if err != nil {
		t.Fatal(err)
	}
	if p.String() != ptr {
		t.Errorf("String() = %q, want %q", p, ptr)
	}
	v, err := p.Find([]byte(doc))
	return string(v), err
}

func TestRFC6901(t *testing.T) {
	for ptr, want := range map[string]string{
		"": strings.TrimSpace(rfcDoc), "/foo": `["bar", "baz"]`, "/foo/0": `"bar"`, "/foo/1": `"baz"`,
		"/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3", "/g|h": "4", `/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8",
	} {
		if got, err := find(t, rfcDoc, ptr); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", ptr, got, err, want)
		}
	}
}

func TestFind(t *testing.T) {
	doc := `{"o":{"a":[{"x":"]}\"{["},[[1,2],3],-1.5e3],"\u00e9\u0041":true},"~1":"tilde","\ud83d\ude00":"face",` +
		`"n":null,"bad\ud800":0}`
	for _, v := range []struct {
		ptr, want string
		err       error
	}{
		{"/o/a/0/x", `"]}\"{["`, nil},
		{"/o/a/1/0/1", "2", nil},
		{"/o/a/1", "[[1,2],3]", nil},
		{"/o/a/2", "-1.5e3", nil},
		{"/o/éA", "true", nil},
		{"/~01", `"tilde"`, nil},
		{"/😀", `"face"`, nil},
		{"/n", "null", nil},
		{"/o/a/3", "", ErrNotFound},
		{"/o/a/-", "", ErrNotFound},
		{"/o/a/00", "", ErrNotFound},
		{"/o/a/+1", "", ErrNotFound},
		{"/o/a/x", "", ErrNotFound},
		{"/o/a/", "", ErrNotFound},
		{"/o/a/9999999999999999999999", "", ErrNotFound},
		{"/n/x", "", ErrNotFound},
		{"/o/a/2/0", "", ErrNotFound},
		{"/o/x", "", ErrNotFound},
		{`/\ud83d\ude00`, "", ErrNotFound}, // a token is characters, not their escapes
		{"/O", "", ErrNotFound},
	} {
		if got, err := find(t, doc, v.ptr); got != v.want || !errors.Is(err, v.err) {
			t.Errorf("%q: got %q, %v; want %q, %v", v.ptr, got, err, v.want, v.err)
		}
	}
}

func TestFindRefuses(t *testing.T) {
	for _, v := range []struct {
		doc, ptr string
		err      error
	}{
		{`{"a":1,"b":2,"a":3}`, "/a", ErrAmbiguous},
		{`{"a":1,"\u0061":3}`, "/a", ErrAmbiguous},
		{`{"x":{"a":1},"x":{}}`, "/x/a", ErrAmbiguous},
		{`{"a":1`, "/a", ErrNotJSON},
		{`{"a":1} x`, "/a", ErrNotJSON},
		{``, "", ErrNotJSON},
		{`{"a":tru}`, "/a", ErrNotJSON},
		{`{}`, "/a", ErrNotFound},
		{`[]`, "/0", ErrNotFound},
		{`"text"`, "/0", ErrNotFound},
	} {
		if got, err := find(t, v.doc, v.ptr); !errors.Is(err, v.err) {
			t.Errorf("%s at %q: got %q, %v; want %v", v.doc, v.ptr, got, err, v.err)
		}
	}
	// A repeated member elsewhere does not matter here.
	if got, err := find(t, `{"b":1,"b":2,"a":3}`, "/a"); got != "3" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for ptr, want := range map[string]string{
		"a": "does not begin with /", "a/b": "does not begin with /", "#/a": "does not begin with /",
		"/a~": "~0 for ~", "/~2": "~0 for ~", "/a/~~1": "~0 for ~",
	} {
		if _, err := Parse(ptr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", ptr, err, want)
		}
	}
}

// The lookup agrees with a walk through encoding/json's tree.
func FuzzFind(f *testing.F) {
	f.Add([]byte(rfcDoc), "/foo/0")
	f.Add([]byte(`{"o":{"a":[{"x":"]}\"{["},[[1,2],3],-1.5e3]}}`), "/o/a/1/0/1")
	f.Add([]byte(`[[],{},"",[0]]`), "/3/0")
	f.Add([]byte(`{"a":1,"\u0061":2}`), "/a")
	f.Add([]byte(`{"a`), "/a")
	f.Fuzz(func(t *testing.T, doc []byte, ptr string) {
		p, err := Parse(ptr)
		if err != nil {
			return
		}
		_, _ = p.FindValid(doc) // must not panic, whatever the text
		raw, err := p.Find(doc)
		if !json.Valid(doc) {
			if !errors.Is(err, ErrNotJSON) {
				t.Fatalf("%q is not JSON, got %v", doc, err)
			}
			return
		}
		if errors.Is(err, ErrNotJSON) || err == nil && !json.Valid(raw) {
			t.Fatalf("%q at %q: %q, %v", doc, ptr, raw, err)
		}
		if errors.Is(err, ErrAmbiguous) || bytes.ContainsRune(doc, '\\') || bytes.ContainsRune(doc, '\uFFFD') {
			return // encoding/json takes the last of two members, and fixes broken characters
		}
		want, ok := walk(doc, p.tokens)
		if ok != (err == nil) {
			t.Fatalf("%q at %q: found %q (%v), the tree has it: %v", doc, ptr, raw, err, ok)
		}
		if ok && !bytes.Equal(bytes.TrimSpace(want), raw) {
			t.Fatalf("%q at %q: found %q, want %q", doc, ptr, raw, want)
		}
	})
}

func walk(doc []byte, tokens []string) (json.RawMessage, bool) {
	cur := json.RawMessage(doc)
	for _, token := range tokens {
		cur = bytes.TrimSpace(cur)
		var m map[string]json.RawMessage
		var a []json.RawMessage
		switch {
		case cur[0] == '{' && json.Unmarshal(cur, &m) == nil:
			v, ok := m[token]
			if !ok {
				return nil, false
			}
			cur = v
		case cur[0] == '[' && json.Unmarshal(cur, &a) == nil:
			i, ok := index(token)
			if !ok || i >= len(a) {
				return nil, false
			}
			cur = a[i]
		default:
			return nil, false
		}
	}
	return cur, true
}

func BenchmarkFind(b *testing.B) {
	doc := []byte(`{"order_id":"A-1000231","amount":129.90,"customer":{"id":88123,"name":"Jane Roe","email":"j@example.com"},` +
		`"items":[{"sku":"KB-88","qty":1,"price":99.90},{"sku":"MS-12","qty":2,"price":15.00}],"note":"leave it",` +
		`"created_at":"2026-11-21T04:03:00Z","gift":false,"action":"charge","currency":"EUR"}`)
	p, err := Parse("/action")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Find", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Find(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("FindValid", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.FindValid(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
}
