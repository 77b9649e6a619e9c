package worker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/semeltest/server"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// The table of statuses (docs/worker.md), through the engine.
func TestHTTPStatuses(t *testing.T) {
	type row struct {
		name    string
		status  int
		headers string // "Name: value", separated by ;
		want    semel.Summary
		once    bool
	}
	ok, dead := semel.Summary{Executed: 1, Effects: 1}, semel.Summary{Executed: 1, Dead: 1}
	retry, parked := semel.Summary{Executed: 2, Retried: 1, Dead: 1}, semel.Summary{Executed: 1, Uncertain: 1}
	rows := []row{
		{"200", 200, "", ok, false},
		{"204", 204, "", ok, false},
		{"400", 400, "", dead, false},
		{"410", 410, "", dead, false},
		{"413", 413, "", dead, false},
		{"415", 415, "", dead, false},
		{"422", 422, "", dead, false},
		{"418 retries", 418, "", retry, false},
		{"500 retries", 500, "", retry, false},
		{"502 retries", 502, "", retry, false},
		{"418 under once is not applied", 418, "", retry, true},
		{"500 under once is parked", 500, "", parked, true},
		{"408 under once is parked", 408, "", parked, true},
		{"400 under once is dead", 400, "", dead, true},
		{"override done", 500, "Semel-Outcome: done", ok, false},
		{"override dead", 200, "Semel-Outcome: dead;Semel-Reason: bad order", dead, false},
		{"override drop", 500, "Semel-Outcome: drop", semel.Summary{Executed: 1, Dropped: 1}, false},
		{"override retry", 200, "Semel-Outcome: Retry;Retry-After: 0", retry, false},
		{"unknown override", 200, "Semel-Outcome: perhaps", ok, false},
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for h := range strings.SplitSeq(c.headers, ";") {
					if name, value, ok := strings.Cut(h, ": "); ok {
						w.Header().Set(name, value)
					}
				}
				w.WriteHeader(c.status)
			}))
			defer srv.Close()
			h := NewHTTP(HTTP{URL: srv.URL, Queue: "q", Keep: 100, Log: quiet()}, 4)
			got, _ := run(t, Plain(h, quiet()), func(cfg *semel.Config) {
				if c.once {
					cfg.Takeover = semel.Once
				}
			}, semel.Message{})
			got.Received, got.ElapsedMS, got.Returned = 0, 0, 0
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// 409, 429, 503 spend no attempt, 401, 403, 404 and redirects pause: whatever the number of refusals, the message runs
// in the end.
func TestHTTPDeferred(t *testing.T) {
	for _, status := range []int{409, 429, 503, 401, 403, 404, 302} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			n := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n++
				if got := r.Header.Get("Semel-Attempt"); got != strconv.Itoa(min(n, 2)) { // of what is deferred a first run alone counts
					t.Errorf("attempt %s of request %d", got, n)
				}
				if n <= 3 {
					w.Header().Set("Retry-After", "0")
					w.Header().Set("Location", "/elsewhere")
					w.WriteHeader(status)
				}
			}))
			defer srv.Close()
			h := NewHTTP(HTTP{URL: srv.URL, Keep: 100, Log: quiet()}, 1)
			got, _ := run(t, Plain(h, quiet()), func(cfg *semel.Config) {
				cfg.Breaker = semel.Breaker{Failures: 1, Open: semel.Backoff{Min: 5 * time.Millisecond, Max: 10 * time.Millisecond}}
			}, semel.Message{})
			if got.Effects != 1 || got.Dead != 0 || n != 4 {
				t.Errorf("got %+v after %d requests", got, n)
			}
		})
	}
}

// A connection that is refused certainly had no effect; one that breaks may have had.
func TestHTTPConnections(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	once := func(cfg *semel.Config) { cfg.Takeover = semel.Once }
	h := NewHTTP(HTTP{URL: srv.URL, Log: quiet()}, 1)
	if got, _ := run(t, Plain(h, quiet()), once, semel.Message{}); got.Uncertain != 1 {
		t.Errorf("broken connection: %+v", got)
	}
}

// A connection that is refused is no message's failure: no attempt is spent, and the effect certainly did not happen. A
// rule may say otherwise.
func TestHTTPNobodyThere(t *testing.T) {
	port, err := server.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	var tries atomic.Int32
	back := make(chan struct{})
	srv := &httptest.Server{Config: &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}}
	srv.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := NewHTTP(HTTP{URL: "http://" + addr, Log: quiet()}, 1)
	got, _ := run(t, Plain(h, quiet()), func(cfg *semel.Config) {
		cfg.Takeover, cfg.MaxAttempts = semel.Once, 1
		cfg.Breaker = semel.Breaker{Failures: 1, Open: semel.Backoff{Min: 5 * time.Millisecond, Max: 10 * time.Millisecond}}
		cfg.Events.Attempt = func(ev semel.Event) {
			if ev.Kind == semel.EventEnded && tries.Add(1) == 4 {
				if srv.Listener, err = net.Listen("tcp", addr); err != nil {
					t.Errorf("listen again: %v", err)
				}
				srv.Start()
				close(back)
			}
		}
	}, semel.Message{})
	<-back
	srv.Close()
	if got.Effects != 1 || got.Uncertain != 0 || got.Dead != 0 || got.Executed < 5 {
		t.Errorf("got %+v", got)
	}
	rule, err := ParseRetry("connection:dead")
	if err != nil {
		t.Fatal(err)
	}
	h.Retry = Rules([]RetryRule{rule})
	got, _ = run(t, Plain(h, quiet()), func(cfg *semel.Config) { cfg.Retry = h.Retry }, semel.Message{})
	if got.Dead != 1 || got.Executed != 1 {
		t.Errorf("ruled: got %+v", got)
	}
}

func TestHTTPRequest(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "the result")
	}))
	defer srv.Close()
	h := NewHTTP(HTTP{URL: srv.URL, Queue: "orders", Keep: 100, Secret: secret, Sqsd: true, Log: quiet()}, 1)
	sum, db := run(t, Plain(h, quiet()), nil, semel.Message{ID: "m|1", Body: []byte(`{"a":1}`), Headers: map[string]string{
		"Authorization": "secret of the sender", "Host": "evil", "Semel-Key": "forged", "X-Mine": "ünï",
		"ce-type": "shop.order", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "bad name": "x",
	}})
	if sum.Effects != 1 {
		t.Fatalf("%+v", sum)
	}
	for name, want := range map[string]string{
		"Content-Type": "^application/json$", "Idempotency-Key": "^[0-9a-f]{64}$", "Semel-Key": `^m\\\|1$`, "Semel-Attempt": "^1$",
		"Semel-Max-Attempts": "^2$", "Semel-Fence": "^[1-9]", "Semel-Lease-Expires": "^20.*Z$", "Semel-Queue": "^orders$",
		"Semel-Redelivered": "^false$", "Semel-Message-Id": `^m\|1$`, "Ce-Specversion": `^1\.0$`, "Ce-Id": `^m\|1$`,
		"Ce-Source": "^/semel/orders$", "Ce-Type": `^shop\.order$`, "Ce-Time": "^20",
		"Traceparent":               "^00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01$",
		"Semel-Header-X-Mine":       "^%C3%BCn%C3%AF$",
		"Semel-Header-Semel-Key":    "^forged$",
		"Authorization":             "^$",
		"X-Aws-Sqsd-Msgid":          `^m\|1$`,
		"X-Aws-Sqsd-Queue":          "^orders$",
		"X-Aws-Sqsd-Receive-Count":  "^1$",
		"X-Aws-Sqsd-Attr-X-Mine":    "^%",
		"Semel-Header-Bad name":     "^$",
		"Webhook-Timestamp":         `^\d+$`,
		"Semel-Header-Content-Type": "^$",
	} {
		if v := got.Header.Get(name); !regexp.MustCompile(want).MatchString(v) {
			t.Errorf("%s is %q, want %s", name, v, want)
		}
	}
	if got.Host == "evil" || got.Method != http.MethodPost || string(body) != `{"a":1}` {
		t.Errorf("%s %s %q", got.Method, got.Host, body)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(got.Header.Get("Webhook-Id") + "." + got.Header.Get("Webhook-Timestamp") + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); got.Header.Get("Webhook-Signature") != want {
		t.Errorf("signature %s, want %s", got.Header.Get("Webhook-Signature"), want)
	}
	r, ok, err := db.Store().Record(t.Context(), semel.Key{Consumer: "q", Raw: `m\|1`})
	if err != nil || !ok || string(r.Result) != "the result" {
		t.Errorf("record %+v %v %v", r, ok, err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0": 0, " 1.5 ": 1500 * time.Millisecond, "Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second,
		"Fri, 02 Jan 2025 03:04:15 GMT": 0, "99999999999": maxRetryAfter, "1e300": maxRetryAfter,
	} {
		if got := retryAfter(in, now); got == nil || *got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
	for _, in := range []string{"", "-1", "soon", "NaN"} {
		if got := retryAfter(in, now); got != nil {
			t.Errorf("%q: %v", in, *got)
		}
	}
}

func TestReadSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for content, ok := range map[string]bool{
		"whsec_MDEyMzQ1Njc4OWFiY2RlZg==\n": true, "MDEyMzQ1Njc4OWFiY2RlZg==": false, "whsec_MDEy": false, "whsec_!": false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := ReadSecret(path); (err == nil) != ok || ok && string(b) != "0123456789abcdef" {
			t.Errorf("%q: %q %v", content, b, err)
		}
	}
}
