package api

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// TestFM55_BodiesAreNotGuessedAt: a body that two readers may understand differently is refused. Read leniently, the keys of two
// different messages would become one, and the second would get the first one's result.
func TestFM55_BodiesAreNotGuessedAt(t *testing.T) {
	c := serve(t, nil)
	bad := []string{
		"{\"key\":\"caf\xe9\"}", "{\"key\":\"caf\xe8\"}", `{"key":"\ud800"}`, `{"key":"\udfff"}`, `{"key":"a","key":"b"}`,
		`{"key":"a","k\u0065y":"b"}`, `{"KEY":"a"}`, `{"Key":"a","key":"b"}`, `{"key":"a","more":1}`, `null`, `[]`, `"key"`,
		"{\"key\":\"a\",\"tenant\":\"\xe9\"}", `{"key":"a","fingerprint":"\ud800"}`, "\ufeff" + `{"key":"a"}`,
	}
	for _, body := range bad {
		for _, path := range []string{"/v1/claim", "/v1/extend", "/v1/complete", "/v1/release"} {
			if st, v := c.post(path, body); st != 400 || code(v) != "bad_json" {
				t.Errorf("%s %q: %d %v, want 400 bad_json", path, body, st, v)
			}
		}
	}
	for _, body := range []string{"\"caf\xe9\"", `"\ud800"`, `{"a":1,"a":2}`, `{"a":{"b":1,"\u0062":2}}`, `{} 1`, ``} {
		if st, v := c.post("/enqueue", body); st != 400 || code(v) != "bad_json" {
			t.Errorf("/enqueue %q: %d %v, want 400 bad_json", body, st, v)
		}
	}
	// A result is kept as it was written, whatever the checks made of it.
	_, v := c.post("/v1/claim", `{"key":"k"}`)
	c.post("/v1/complete", `{"hold":"`+v["hold"].(string)+`","result":{"b": 1.0, "a":10000000000000000000001}}`)
	if _, v := c.post("/v1/claim", `{"key":"k"}`); v["result"] != `{"b": 1.0, "a":10000000000000000000001}` {
		t.Errorf("%v", v)
	}
}

// TestFieldsOfRequestsAreBounded: what a store could not keep, or what nobody could read, is the caller's mistake and not an
// outage that is to be repeated forever.
func TestFieldsOfRequestsAreBounded(t *testing.T) {
	c := serve(t, func(s *Server) { s.MaxBody = 1 << 20 })
	_, v := c.post("/v1/claim", `{"key":"k"}`)
	hold := v["hold"].(string)
	forged := func(change string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"c":"orders","k":"k","g":1,"f":1,"n":"00112233445566778899aabbccddeeff"` + change + `}`))
	}
	if st, v := c.post("/v1/extend", `{"hold":"`+forged("")+`"}`); st != 409 {
		t.Fatalf("a hold of somebody else: %d %v", st, v)
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, r := range [][3]string{
		{"/v1/claim", `{"key":"a","consumer":"` + long(201) + `"}`, "consumer: it has 201 bytes"},
		{"/v1/claim", `{"key":"a","consumer":"\u001b[2Jx"}`, "consumer: it has a control character"},
		{"/v1/claim", `{"key":"a","consumer":"a\u0000"}`, "consumer: it has a control character"},
		{"/v1/claim", `{"key":"a","consumer":"a\u009b"}`, "consumer: it has a control character"},
		{"/v1/claim", `{"key":"a","tenant":"` + long(500_000) + `"}`, "tenant: it has 500000 bytes"},
		{"/v1/claim", `{"key":"a","tenant":"\n"}`, "tenant: it has a control character"},
		{"/v1/claim", `{"key":"a","delivery_id":"` + long(1025) + `"}`, "delivery_id: it has 1025 bytes"},
		{"/v1/claim", `{"key":"a","delivery_id":"\u007f"}`, "delivery_id: it has a control character"},
		{"/v1/claim", `{"key":"a","fingerprint":"` + long(65537) + `"}`, "fingerprint: it has 65537 bytes"},
		{"/v1/extend", `{"hold":"` + long(9000) + `"}`, "hold:"},
		{"/v1/extend", `{"hold":"` + forged(`,"c":"other"`) + `"}`, "hold:"},
		{"/v1/extend", `{"hold":"` + forged(`,"K":"other"`) + `"}`, "hold:"},
		{"/v1/extend", `{"hold":"` + forged(`,"t":"\u0000"`) + `"}`, "hold:"},
		{"/v1/extend", `{"hold":"` + forged(`,"t":"`+long(2000)+`"`) + `"}`, "hold:"},
		{"/v1/release", `{"hold":"` + hold + `","reason":"` + long(8193) + `"}`, "reason: it has 8193 bytes"},
	} {
		st, v := c.post(r[0], r[1])
		e, _ := v["error"].(map[string]any)
		if text, _ := e["message"].(string); st != 400 || !strings.Contains(text, r[2]) {
			t.Errorf("%s %.60s: %d %v, want 400 %q", r[0], r[1], st, v, r[2])
		}
	}
	full := `{"key":"a","consumer":"` + long(200) + `","tenant":"` + long(1024) + `","delivery_id":"` + long(1024) + `","fingerprint":"a\nb"}`
	st, v := c.post("/v1/claim", full)
	hold, _ = v["hold"].(string)
	if st != 200 {
		t.Fatalf("at the bounds: %d %v", st, v)
	}
	if st, v := c.post("/v1/complete", `{"hold":"`+hold+`"}`); st != 200 {
		t.Errorf("at the bounds: %d %v", st, v)
	}
}

// TestIdempotencyKeysOfEnqueue are read as edge/http reads them: no key of another spelling becomes a known one.
func TestIdempotencyKeysOfEnqueue(t *testing.T) {
	c := serve(t, nil)
	for key, want := range map[string]string{
		"AB": "AB", `"AB"`: "AB", `"a \"b\" \\"`: `a "b" \`, `"\x41\u0042"`: "", `"a\n"`: "", `"a`: "", "a b": "", `a,b`: "", "M\xfcller": "",
		`""`: "", strings.Repeat("k", 256): "",
	} {
		st, v := c.do("POST", "/enqueue", `{}`, "Idempotency-Key", key)
		if want == "" && (st != 400 || code(v) != "bad_key") || want != "" && (st != 202 || v["id"] != want) {
			t.Errorf("%s: %d %v, want %q", key, st, v, want)
		}
	}
}

// TestReboundHost: a name that a web page made point at this machine is not the server's, on any path.
func TestReboundHost(t *testing.T) {
	h := serve(t, nil)
	for _, path := range []string{"/v1/claim", "/v1/complete", "/enqueue", "/readyz", "/livez", "/metrics", "/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+path, strings.NewReader(`{"key":"order-4711"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example:18080"
		r.Header.Set("Origin", "http://evil.example:18080")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// leaky fails as a database driver does: with everything that it knows of the place.
type leaky struct{ storeOutage }

var errLeaky = errors.New("failed to connect to `user=shop database=orders`: 10.1.2.3:5432 (db.internal): connection refused")

func (leaky) Claim(context.Context, ...driver.Claim) ([]driver.Grant, error) { return nil, errLeaky }
func (leaky) Record(context.Context, driver.Key) (driver.Record, bool, error) {
	return driver.Record{}, false, errLeaky
}
func (leaky) Records(context.Context, driver.RecordFilter) ([]driver.Record, error) {
	return nil, errLeaky
}

// TestOutageNamesNoPlace: everybody who may scrape the port reads the responses of an outage; the log has the reason.
func TestOutageNamesNoPlace(t *testing.T) {
	c := serve(t, func(s *Server) { s.Store = leaky{} })
	for _, r := range [][2]string{{"GET", "/readyz"}, {"POST", "/v1/claim"}} {
		w := httptest.NewRecorder()
		req, err := http.NewRequestWithContext(t.Context(), r[0], c.url+r[1], strings.NewReader(`{"key":"k"}`))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Body.ReadFrom(res.Body)
		_ = res.Body.Close()
		text := w.Body.String()
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %s", r[1], res.Status)
		}
		for _, secret := range []string{"shop", "10.1.2.3", "5432", "db.internal", "database"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells %q: %s", r[1], secret, text)
			}
		}
		if r[1] == "/readyz" && !strings.Contains(text, "store") {
			t.Errorf("it does not say which of them: %s", text)
		}
	}
}
