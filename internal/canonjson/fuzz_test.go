package canonjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// Canonical texts stay as they are, whatever the order and spelling that they came from.
func FuzzAppend(f *testing.F) {
	for _, s := range []string{
		`{"b":1,"a":[1.0,2e3,"\u20ac"],"":{}}`, `[9007199254740993,1e400,-0.0]`, `"\ud83d\ude00"`, `{"a":1,"\u0061":2}`,
		`[[[[]]]]`, `1e-7`, "\"\xff\"", `{"z":{"y":{"x":null}},"A":true}`, `0.10000000000000001`, `1E+99999999`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		once, err := Append(nil, src)
		if !bytes.Equal(src, before) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			return
		}
		if !json.Valid(src) || !json.Valid(once) {
			t.Fatalf("accepted, but it is not JSON: %q -> %q", src, once)
		}
		twice, err := Append(nil, once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("not idempotent: %q -> %q -> %q (%v)", src, once, twice, err)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, once, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		if again, err := Append(nil, spaced.Bytes()); err != nil || !bytes.Equal(again, once) {
			t.Fatalf("white space matters: %q -> %q (%v)", spaced.Bytes(), again, err)
		}
	})
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"1", "-0.0", "9007199254740993", "1e21", "123456789.123456789", "1e-400", "5e-324"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 60 {
			return
		}
		out, err := Append(nil, []byte(text))
		if err != nil || out[0] != '-' && (out[0] < '0' || out[0] > '9') {
			return
		}
		a, errA := strconv.ParseFloat(strings.TrimSpace(text), 64)
		b, errB := strconv.ParseFloat(string(out), 64)
		if a != b || (errA == nil) != (errB == nil) {
			t.Fatalf("%q became %q: another double", text, out)
		}
	})
}

var order = []byte(`{"order_id":"A-1000231","action":"charge","amount":129.90,"currency":"EUR","customer":{"id":88123,` +
	`"name":"Jos\u00e9 Garc\u00eda","email":"jose@example.com"},"items":[{"sku":"KB-88","qty":1,"price":99.90},` +
	`{"sku":"MS-12","qty":2,"price":15.00}],"created_at":"2026-11-21T04:03:00Z","note":"leave at the door","gift":false}`)

func BenchmarkAppend(b *testing.B) {
	var e Encoder
	buf := make([]byte, 0, 1024)
	b.SetBytes(int64(len(order)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Append(buf, order); err != nil {
			b.Fatal(err)
		}
	}
}
