package edgetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semel-dev/semel/key"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	edgehttp "github.com/semel-dev/semel/edge/http"
)

func noRedirect(srv *httptest.Server) {
	srv.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
}

// lossy loses responses to calls that were carried out.
type lossy struct {
	semel.Store
	claims, finishes atomic.Int32
}

var errLost = errors.New("the response was lost")

func (s *lossy) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	g, err := s.Store.Claim(ctx, c...)
	if s.claims.Add(-1) >= 0 {
		return nil, errLost
	}
	return g, err
}

func (s *lossy) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	out, err := s.Store.Finish(ctx, f...)
	if s.finishes.Add(-1) >= 0 {
		return nil, errLost
	}
	return out, err
}

// testNoResponse: a write without a response is repeated, and the client does not notice.
func testNoResponse(t *testing.T, s Setup) {
	l := &lossy{Store: s.Store}
	l.claims.Store(2)
	l.finishes.Store(2)
	runs := 0
	srv := serve(t, l, func(http.ResponseWriter, *http.Request) { runs++ })
	first, again := ask(t.Context(), srv, "k", "1"), ask(t.Context(), srv, "k", "1")
	if first.status != 200 || first.replayed() || !again.same(first) || !again.replayed() || runs != 1 {
		t.Errorf("%v, then %v: %d runs", first, again, runs)
	}
}

// testStoreGone: without the store nothing runs (law 8), and the client gets 503 with Retry-After.
func testStoreGone(t *testing.T, s Setup) {
	if testing.Short() {
		t.Skip("SKIPPED: -short, and it waits for a store that does not respond")
	}
	l := &lossy{Store: s.Store}
	l.claims.Store(1 << 30)
	var runs atomic.Int32
	srv := serve(t, l, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
	a := ask(t.Context(), srv, "k", "1")
	if a.status != 503 || a.header.Get("Retry-After") == "" || runs.Load() != 0 {
		t.Errorf("%v %v, %d runs", a, a.header, runs.Load())
	}
	l.claims.Store(0)
	// The claim without a response was applied: the key is free when its lease has ended, and nothing ran meanwhile.
	if a := ask(t.Context(), srv, "k", "1"); a.status != 409 || runs.Load() != 0 {
		t.Errorf("after it: %v, %d runs", a, runs.Load())
	}
}

// testUnreadable: if this version cannot read or send a stored response, it neither runs the handler again nor panics.
func testUnreadable(t *testing.T, s Setup) {
	srv := serve(t, s.Store, func(http.ResponseWriter, *http.Request) { t.Error("it ran again") },
		func(o *edgehttp.Options) { o.Fingerprint = func(*http.Request, []byte) semel.Fingerprint { return "" } })
	for name, stored := range map[string]string{
		"none": "", "json": "{", "status": `{"status":1000}`, "informational": `{"status":103}`, "negative": `{"status":-1}`,
	} {
		_, _, err := semel.Do(t.Context(), s.Store, semel.Key{Consumer: edgehttp.DefaultScope, Raw: key.Tuple(name)},
			func(context.Context, *semel.Attempt) ([]byte, error) { return []byte(stored), nil })
		if err != nil {
			t.Fatal(err)
		}
		if a := ask(t.Context(), srv, name, "1"); a.status != 500 || !strings.Contains(a.body, "was processed") {
			t.Errorf("%s: %v", name, a)
		}
	}
}

// testAborted: a handler aborts its response. The connection is cut, and the next request runs the handler again.
func testAborted(t *testing.T, s Setup) {
	var runs atomic.Int32
	srv := serve(t, s.Store, func(w http.ResponseWriter, _ *http.Request) {
		if runs.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "done")
	})
	// http.Transport would repeat a request with a key on its own on a connection that was used before: this one is new.
	if a := ask(t.Context(), srv, "k", "1"); a.err == nil {
		t.Errorf("the aborted response arrived: %v", a)
	}
	if a := ask(t.Context(), srv, "k", "1"); a.body != "done" || runs.Load() != 2 {
		t.Errorf("afterwards: %v, %d runs", a, runs.Load())
	}
}

// testTrailers: the trailers of a request reach the handler, those of a response its client and every replay.
func testTrailers(t *testing.T, s Setup) {
	srv := serve(t, s.Store, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Trailer.Get("Checksum"); got != "77" {
			t.Errorf("the request's trailer is %q", got)
		}
		w.Header().Set("Trailer", "Sum, Unset")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Sum", "42")
		w.Header().Set(http.TrailerPrefix+"late", "7")
	})
	chunked := func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("1")), -1
		r.Trailer = http.Header{"Checksum": {"77"}}
	}
	first, again := ask(t.Context(), srv, "k", "1", chunked), ask(t.Context(), srv, "k", "1", chunked)
	if first.body != "body" || first.trailer != "Late=7 Sum=42 " || !again.same(first) || !again.replayed() {
		t.Errorf("%v, then %v", first, again)
	}
}
