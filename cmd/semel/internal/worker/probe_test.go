package worker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

func doubtful(key string) *semel.Attempt {
	return semel.NewAttempt(semel.Message{ID: "m"}, driver.Grant{
		Hold: driver.Hold{Key: driver.Key{Consumer: "q", Raw: key}, Token: 7}, Attempt: 2, Unknown: true,
	}, nil)
}

// The table of a probe's responses (docs/worker.md).
func TestHTTPProbeResponses(t *testing.T) {
	for _, c := range []struct {
		status  int
		outcome string
		want    semel.ProbeResult
	}{
		{200, "", semel.ProbeApplied},
		{404, "", semel.ProbeNotApplied},
		{201, "", semel.ProbeUnknown},
		{204, "", semel.ProbeUnknown},
		{301, "", semel.ProbeUnknown},
		{401, "", semel.ProbeUnknown},
		{410, "", semel.ProbeUnknown},
		{500, "", semel.ProbeUnknown},
		{503, "", semel.ProbeUnknown},
		{404, "applied", semel.ProbeApplied},
		{200, "Not-Applied", semel.ProbeNotApplied},
		{200, "unknown", semel.ProbeUnknown},
		{404, "done", semel.ProbeUnknown},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.outcome != "" {
				w.Header().Set("Semel-Outcome", c.outcome)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte("body"))
		}))
		got, result, err := NewHTTPProbe(HTTPProbe{URL: srv.URL, Keep: 100, Log: quiet()}, 1).Probe(t.Context(), doubtful("k"))
		srv.Close()
		if got != c.want || (err != nil) != (got == semel.ProbeUnknown) || (string(result) == "body") != (got == semel.ProbeApplied) {
			t.Errorf("%d %q: %v, result %q, %v", c.status, c.outcome, got, result, err)
		}
	}
}

// TestHTTPProbeRequest checks the request, and that the outcome stays unknown without a response.
func TestHTTPProbeRequest(t *testing.T) {
	a := doubtful("order/1 ?")
	var path, key, name string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		path, key, name = r.Method+" "+r.URL.EscapedPath(), r.Header.Get("Idempotency-Key"), r.Header.Get("Semel-Key")
	}))
	p := NewHTTPProbe(HTTPProbe{URL: srv.URL + "/charges/{key}/{effect_key}", Keep: 2, Log: quiet()}, 1)
	got, err := p.Ask(t.Context(), a)
	want := "GET /charges/order%2F1%20%3F/" + a.EffectKey("")
	if got != semel.ProbeApplied || err != nil || path != want || key != a.EffectKey("") || name != "order/1 ?" {
		t.Errorf("%v %v: asked %s, wanted %s; Idempotency-Key %s, Semel-Key %s", got, err, path, want, key, name)
	}
	srv.Close()
	if got, err := p.Ask(t.Context(), a); got != semel.ProbeUnknown || err == nil {
		t.Errorf("without a server: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, _ := p.Ask(ctx, a); got != semel.ProbeUnknown {
		t.Errorf("cancelled: %v", got)
	}
}

// TestFM03_ProbeHTTP: a run crashes. The endpoint says that the effect happened, and it does not happen again.
func TestFM03_ProbeHTTP(t *testing.T) {
	charges := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost: // charges, and breaks before it responds
			charges++
			panic(http.ErrAbortHandler)
		case charges > 0:
			_, _ = w.Write([]byte("charged"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer srv.Close()
	p := NewHTTPProbe(HTTPProbe{URL: srv.URL, Queue: "q", Keep: 100, Log: quiet()}, 1)
	h := NewHTTP(HTTP{URL: srv.URL, Queue: "q", Keep: 100, Log: quiet()}, 1)
	var result string
	first := doubtful("k")
	if _, _, err := h.Run(t.Context(), first); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Fatalf("the broken request: %v", err)
	}
	got, b, err := p.Probe(t.Context(), first)
	if result = string(b); got != semel.ProbeApplied || result != "charged" || err != nil || charges != 1 {
		t.Errorf("%v %q %v after %d charges", got, result, err, charges)
	}
}
