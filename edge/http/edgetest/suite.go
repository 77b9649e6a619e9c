// Package edgetest tests the Idempotency-Key middleware of package edgehttp on a store, for authors of adapters. It uses
// real connections, and a store that is opened twice, as by two servers behind one address.
package edgetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	edgehttp "github.com/semel-dev/semel/edge/http"
)

// Setup is a store under the middleware.
type Setup struct {
	Store semel.Store
	// Other is the same store opened a second time. Defaults to Store.
	Other semel.Store
}

// Run runs the suite. open opens an empty store that shares no records with those of other calls, and registers its own
// cleanup.
func Run(t *testing.T, open func(t testing.TB) Setup) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s Setup)
	}{
		{"responses are replayed", testReplay},
		{"long responses", testLongResponses},
		{"FM51 another request", testMismatch},
		{"FM57 tenants", testTenants},
		{"FM13 many at once", testMany},
		{"FM16 in flight, and the client gone", testInFlight},
		{"FM6 responses that are not stored", testNotStored},
		{"FM3 an interrupted request", testInterrupted},
		{"FM32 writes without a response", testNoResponse},
		{"FM34 the store is gone", testStoreGone},
		{"FM59 a response that cannot be read", testUnreadable},
		{"aborted responses", testAborted},
		{"trailers", testTrailers},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			if s.Other == nil {
				s.Other = s.Store
			}
			c.run(t, s)
		})
	}
}

// serve serves a handler behind the middleware.
func serve(t *testing.T, s semel.Store, h http.HandlerFunc, change ...func(o *edgehttp.Options)) *httptest.Server {
	t.Helper()
	o := edgehttp.Options{Store: s, Tenant: edgehttp.SingleTenant}
	for _, f := range change {
		f(&o)
	}
	m, err := edgehttp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(m.Wrap(h))
	t.Cleanup(srv.Close)
	return srv
}

// response is what a client got.
type response struct {
	status        int
	header        http.Header
	body, trailer string
	err           error
}

func (a response) String() string {
	return fmt.Sprintf("%d %q trailer %q %v", a.status, a.body, a.trailer, a.err)
}

func (a response) replayed() bool { return a.header.Get(edgehttp.HeaderReplayed) == "true" }

// same reports whether two responses are the same, except for the header of a replay and the date.
func (a response) same(b response) bool {
	x, y := a.header.Clone(), b.header.Clone()
	for _, h := range []http.Header{x, y} {
		h.Del(edgehttp.HeaderReplayed)
		h.Del("Date")
	}
	return a.status == b.status && a.body == b.body && a.trailer == b.trailer && a.err == nil && b.err == nil &&
		maps.EqualFunc(x, y, slices.Equal)
}

// ask sends a request with a key.
func ask(ctx context.Context, srv *httptest.Server, key, body string, change ...func(r *http.Request)) response {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/charges?live=1", strings.NewReader(body))
	if err != nil {
		return response{err: err}
	}
	r.Header.Set(edgehttp.HeaderKey, key)
	r.Header.Set("Content-Type", "text/plain")
	for _, f := range change {
		f(r)
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		return response{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	a := response{status: resp.StatusCode, header: resp.Header, body: string(b), err: err}
	for _, name := range slices.Sorted(maps.Keys(resp.Trailer)) {
		a.trailer += name + "=" + strings.Join(resp.Trailer[name], ",") + " "
	}
	return a
}

// untilDone repeats a request until the key is no longer in progress.
func untilDone(t *testing.T, srv *httptest.Server, key, body string) response {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("the key stayed in progress"))
	defer cancel()
	for {
		a := ask(ctx, srv, key, body)
		if a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
			return a
		}
		if !strings.Contains(a.header.Get("Content-Type"), "problem+json") || a.header.Get("Retry-After") == "" {
			t.Fatalf("%v %v", a, a.header)
		}
	}
}
