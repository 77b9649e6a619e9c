package edgehttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

func wrap(t *testing.T, o Options, h http.HandlerFunc) http.Handler {
	t.Helper()
	if o.Store == nil {
		o.Store = memory.NewStore()
	}
	if o.Tenant == nil {
		o.Tenant = SingleTenant
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(h)
}

func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/charges?live=1", strings.NewReader(body))
	if key != "" {
		r.Header.Set(HeaderKey, key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestSharedHeaders: what a middleware around this one has added to headers that everybody adds to stays, and is not kept.
func TestSharedHeaders(t *testing.T) {
	inner := wrap(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Set-Cookie", "cart=1")
	})
	for i, want := range []string{"[session=0 cart=1] [Origin Accept]", "[session=1 cart=1] [Origin Accept]"} {
		outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Origin")
			w.Header().Add("Set-Cookie", fmt.Sprint("session=", i))
			inner.ServeHTTP(w, r)
		})
		h := post(outer, "k-1", "100").Header()
		if got := fmt.Sprint(h["Set-Cookie"], " ", h["Vary"]); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

// TestReplay: the same status, headers and body, and one effect.
func TestReplay(t *testing.T) {
	charges := 0
	h := wrap(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		charges++
		body, err := io.ReadAll(r.Body)
		if err != nil || semel.AttemptFrom(r.Context()).EffectKey("charge") == "" {
			t.Errorf("body %q: %v", body, err)
		}
		w.Header().Set("Location", "/charges/1")
		w.Header().Add("Link", "a")
		w.Header().Add("Link", "b")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"charged":%s}`, body)
	})
	for i, key := range []string{"k-1", "k-1", `"k-1"`} {
		w := post(h, key, "100")
		if w.Code != http.StatusCreated || w.Body.String() != `{"charged":100}` || w.Header().Get("Location") != "/charges/1" ||
			len(w.Header()["Link"]) != 2 || w.Header().Get("Connection") != "" {
			t.Errorf("request %d: %d %v %s", i, w.Code, w.Header(), w.Body)
		}
		if got := w.Header().Get(HeaderReplayed); (got == "true") != (i > 0) {
			t.Errorf("request %d: replayed is %q", i, got)
		}
	}
	if charges != 1 {
		t.Errorf("%d charges", charges)
	}
}

func TestRefusals(t *testing.T) {
	h := wrap(t, Options{MaxBody: 64}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if w := post(h, "k-1", "100"); w.Code != http.StatusNoContent {
		t.Fatalf("first: %d", w.Code)
	}
	for name, c := range map[string]struct {
		key, body string
		status    int
		says      string
	}{
		"missing":   {"", "100", 400, "is missing"},
		"empty":     {`""`, "100", 400, "is empty"},
		"malformed": {`"a`, "100", 400, "malformed"},
		"bad byte":  {"a\xff", "100", 400, "printable"},
		"too long":  {strings.Repeat("k", 256), "100", 400, "longer than 255"},
		"other":     {"k-1", "200", 422, "another request"},
		"large":     {"k-2", strings.Repeat("x", 65), 413, "longer than 64"},
	} {
		w := post(h, c.key, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header[HeaderKey] = []string{"a", "b"}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 400 {
		t.Errorf("two keys: %d", w.Code)
	}
	r = httptest.NewRequest(http.MethodGet, "/charges", nil)
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusNoContent {
		t.Errorf("GET needs no key: %d", w.Code)
	}
}

// TestInFlight: 409 while the first request runs, and its client going away does not end it.
func TestInFlight(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	var runs atomic.Int32
	h := wrap(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		close(begun)
		<-finish
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended with its client's: %v", err)
		}
		_, _ = io.WriteString(w, "done")
	})
	ctx, hangUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		r := httptest.NewRequest(http.MethodPost, "/charges?live=1", strings.NewReader("100")).WithContext(ctx)
		r.Header.Set(HeaderKey, "k-1")
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
	<-begun
	hangUp()
	if w := post(h, "k-1", "100"); w.Code != http.StatusConflict || w.Header().Get("Retry-After") == "" {
		t.Errorf("in flight: %d %s", w.Code, w.Body)
	}
	close(finish)
	wg.Wait()
	if w := post(h, "k-1", "100"); w.Code != http.StatusOK || w.Body.String() != "done" || runs.Load() != 1 {
		t.Errorf("after it: %d %s, %d runs", w.Code, w.Body, runs.Load())
	}
}

// TestTenants: one tenant's key never answers with another's response.
func TestTenants(t *testing.T) {
	h := wrap(t, Options{Tenant: func(r *http.Request) (string, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return "", errors.New("no account")
		}
		return user, nil
	}}, func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		_, _ = io.WriteString(w, "for "+user)
	})
	for _, user := range []string{"ann", "bob", "ann", ""} {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("100"))
		r.Header.Set(HeaderKey, "k-1")
		if user != "" {
			r.SetBasicAuth(user, "x")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if want := "for " + user; user != "" && w.Body.String() != want {
			t.Errorf("%s got %q", user, w.Body)
		}
		if user == "" && w.Code != http.StatusUnauthorized {
			t.Errorf("nobody got %d", w.Code)
		}
	}
}

// TestNotStored: an answer that says that nothing happened lets the next request run; a failure of the server is the
// answer for good, as Stripe's; a panic is retried with the same effect key.
func TestNotStored(t *testing.T) {
	for name, c := range map[string]struct {
		first  func(w http.ResponseWriter)
		status int
		runs   int
	}{
		"unavailable": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, 503, 2},
		"too many":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }, 429, 2},
		"failure":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, 500, 1},
		"refusal":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusPaymentRequired) }, 402, 1},
		"panic":       {func(http.ResponseWriter) { panic("out of cheese") }, 500, 2},
	} {
		keys := map[string]bool{}
		runs := 0
		h := wrap(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
			keys[semel.AttemptFrom(r.Context()).EffectKey("charge")] = true
			if runs++; runs == 1 {
				c.first(w)
			}
		})
		if w := post(h, "k", "1"); w.Code != c.status {
			t.Errorf("%s: first %d", name, w.Code)
		}
		post(h, "k", "1")
		if runs != c.runs || len(keys) != 1 {
			t.Errorf("%s: %d runs with %d effect keys", name, runs, len(keys))
		}
	}
}

// TestLongAnswer: an answer that cannot be kept is not given, and the effect does not happen again.
func TestLongAnswer(t *testing.T) {
	runs := 0
	h := wrap(t, Options{MaxBody: 100}, func(w http.ResponseWriter, _ *http.Request) {
		runs++
		for i := range 20 {
			if _, err := io.WriteString(w, "0123456789"); (err != nil) != (i >= 10) {
				t.Errorf("write %d: %v", i, err)
			}
		}
	})
	for range 2 {
		if w := post(h, "k", "1"); w.Code != 500 || !strings.Contains(w.Body.String(), "was processed") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

// down is a store that does not answer claims.
type down struct{ *memory.Store }

func (down) Claim(ctx context.Context, _ ...driver.Claim) ([]driver.Grant, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestStoreDown: without the store nothing runs (law 8).
func TestStoreDown(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: waits for five seconds")
	}
	h := wrap(t, Options{Store: down{memory.NewStore()}}, func(http.ResponseWriter, *http.Request) { t.Error("it ran") })
	began := time.Now()
	if w := post(h, "k", "1"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if d := time.Since(began); d > 3*storeWait {
		t.Errorf("it took %v", d)
	}
}

func TestBadOptions(t *testing.T) {
	s := memory.NewStore()
	for _, o := range []Options{
		{}, {Store: s}, {Store: s, Tenant: SingleTenant, MaxBody: -1}, {Store: s, Tenant: SingleTenant, Takeover: semel.Probe},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, s := range []string{"k", `"k"`, `"a\"b"`, `"`, `"\`, ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := keyOf(&http.Request{Header: http.Header{HeaderKey: {s}}})
		if err != nil {
			return
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		again, err := keyOf(&http.Request{Header: http.Header{HeaderKey: {quoted}}})
		if err != nil || again != key {
			t.Errorf("%q is %q, and quoted %q: %v", s, key, again, err)
		}
	})
}
