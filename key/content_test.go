package key_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

const orderBody = `{"order_id":"A-1000231","action":"charge","amount":129.90,"currency":"EUR","customer":{"id":88123,` +
	`"name":"Jos\u00e9 Garc\u00eda","email":"jose@example.com"},"items":[{"sku":"KB-88","qty":1,"price":99.90},` +
	`{"sku":"MS-12","qty":2,"price":15.00}],"created_at":"2026-11-21T04:03:00Z","gift":false}`

func TestKeyFromBody(t *testing.T) {
	f := key.FromBody()
	key := func(body string) string {
		t.Helper()
		k, err := f(&driver.Message{Body: []byte(body)})
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		return k
	}
	// The SHA-256 of {"a":1} and of the bytes "order 7".
	if got, want := key(" { \"a\" : 1.0 }\n"), "json:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := key("order 7"), "raw:0fc89f8ae19394b48debd6353bb9ad3393f3bc791931519f19d176a7e5513ebc"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	same := [][2]string{
		{`{"a":1,"b":[1,2]}`, `{ "b":[1.0, 2e0], "a":1 }`},
		{`{"a":"é"}`, `{"a":"\u00e9"}`},
		{`0.1`, `0.10000000000000001`},
	}
	for _, v := range same {
		if key(v[0]) != key(v[1]) {
			t.Errorf("%s and %s are one value with two keys", v[0], v[1])
		}
	}
	different := [][2]string{
		{`{"a":1}`, `{"a":"1"}`},
		{`{"id":9007199254740993}`, `{"id":9007199254740992}`},
		{`{"amount":100000000000000001}`, `{"amount":100000000000000002}`},
		{`[1,2]`, `[2,1]`},
		{`{"a":null,"b":1}`, `{"b":1}`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`order 7`, `order 7 `},
		{"\"\xff\"", "\"\xfe\""},
	}
	for _, v := range different {
		if key(v[0]) == key(v[1]) {
			t.Errorf("%s and %s have one key", v[0], v[1])
		}
	}
	if k := key(`{"a":1,"a":2}`); !strings.HasPrefix(k, "raw:") {
		t.Errorf("an ambiguous body became %s", k)
	}
	for _, body := range []string{"", " \n", "null", " null "} {
		_, err := f(&driver.Message{ID: "m", Body: []byte(body)})
		keyError(t, body, err, true, `message "m"`, "empty or null")
	}
	for _, body := range []string{"{}", " [ [] ]", `{"a":null}`, `" "`} {
		_, err := f(&driver.Message{ID: "m", Body: []byte(body)})
		keyError(t, body, err, false, `message "m"`, "the body is an empty", "send an id")
	}
}

// Failure mode 53: a 32-bit content hash swallowed 94 % of such bodies. One worker's buffers serve many goroutines.
func TestFM53_SmallBodiesKeepTheirKeys(t *testing.T) {
	const n, workers = 90_000, 4
	f := key.FromBody()
	keys := make([]string, n)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				body := fmt.Appendf(nil, `{"b":%d,"a":"x"}`, i)
				if i%3 == 0 {
					body = fmt.Appendf(nil, "plain %d", i)
				}
				k, err := f(&driver.Message{Body: body})
				if err != nil {
					t.Errorf("%s: %v", body, err)
				}
				keys[i] = k
			}
		})
	}
	wg.Wait()
	seen := make(map[string]int, n)
	for i, k := range keys {
		if j, ok := seen[k]; ok {
			t.Fatalf("bodies %d and %d have one key", i, j)
		}
		seen[k] = i
	}
}

func TestKeyFromCloudEvent(t *testing.T) {
	f := key.FromCloudEvent()
	const structured = `{"specversion":"1.0","type":"t","source":"/orders|eu","id":"42","data":{"id":"no"}}`
	want := `/orders\|eu|42`
	for _, m := range []*driver.Message{
		{Body: []byte(structured), Headers: map[string]string{"content-type": "application/cloudevents+json"}},
		{Body: []byte(structured)},
		{Headers: map[string]string{"Ce-Id": "42", "Ce-Source": "/orders|eu"}},
		{Headers: map[string]string{"ce_id": "42", "ce_source": "/orders|eu"}},
		{Headers: map[string]string{"cloudEvents:id": "42", "cloudEvents:source": "/orders|eu"}},
		{Headers: map[string]string{"cloudEvents_id": "42", "cloudEvents_source": "/orders|eu"}},
		{Body: []byte(structured), Headers: map[string]string{"ce-id": "1"}}, // half of the binary mode is none of it
	} {
		wantKey(t, f, m, want)
	}
	for _, v := range []struct {
		body, contentType string
		missing           bool
		words             string
	}{
		{`{"id":"1","source":"/s"}`, "", true, "not a CloudEvent"},
		{`{"specversion":"1.0","source":"/s"}`, "", true, `"/id"`},
		{`{"specversion":"1.0","id":"1"}`, "", true, `"/source"`},
		{`not json`, "", true, "not JSON"},
		{`{"specversion":"1.0","source":"/s","id":7}`, "", false, "not a string"},
		{`{"specversion":"1.0","source":"/s","id":""}`, "", false, "empty"},
		{`{"specversion":"1.0","source":"/s","id":"1","id":"2"}`, "", false, "twice"},
		{`[` + structured + `]`, "application/cloudevents-batch+json; charset=utf-8", false, "one event a message"},
	} {
		m := &driver.Message{ID: "m", Body: []byte(v.body), Headers: map[string]string{"Content-Type": v.contentType}}
		_, err := f(m)
		keyError(t, v.body, err, v.missing, `message "m"`, v.words)
	}
}

func BenchmarkKeys(b *testing.B) {
	m := &driver.Message{ID: "0190b6c5-7f3a-7cc1-9d52-1f0a6f5b8a11", Body: []byte(orderBody), Headers: map[string]string{
		"content-type": "application/json", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}}
	for name, f := range map[string]key.Func{
		"ByID": key.ByID, "JSON": key.FromJSON("/order_id", "/action"), "Body": key.FromBody(),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, f := range map[string]key.FingerprintFunc{
		"FingerprintBody": key.FingerprintBody(), "FingerprintJSON": key.FingerprintJSON("/order_id", "/amount"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
