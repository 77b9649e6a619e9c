//go:build unix

package worker

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

// TestTraceContextIsTheMessages: a handler's trace context is the one that the message carries, or none. The worker's own
// belongs to whatever started the worker, and one that is made up has a parent that nobody recorded.
func TestTraceContextIsTheMessages(t *testing.T) {
	t.Setenv("TRACEPARENT", "00-11111111111111111111111111111111-1111111111111111-01")
	t.Setenv("TRACESTATE", "worker=1")
	t.Setenv("BAGGAGE", "worker=1")
	t.Setenv("TRACEPARENT_FILE", "kept")
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for name, c := range map[string]struct{ headers, want map[string]string }{
		"none": {nil, nil},
		"the sender's": {
			map[string]string{"Traceparent": parent, "tracestate": "shop=7", "BAGGAGE": "tenant=a"},
			map[string]string{"TRACEPARENT": parent, "TRACESTATE": "shop=7", "BAGGAGE": "tenant=a"},
		},
		"a part": {map[string]string{"traceparent": parent}, map[string]string{"TRACEPARENT": parent}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &semel.Attempt{}
			a.Headers = c.headers
			if got := execTrace(t, a); !maps.Equal(got, c.want) {
				t.Errorf("--exec: the handler got %v, want %v", got, c.want)
			}
			if got := httpTrace(t, a); !maps.Equal(got, c.want) {
				t.Errorf("--http: the handler got %v, want %v", got, c.want)
			}
		})
	}
}

// execTrace is what a process is started with.
func execTrace(t *testing.T, a *semel.Attempt) map[string]string {
	t.Helper()
	e := &Exec{Argv: Shell("env"), Keep: 1 << 20, KillGrace: time.Second, Log: quiet()}
	out, _, err := e.Run(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "TRACEPARENT_FILE=kept\n") {
		t.Error("a variable that is not of a trace context was removed")
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && traceContext(k) {
			got[k] = v
		}
	}
	return got
}

// httpTrace is what a server is asked with.
func httpTrace(t *testing.T, a *semel.Attempt) map[string]string {
	t.Helper()
	got := map[string]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range traceHeaders {
			if v := r.Header.Get(name); v != "" {
				got[strings.ToUpper(name)] = v
			}
		}
		_, _ = io.WriteString(w, "ok")
	}))
	defer srv.Close()
	if _, _, err := NewHTTP(HTTP{URL: srv.URL, Keep: 100, Log: quiet()}, 1).Run(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	return got
}
