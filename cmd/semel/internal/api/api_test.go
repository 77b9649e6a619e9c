package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

type client struct {
	t   *testing.T
	url string
	db  *memory.DB
}

func serve(t *testing.T, change func(*Server)) *client {
	db := memory.Open()
	s := &Server{
		Queue: db.Queue("orders"), Store: db.Store(), Consumer: "orders", MaxBody: 4096, Retention: time.Hour,
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(s)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return &client{t: t, url: srv.URL, db: db}
}

// do sends a request and returns the status and the response, which must be JSON.
func (c *client) do(method, path, body string, headers ...string) (int, map[string]any) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil || res.Header.Get("Content-Type") != "application/json" {
		c.t.Fatalf("%s %s: %q is not JSON: %v", method, path, b, err)
	}
	return res.StatusCode, v
}

func (c *client) post(path, body string) (int, map[string]any) {
	c.t.Helper()
	return c.do("POST", path, body)
}

func code(v map[string]any) any {
	e, _ := v["error"].(map[string]any)
	return e["code"]
}

func TestEnqueue(t *testing.T) {
	c := serve(t, nil)
	for range 2 {
		st, v := c.do("POST", "/enqueue", `{"a":1}`, "Idempotency-Key", `"order|7"`, "Traceparent", "00-x")
		if st != 202 || v["id"] != "order|7" || v["queue"] != "orders" {
			t.Errorf("%d %v", st, v)
		}
	}
	st, v := c.post("/enqueue", `[1, 2]`)
	if id, _ := v["id"].(string); st != 202 || len(id) != 36 {
		t.Errorf("%d %v", st, v)
	}
	ds, err := c.db.Queue("orders").Peek(t.Context(), 10)
	if err != nil || len(ds) != 3 {
		t.Fatalf("%v %v", ds, err)
	}
	if d := ds[0]; string(d.Body) != `{"a":1}` || d.Header("idempotency-key") != "order|7" || d.Header("traceparent") != "00-x" || ds[1].ID != d.ID {
		t.Errorf("%+v", d)
	}
	if ds[2].Header("idempotency-key") != "" {
		t.Errorf("%+v", ds[2])
	}
}

func TestEnqueueRefuses(t *testing.T) {
	c := serve(t, nil)
	for _, r := range []struct {
		body    string
		headers []string
		status  int
		code    string
	}{
		{"", nil, 400, "bad_json"},
		{`{"a":`, nil, 400, "bad_json"},
		{`{} {}`, nil, 400, "bad_json"},
		{`"` + strings.Repeat("x", 5000) + `"`, nil, 413, "too_large"},
		{`{}`, []string{"Idempotency-Key", strings.Repeat("k", 1025)}, 400, "bad_key"},
		{`{}`, []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, "bad_key"},
		{`{}`, []string{"Idempotency-Key", "M\xfcller"}, 400, "bad_key"},
		{`{}`, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403, "cross_origin"},
	} {
		if st, v := c.do("POST", "/enqueue", r.body, r.headers...); st != r.status || code(v) != r.code {
			t.Errorf("%.20q: %d %v, want %d %s", r.body, st, v, r.status, r.code)
		}
	}
	if s, _ := c.db.Queue("orders").Stats(t.Context()); s.Visible != 0 {
		t.Errorf("%+v", s)
	}
}

func TestPaths(t *testing.T) {
	c := serve(t, nil)
	for _, r := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/livez", 200},
		{"GET", "/readyz", 200},
		{"GET", "/enqueue", 405},
		{"PUT", "/v1/claim", 405},
		{"POST", "/livez", 405},
		{"GET", "/nothing", 404},
		{"POST", "/v1/steal", 404},
	} {
		if st, v := c.do(r.method, r.path, ""); st != r.status {
			t.Errorf("%s %s: %d %v, want %d", r.method, r.path, st, v, r.status)
		}
	}
}

// One key through its life: claimed, busy for others, extended, completed, replayed.
func TestGuard(t *testing.T) {
	c := serve(t, nil)
	const nonce = "00112233445566778899aabbccddeeff"
	st, v := c.post("/v1/claim", `{"key":"k","lease_ms":30000,"nonce":"`+nonce+`","fingerprint":"a"}`)
	hold, _ := v["hold"].(string)
	if st != 200 || v["verdict"] != "acquired" || v["isDuplicate"] != false || v["token"] != 1.0 || v["attempt"] != 1.0 ||
		v["nonce"] != nonce || hold == "" || len(v["effect_key"].(string)) != 64 {
		t.Fatalf("%d %v", st, v)
	}
	// Law 5: the same nonce is the same claim.
	for _, same := range []string{nonce, "00112233-4455-6677-8899-aabbccddeeff"} {
		if _, v := c.post("/v1/claim", `{"key":"k","nonce":"`+same+`","fingerprint":"a"}`); v["verdict"] != "acquired" || v["hold"] != hold {
			t.Errorf("%v", v)
		}
	}
	if st, v := c.post("/v1/claim", `{"key":"k","fingerprint":"a"}`); st != 200 || v["verdict"] != "busy" || v["isDuplicate"] != true ||
		v["retry_after_ms"].(float64) < 1000 || v["retry_after_seconds"].(float64) < 29 || v["hold"] != nil {
		t.Errorf("%d %v", st, v)
	}
	if _, v := c.post("/v1/claim", `{"key":"k","fingerprint":"b"}`); v["verdict"] != "mismatch" {
		t.Errorf("%v", v)
	}
	if st, v := c.post("/v1/extend", `{"hold":"`+hold+`","lease_ms":60000}`); st != 200 || v["outcome"] != "applied" {
		t.Errorf("%d %v", st, v)
	}
	for range 2 {
		if st, v := c.post("/v1/complete", `{"hold":"`+hold+`","result":{"ok": true}}`); st != 200 || v["outcome"] != "applied" {
			t.Errorf("%d %v", st, v)
		}
	}
	if _, v := c.post("/v1/extend", `{"hold":"`+hold+`"}`); v["outcome"] != "settled" {
		t.Errorf("%v", v)
	}
	if _, v := c.post("/v1/claim", `{"key":"k","fingerprint":"a"}`); v["verdict"] != "replay" || v["result"] != `{"ok": true}` {
		t.Errorf("%v", v)
	}
	if st, v := c.post("/v1/release", `{"hold":"`+hold+`"}`); st != 409 || v["outcome"] != "lost" || code(v) != "lost" {
		t.Errorf("%d %v", st, v)
	}
	// Another consumer has the same key for itself.
	if _, v := c.post("/v1/claim", `{"key":"k","consumer":"audit"}`); v["verdict"] != "acquired" {
		t.Errorf("%v", v)
	}
}

func TestGuardReleaseAndResults(t *testing.T) {
	c := serve(t, nil)
	_, v := c.post("/v1/claim", `{"key":"k"}`)
	if st, v := c.post("/v1/release", `{"hold":"`+v["hold"].(string)+`","ran":"unstarted","retry_after_ms":60000}`); st != 200 || v["outcome"] != "applied" {
		t.Errorf("%d %v", st, v)
	}
	if _, v := c.post("/v1/claim", `{"key":"k"}`); v["verdict"] != "busy" || v["unknown"] != false {
		t.Errorf("%v", v)
	}
	for ran, unknown := range map[string]bool{"": true, `,"ran":"maybe_applied"`: true, `,"ran":"not_applied"`: false} {
		key := fmt.Sprintf(`{"key":"k2 %s"}`, strings.ReplaceAll(ran, `"`, ""))
		_, v = c.post("/v1/claim", key)
		c.post("/v1/release", `{"hold":"`+v["hold"].(string)+`"`+ran+`}`)
		_, v = c.post("/v1/claim", key)
		if v["verdict"] != "acquired" || v["attempt"] != 2.0 || v["unknown"] != unknown || v["token"] == 1.0 {
			t.Errorf("released with %q: %v", ran, v)
		}
	}
	_, v = c.post("/v1/claim", `{"key":"k2"}`)
	c.post("/v1/complete", `{"hold":"`+v["hold"].(string)+`","result_base64":"/wA="}`)
	if _, v := c.post("/v1/claim", `{"key":"k2"}`); v["result_base64"] != "/wA=" || v["result"] != nil {
		t.Errorf("%v", v)
	}
}

// TestEndsOfCallersThatWent are written all the same: the caller's work is done.
func TestEndsOfCallersThatWent(t *testing.T) {
	db := memory.Open()
	s := &Server{Store: db.Store(), Consumer: "orders", MaxBody: 4096, Retention: time.Hour, Log: slog.New(slog.DiscardHandler)}
	ask := func(ctx context.Context, path, body string) (v map[string]any) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, strings.NewReader(body)))
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	hold, _ := ask(t.Context(), "/v1/claim", `{"key":"k"}`)["hold"].(string)
	ask(gone, "/v1/complete", `{"hold":"`+hold+`","result":"done"}`)
	if v := ask(t.Context(), "/v1/claim", `{"key":"k"}`); v["verdict"] != "replay" || v["result"] != "done" {
		t.Errorf("%v", v)
	}
}

func TestGuardRefuses(t *testing.T) {
	c := serve(t, nil)
	_, v := c.post("/v1/claim", `{"key":"k"}`)
	hold := v["hold"].(string)
	for _, r := range [][3]string{
		{"/v1/claim", ``, "bad_json"},
		{"/v1/claim", `{"key":"a"} x`, "bad_json"},
		{"/v1/claim", `{"kee":"a"}`, "bad_json"},
		{"/v1/claim", `{}`, "bad_request"},
		{"/v1/claim", `{"key":"` + strings.Repeat("k", 1025) + `"}`, "bad_request"},
		{"/v1/claim", `{"key":"a\u0000"}`, "bad_request"},
		{"/v1/claim", `{"key":"a","lease_ms":5}`, "bad_request"},
		{"/v1/claim", `{"key":"a","lease_ms":999999999}`, "bad_request"},
		{"/v1/claim", `{"key":"a","nonce":"00"}`, "bad_request"},
		{"/v1/claim", `{"key":"a","nonce":"0011-2233445566778899aabbccddee-ff00"}`, "bad_request"},
		{"/v1/claim", `{"key":"a","nonce":"00000000000000000000000000000000"}`, "bad_request"},
		{"/v1/claim", `{"key":"a","takeover":"probe"}`, "bad_request"},
		{"/v1/extend", `{"hold":"x"}`, "bad_request"},
		{"/v1/extend", `{"hold":"` + hold + `","lease_ms":1}`, "bad_request"},
		{"/v1/complete", `{"hold":""}`, "bad_request"},
		{"/v1/complete", `{"hold":"` + hold + `","result":1,"result_base64":""}`, "bad_request"},
		{"/v1/complete", `{"hold":"` + hold + `","result_base64":"%"}`, "bad_request"},
		{"/v1/release", `{"hold":"` + hold + `","ran":"maybe"}`, "bad_request"},
		{"/v1/release", `{"hold":"` + hold + `","retry_after_ms":-1}`, "bad_request"},
	} {
		if st, v := c.post(r[0], r[1]); st != 400 || code(v) != r[2] {
			t.Errorf("%s %.60s: %d %v, want %s", r[0], r[1], st, v, r[2])
		}
	}
}

// outage is a store and a queue that do not respond.
type outage struct {
	driver.Queue
	driver.Store
}

var errDown = errors.New("down")

func (outage) Send(context.Context, ...driver.Message) error { return errDown }
func (outage) Features() driver.QueueFeatures                { return driver.QueueFeatures{Name: "q"} }
func (outage) Stats(context.Context) (driver.QueueStats, error) {
	return driver.QueueStats{}, errDown
}
func (outage) Peek(context.Context, int) ([]driver.Delivery, error) { return nil, errDown }
func (outage) Purge(context.Context) (int64, error)                 { return 0, errDown }
func (outage) Extend(context.Context, time.Duration, ...any) ([]driver.Outcome, error) {
	return nil, errDown
}

type storeOutage struct{ driver.Store }

func (storeOutage) Features() driver.StoreFeatures { return driver.StoreFeatures{} }
func (storeOutage) Claim(context.Context, ...driver.Claim) ([]driver.Grant, error) {
	return nil, errDown
}

func (storeOutage) Extend(context.Context, time.Duration, ...driver.Hold) ([]driver.Outcome, error) {
	return nil, errDown
}

func (storeOutage) Finish(context.Context, ...driver.Finish) ([]driver.Outcome, error) {
	return []driver.Outcome{driver.Unknown}, nil
}

// With queue and store down every response is 503: the outcome is unknown.
func TestOutage(t *testing.T) {
	c := serve(t, func(s *Server) { s.Queue, s.Store = outage{}, storeOutage{} })
	hold := packHold(driver.Hold{Key: driver.Key{Raw: "k"}, Token: 1, Nonce: driver.Nonce{1}})
	for _, r := range [][2]string{
		{"/enqueue", `{}`},
		{"/v1/claim", `{"key":"k"}`},
		{"/v1/extend", `{"hold":"` + hold + `"}`},
		{"/v1/complete", `{"hold":"` + hold + `"}`},
		{"/v1/release", `{"hold":"` + hold + `"}`},
	} {
		if st, v := c.post(r[0], r[1]); st != 503 || code(v) != "unavailable" {
			t.Errorf("%s: %d %v", r[0], st, v)
		}
	}
	if st, _ := c.do("GET", "/readyz", ""); st != 503 {
		t.Errorf("readyz: %d", st)
	}
	if st, _ := c.do("GET", "/livez", ""); st != 200 {
		t.Errorf("livez: %d", st)
	}
}

func TestPanicIs500(t *testing.T) {
	h := recoverer(slog.New(slog.DiscardHandler), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("x") }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != 500 {
		t.Errorf("%d", w.Code)
	}
}

func TestHoldText(t *testing.T) {
	h := driver.Hold{Key: driver.Key{Consumer: "c", Tenant: "t", Raw: "k|"}, Generation: 2, Epoch: 1, Token: 1 << 60, Nonce: driver.Nonce{9}}
	got, err := unpackHold(packHold(h))
	if err != nil || got != h {
		t.Errorf("%+v %v", got, err)
	}
}
