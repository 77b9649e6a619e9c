package edgetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	edgehttp "github.com/semel-dev/semel/edge/http"
	"github.com/semel-dev/semel/key"
)

// testReplay: both servers replay every response of a handler unchanged, after one run.
func testReplay(t *testing.T, s Setup) {
	var runs atomic.Int32
	h := func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		body, _ := io.ReadAll(r.Body)
		var status int
		if _, err := fmt.Sscan(string(body), &status); err != nil {
			t.Errorf("body %q: %v", body, err)
		}
		w.Header().Set("Location", "/charges/1")
		w.Header()["Link"] = []string{"a", "b"}
		w.Header().Set("X-Latin", "caf\xe9")
		w.WriteHeader(http.StatusEarlyHints) // of the connection: neither sent nor kept
		w.WriteHeader(status)
		if _, err := w.Write([]byte("\x00binary\xff")); (err != nil) != (status == 204 || status == 304) {
			t.Errorf("writing a body behind %d: %v", status, err)
		}
	}
	one, two := serve(t, s.Store, h), serve(t, s.Other, h)
	statuses := []int{200, 201, 202, 204, 299, 301, 303, 304, 400, 402, 404, 418, 500, 501, 502, 504, 599, 600, 999}
	for _, status := range statuses {
		key, body := fmt.Sprintf("k-%d", status), fmt.Sprint(status)
		noRedirect(one)
		noRedirect(two)
		first := ask(t.Context(), one, key, body)
		if first.status != status || first.err != nil || first.replayed() || first.header.Get("X-Latin") != "caf\xe9" {
			t.Errorf("%d: %v %v", status, first, first.header)
		}
		for i, again := range []response{
			ask(t.Context(), two, key, body), ask(t.Context(), one, `"`+key+`"`, body), // quoted, it is the same key
		} {
			if !again.same(first) || !again.replayed() {
				t.Errorf("%d: replay %d is %v %v, the first was %v %v", status, i, again, again.header, first, first.header)
			}
		}
	}
	if int(runs.Load()) != len(statuses) {
		t.Errorf("%d runs of %d keys", runs.Load(), len(statuses))
	}
}

// testLongResponses: a response is replayed byte for byte up to the limit. Beyond it no client gets any of it, and the
// effect does not happen again.
func testLongResponses(t *testing.T, s Setup) {
	var runs atomic.Int32
	long := bytes.Repeat([]byte("0123456789abcde\n"), edgehttp.DefaultMaxBody/16)
	h := func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		_, _ = w.Write(long)
		if body, _ := io.ReadAll(r.Body); string(body) == "more" {
			if _, err := w.Write([]byte("!")); err == nil {
				t.Error("more than the limit was taken")
			}
		}
	}
	one, two := serve(t, s.Store, h), serve(t, s.Other, h)
	for _, body := range []string{"all", "more"} {
		first, again := ask(t.Context(), one, body, body), ask(t.Context(), two, body, body)
		asWanted := first.status == 500
		if body == "all" {
			asWanted = first.body == string(long)
		}
		if !again.same(first) || !again.replayed() || !asWanted {
			t.Errorf("%s: %d with %d bytes, then %d with %d", body, first.status, len(first.body), again.status, len(again.body))
		}
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs of 2 keys", runs.Load())
	}
	a := ask(t.Context(), one, "too-long", string(long)+"!")
	if a.status != http.StatusRequestEntityTooLarge || runs.Load() != 2 {
		t.Errorf("a request that is too long: %v", a)
	}
}

// testMismatch: the key with another request is refused, does not get the stored response and does not harm it.
func testMismatch(t *testing.T, s Setup) {
	h := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret of the first") }
	one, two := serve(t, s.Store, h), serve(t, s.Other, h, func(o *edgehttp.Options) { o.Methods = []string{"POST", "PATCH"} })
	first := ask(t.Context(), one, "k", "100")
	for name, change := range map[string]func(r *http.Request){
		"body":   func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("101")), 3 },
		"method": func(r *http.Request) { r.Method = http.MethodPatch },
		"path":   func(r *http.Request) { r.URL.Path = "/refunds" },
		"query":  func(r *http.Request) { r.URL.RawQuery = "live=0" },
		"type":   func(r *http.Request) { r.Header.Set("Content-Type", "application/json") },
	} {
		a := ask(t.Context(), two, "k", "100", change)
		if a.status != http.StatusUnprocessableEntity || strings.Contains(a.body, "secret") ||
			a.header.Get("Content-Type") != "application/problem+json" || a.replayed() {
			t.Errorf("another %s: %v %v", name, a, a.header)
		}
	}
	if again := ask(t.Context(), two, "k", "100"); !again.same(first) || !again.replayed() {
		t.Errorf("afterwards: %v", again)
	}
}

// testTenants: one tenant's key never finds another's response, whatever the names are.
func testTenants(t *testing.T, s Setup) {
	srv := serve(t, s.Store, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Account")) },
		func(o *edgehttp.Options) {
			o.Tenant = func(r *http.Request) (string, error) {
				if r.Header.Get("Account") == "" {
					return "", errors.New("nobody")
				}
				return r.Header.Get("Account"), nil
			}
		})
	for range 2 {
		for _, c := range [][2]string{
			{"ann", "k"}, {"bob", "k"}, {"Ann", "k"}, {"an", "nk"}, {"ann|k", "k"}, {"ann", "k|k"}, {"", "k"},
		} {
			a := ask(t.Context(), srv, c[1], "100", func(r *http.Request) { r.Header.Set("Account", c[0]) })
			if c[0] == "" && a.status != http.StatusUnauthorized || c[0] != "" && a.body != c[0] {
				t.Errorf("%q with key %q got %v", c[0], c[1], a)
			}
		}
	}
}

// testMany: of many concurrent requests with one key, over both servers, one runs. The others get 409 with Retry-After,
// or its response.
func testMany(t *testing.T, s Setup) {
	var runs atomic.Int32
	h := func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, "run %d", runs.Add(1)) }
	one, two := serve(t, s.Store, h), serve(t, s.Other, h)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			srv := one
			if i%2 == 1 {
				srv = two
			}
			if a := untilDone(t, srv, "k", "100"); a.status != 200 || a.body != "run 1" {
				t.Errorf("request %d got %v", i, a)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// testInFlight: while the first request runs the second gets 409. The first client disconnects, and the effect is
// recorded all the same.
func testInFlight(t *testing.T, s Setup) {
	begun, noticed := make(chan struct{}), make(chan struct{})
	finish, ended := make(chan struct{}), make(chan error, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		ended <- r.Context().Err()
		_, _ = io.WriteString(w, "charged")
	}
	one, two := serve(t, s.Store, h), serve(t, s.Other, h)
	inner := one.Config.Handler
	one.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { close(noticed) })
		inner.ServeHTTP(w, r)
	})
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan response, 1)
	go func() { gone <- ask(ctx, one, "k", "100") }()
	<-begun
	if a := ask(t.Context(), two, "k", "100"); a.status != 409 || a.header.Get("Retry-After") == "" {
		t.Errorf("in flight: %v", a)
	}
	if a := ask(t.Context(), two, "k", "other"); a.status != 422 {
		t.Errorf("another request in flight: %v", a)
	}
	hangUp()
	if a := <-gone; a.err == nil {
		t.Errorf("the client that hung up got %v", a)
	}
	<-noticed // by the server, which could cancel the handler's context now
	close(finish)
	if err := <-ended; err != nil {
		t.Errorf("the handler's context ended with its client: %v", err)
	}
	if a := untilDone(t, two, "k", "100"); a.status != 200 || a.body != "charged" || !a.replayed() {
		t.Errorf("afterwards: %v", a)
	}
}

// testNotStored: a request runs again under the same effect key if its response says that nothing happened, or if its
// handler panicked. Every other response is stored.
func testNotStored(t *testing.T, s Setup) {
	for name, c := range map[string]struct {
		first   func(w http.ResponseWriter)
		status  int
		runs    int
		unknown bool
	}{
		"unavailable": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, 503, 2, false},
		"too many":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }, 429, 2, false},
		"failure":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, 500, 1, false},
		"refusal":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusPaymentRequired) }, 402, 1, false},
		"panic":       {func(http.ResponseWriter) { panic("out of cheese") }, 500, 2, true},
		"no status":   {func(w http.ResponseWriter) { w.WriteHeader(1000) }, 500, 2, true},
	} {
		effects := map[string]bool{}
		runs := 0
		srv := serve(t, s.Store, func(w http.ResponseWriter, r *http.Request) {
			a, _ := semel.AttemptFrom(r.Context())
			effects[a.EffectKey("charge")] = true
			if runs++; runs == 1 {
				c.first(w)
			} else if a.Unknown != c.unknown {
				t.Errorf("%s: the second run has unknown %v", name, a.Unknown)
			}
		})
		key := `"` + name + `"` // a key with a space has to be quoted
		first, second := ask(t.Context(), srv, key, "1"), ask(t.Context(), srv, key, "1")
		if first.status != c.status || second.replayed() != (c.runs == 1) || runs != c.runs || len(effects) != 1 {
			t.Errorf("%s: %v, then %v: %d runs with %d effect keys", name, first, second, runs, len(effects))
		}
	}
	srv := serve(t, s.Store, func(http.ResponseWriter, *http.Request) { panic("out of cheese") },
		func(o *edgehttp.Options) { o.Takeover = semel.Once })
	if a := ask(t.Context(), srv, "once", "1"); a.status != 500 {
		t.Errorf("a panic under Once: %v", a)
	}
	if a := ask(t.Context(), srv, "once", "1"); a.status != 409 || a.header.Get("Retry-After") != "" {
		t.Errorf("after a panic under Once: %v", a) // parked: a retry is of no use
	}
}

// testInterrupted: a server died in the middle of a request. When its lease has ended the next request runs the
// handler, with Attempt.Unknown.
func testInterrupted(t *testing.T, s Setup) {
	var unknown, runs atomic.Int32
	srv := serve(t, s.Other, func(_ http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		if a, ok := semel.AttemptFrom(r.Context()); ok && a.Unknown {
			unknown.Add(1)
		}
	})
	// A server that dies after its claim.
	died, cancel := context.WithCancel(t.Context())
	_, _, err := semel.Do(died, claimOnly{s.Store, cancel}, semel.Key{Consumer: edgehttp.DefaultScope, Raw: key.Tuple("k")},
		func(context.Context, *semel.Attempt) (int, error) { return 0, nil }, semel.WithLease(500*time.Millisecond))
	if err == nil {
		t.Fatal("the dead server recorded the end of its run")
	}
	if a := untilDone(t, srv, "k", "100"); a.status != 200 || a.replayed() || runs.Load() != 1 || unknown.Load() != 1 {
		t.Errorf("%v after %d runs, %d of them with Unknown", a, runs.Load(), unknown.Load())
	}
}

// claimOnly is a server's connection to its store that breaks after the claim.
type claimOnly struct {
	semel.Store
	die func()
}

func (s claimOnly) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	g, err := s.Store.Claim(ctx, c...)
	s.die()
	return g, err
}

func (s claimOnly) Finish(context.Context, ...driver.Finish) ([]driver.Outcome, error) {
	return nil, errors.New("the connection was cut")
}
