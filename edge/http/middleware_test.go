package edgehttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
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

// TestSharedHeaders: what a middleware around this one has added to headers that everybody adds to stays, and is not
// kept.
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
		if a, ok := semel.AttemptFrom(r.Context()); err != nil || !ok || a.EffectKey("charge") == "" {
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
		"space":     {"a b", "100", 400, "quoted"},
		"list":      {"a,b", "100", 400, "quoted"},
		"params":    {`"a";b=1`, "100", 400, "malformed"},
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

func TestBadOptions(t *testing.T) {
	s := memory.NewStore()
	for _, o := range []Options{
		{}, {Store: s}, {Store: s, Tenant: SingleTenant, MaxBody: -1}, {Store: s, Tenant: SingleTenant, Takeover: semel.Probe},
		{Store: s, Tenant: SingleTenant, MaxRuntime: -1}, {Store: s, Tenant: SingleTenant, Retention: -1},
		{Store: s, Tenant: SingleTenant, Methods: []string{}}, {Store: s, Tenant: SingleTenant, Methods: []string{"post"}},
	} {
		if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "edgehttp: Options.") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestHead: no body, in neither response, and the length that the handler sets.
func TestHead(t *testing.T) {
	h := wrap(t, Options{Methods: []string{http.MethodHead}}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "1000")
			return
		}
		_, _ = io.WriteString(w, "body")
	})
	for path, want := range map[string]string{"/length": "1000", "/written": "4"} {
		for i := range 2 {
			r := httptest.NewRequest(http.MethodHead, path, nil)
			r.Header.Set(HeaderKey, path)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			replayed := w.Header().Get(HeaderReplayed) == "true"
			if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != want || replayed != (i > 0) {
				t.Errorf("%s, request %d: %d %v %q", path, i, w.Code, w.Header(), w.Body)
			}
		}
	}
}

// narrow is a store that keeps short results.
type narrow struct{ *memory.Store }

func (s narrow) Features() driver.StoreFeatures {
	f := s.Store.Features()
	f.MaxResult = 400
	return f
}

// TestFM58_StoreLimit: a response that the store cannot keep is not sent to the first client either.
func TestFM58_StoreLimit(t *testing.T) {
	runs := 0
	h := wrap(t, Options{Store: narrow{memory.NewStore()}}, func(w http.ResponseWriter, _ *http.Request) {
		runs++
		_, _ = io.WriteString(w, strings.Repeat("x", 400))
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

// TestFM8_HangingHandler: a handler that ignores the end of its time keeps its key for one lease, and not forever. Its
// late response is discarded.
func TestFM8_HangingHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		wake := make(chan struct{})
		h := wrap(t, Options{MaxRuntime: time.Minute}, func(w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) > 1 {
				_, _ = io.WriteString(w, "second")
				return
			}
			<-r.Context().Done()
			if cause := context.Cause(r.Context()); !errors.Is(cause, semel.ErrTimeout) {
				t.Errorf("the handler's context ended with %v", cause)
			}
			<-wake
			_, _ = io.WriteString(w, "first")
		})
		late := make(chan *httptest.ResponseRecorder, 1)
		began := time.Now()
		go func() { late <- post(h, "k", "1") }()
		synctest.Wait()
		w := post(h, "k", "1")
		for ; w.Code == http.StatusConflict; w = post(h, "k", "1") {
			time.Sleep(time.Second)
		}
		took := time.Since(began)
		if w.Code != 200 || w.Body.String() != "second" || took < time.Minute || took > 2*time.Minute {
			t.Errorf("%d %s after %v", w.Code, w.Body, took)
		}
		close(wake)
		if w := <-late; w.Code != http.StatusServiceUnavailable {
			t.Errorf("the request whose handler hung got %d %s", w.Code, w.Body)
		}
	})
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

// TestFM16_BusyNamesTheWait: the response names the latest moment at which the key is free.
func TestFM16_BusyNamesTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		k := semel.Key{Consumer: DefaultScope, Raw: key.Tuple("k")}
		if _, err := s.Claim(t.Context(), driver.Claim{Key: k, Nonce: driver.Nonce{1}, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		w := post(wrap(t, Options{Store: s}, func(http.ResponseWriter, *http.Request) { t.Error("ran") }), "k", "1")
		if w.Code != http.StatusConflict || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "the key is free in 60 s") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

// silent is a store that does not record ends while it hangs.
type silent struct {
	*memory.Store
	hangs atomic.Bool
}

func (s *silent) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return make([]driver.Outcome, len(f)), ctx.Err()
	}
	return s.Store.Finish(ctx, f...)
}

// TestFM34_HangingStoreDoesNotHoldTheClient: the response comes after StoreTimeout, and the next request gets what the write
// came to.
func TestFM34_HangingStoreDoesNotHoldTheClient(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: DefaultStoreTimeout, time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := &silent{Store: memory.NewStore()}
			store.hangs.Store(true)
			runs := 0
			h := wrap(t, Options{Store: store, StoreTimeout: timeout}, func(w http.ResponseWriter, _ *http.Request) {
				runs++
				w.WriteHeader(http.StatusCreated)
			})
			began := time.Now()
			w := post(h, "k-1", "100")
			if took := time.Since(began); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || took != want {
				t.Errorf("%d %v after %v, wanted 503 after %v", w.Code, w.Header(), took, want)
			}
			store.hangs.Store(false)
			time.Sleep(10 * time.Second) // the write is repeated
			if w := post(h, "k-1", "100"); w.Code != http.StatusCreated || w.Header().Get(HeaderReplayed) != "true" || runs != 1 {
				t.Errorf("the next request: %d %v, %d runs", w.Code, w.Header(), runs)
			}
		})
	}
}

// TestLease: a key whose process died is free when the lease of Options has ended.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var until time.Time
		h := wrap(t, Options{Store: store, Lease: 3 * time.Second}, func(_ http.ResponseWriter, r *http.Request) {
			a, _ := semel.AttemptFrom(r.Context())
			rec, _, err := store.Record(r.Context(), a.Key)
			if until = rec.LeaseUntil; err != nil {
				t.Error(err)
			}
		})
		post(h, "k-1", "100")
		if d := time.Until(until); d != 3*time.Second {
			t.Errorf("the lease lasts %v", d)
		}
	})
}

// TestFM6_PanicNamesTheOption: a function of Options that panics is a 500, and the log names it.
func TestFM6_PanicNamesTheOption(t *testing.T) {
	for name, o := range map[string]Options{
		"Tenant":      {Tenant: func(*http.Request) (string, error) { panic("boom") }},
		"Fingerprint": {Fingerprint: func(*http.Request, []byte) semel.Fingerprint { panic("boom") }},
		"Stored":      {Stored: func(int) bool { panic("boom") }},
	} {
		var log strings.Builder
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		w := post(wrap(t, o, func(http.ResponseWriter, *http.Request) {}), "k-1", "100")
		if w.Code != http.StatusInternalServerError || !strings.Contains(log.String(), "Options."+name+" panicked") ||
			!strings.Contains(log.String(), "middleware_test.go") {
			t.Errorf("%s: %d, the log says %s", name, w.Code, &log)
		}
	}
}
