package worker

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/semel-dev/semel"
)

// One attempt is one request. net/http sends a POST with an Idempotency-Key again by itself when a kept connection breaks
// after the request. That would run an endpoint twice that crashed the first time.
func TestHTTPNeverSendsAnAttemptTwice(t *testing.T) {
	for name, body := range map[string]string{"body": "{}", "no body": ""} {
		t.Run(name, func(t *testing.T) {
			var seen atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Header.Get("Idempotency-Key") == "" {
					t.Error("no Idempotency-Key")
				}
				if r.Header.Get("Semel-Message-Id") == "first" {
					return
				}
				seen.Add(1)
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.Close()
			}))
			defer srv.Close()
			h := NewHTTP(HTTP{URL: srv.URL, Queue: "q", Keep: 100, Log: quiet()}, 1)
			for _, id := range []string{"first", "second"} {
				a := &semel.Attempt{Message: semel.Message{ID: id, Body: []byte(body)}}
				if _, _, err := h.Run(t.Context(), a); (err == nil) != (id == "first") {
					t.Errorf("message %s: %v", id, err)
				}
			}
			if n := seen.Load(); n != 1 {
				t.Errorf("one attempt sent %d requests", n)
			}
		})
	}
}
