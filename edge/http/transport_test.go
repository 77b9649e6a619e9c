package edgehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	edgehttp "github.com/semel-dev/semel/edge/http"
	"github.com/semel-dev/semel/memory"
)

// stripe is a server that charges once per Idempotency-Key, and remembers everything that it was sent.
type stripe struct {
	mu      sync.Mutex
	keys    []string // of every request
	charges map[string]string
	// cut breaks the connection after the next charge, before the response.
	cut bool
}

func (s *stripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get(edgehttp.HeaderKey)
	s.keys = append(s.keys, key)
	if before, ok := s.charges[key]; key == "" || ok && before != string(body) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.charges[key] = string(body)
	if s.cut {
		s.cut = false
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, "charged")
}

func newStripe(t *testing.T) (*stripe, *httptest.Server) {
	t.Helper()
	s := &stripe{charges: map[string]string{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, srv
}

func client(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &edgehttp.Transport{Base: base}}
}

// send sends a request, and reads its response.
func send(ctx context.Context, c *http.Client, method, url, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// TestS3_58_OneCharge: the first attempt charges and loses the response, the second charges and fails afterwards, the
// third succeeds, and the message is delivered once more: one key, one charge.
func TestS3_58_OneCharge(t *testing.T) {
	s, srv := newStripe(t)
	s.cut = true
	db := memory.Open()
	queue := db.Queue("orders")
	order := semel.Message{ID: "order-1", Body: []byte("100")}
	if err := queue.Send(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	c := client(srv.Client().Transport)
	attempts := 0
	consumer, err := semel.New(semel.Config{
		Queue: queue, Store: db.Store(), Backoff: semel.Backoff{Min: time.Millisecond, Max: time.Millisecond},
		Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			attempts++
			status, err := send(edgehttp.WithStep(ctx, "charge"), c, http.MethodPost, srv.URL+"/charges", string(a.Body))
			switch {
			case err != nil:
				return err
			case status != http.StatusOK:
				t.Errorf("attempt %d got status %d", a.Number, status)
			case a.Number == 2:
				return errors.New("the receipt could not be printed")
			}
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { // one delivery more when it is done; then stop
		for sent := false; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			switch n := consumer.Summary(); {
			case n.Replayed > 0:
				cancel()
			case n.Effects > 0 && !sent:
				if sent = true; queue.Send(ctx, order) != nil {
					cancel()
				}
			}
		}
	}()
	if err := consumer.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := consumer.Summary(); n.Replayed != 1 || n.Effects != 1 {
		t.Errorf("%+v", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if attempts != 3 || len(s.charges) != 1 || len(s.keys) != 3 || s.charges[s.keys[0]] != "100" {
		t.Errorf("%d attempts, keys %q, charges %v", attempts, s.keys, s.charges)
	}
}

// in runs fn as an attempt.
func in(t *testing.T, fn func(ctx context.Context, a *semel.Attempt)) {
	t.Helper()
	_, _, err := semel.Do(t.Context(), memory.NewStore(), semel.Key{Consumer: "orders", Raw: "1"},
		func(ctx context.Context, a *semel.Attempt) (int, error) { fn(ctx, a); return 0, nil })
	if err != nil {
		t.Error(err)
	}
}

// sent is a Base that keeps the keys of what it was asked to send.
type sent struct {
	keys [][]string
	serve
}

type serve func(r *http.Request) (*http.Response, error)

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.keys = append(s.keys, r.Header[edgehttp.HeaderKey])
	if s.serve != nil {
		return s.serve(r)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// TestSteps: which requests get which key.
func TestSteps(t *testing.T) {
	own := http.Header{edgehttp.HeaderKey: {"mine"}}
	none := http.Header{edgehttp.HeaderKey: nil}
	type request struct {
		step, method, url, body string
		header                  http.Header
		stream                  bool
		want                    string // "" = no header, "!" = refused, else the step whose key it has or the key itself
	}
	unnamed := "unnamed"
	for name, requests := range map[string][]request{
		"repeated":         {{want: unnamed}, {want: unnamed}, {want: unnamed}},
		"other body":       {{want: unnamed}, {body: "2", want: "!"}, {want: unnamed}},
		"other target":     {{want: unnamed}, {url: "http://bank/refunds", want: "!"}},
		"other method":     {{want: unnamed}, {method: "PUT", want: "!"}},
		"safe methods":     {{want: unnamed}, {method: "GET", url: "http://bank/x"}, {method: "HEAD", url: "http://bank/y"}},
		"named":            {{want: unnamed}, {step: "refund", body: "2", want: "refund"}, {step: "mail", body: "2", want: "mail"}},
		"named, repeated":  {{step: "refund", want: "refund"}, {step: "refund", want: "refund"}},
		"named, other":     {{step: "refund", want: "refund"}, {step: "refund", body: "2", want: "!"}},
		"own keys":         {{header: own, want: "mine"}, {header: own, body: "2", want: "mine"}, {want: unnamed}},
		"no key wanted":    {{header: none}, {header: none, body: "2"}, {want: unnamed}},
		"stream":           {{stream: true, want: unnamed}, {stream: true, want: "!"}},
		"stream and other": {{want: unnamed}, {stream: true, want: "!"}},
		"named streams":    {{step: "up", stream: true, want: "up"}, {step: "up", stream: true, want: "up"}},
	} {
		in(t, func(ctx context.Context, a *semel.Attempt) {
			base := &sent{}
			tr := &edgehttp.Transport{Base: base}
			for i, q := range requests {
				ctx := ctx
				if q.step != "" {
					ctx = edgehttp.WithStep(ctx, q.step)
				}
				body := &closing{Reader: strings.NewReader("1" + q.body)}
				r, err := http.NewRequestWithContext(ctx, orElse(q.method, "POST"), orElse(q.url, "http://bank/charges"), body)
				if err != nil {
					t.Fatal(err)
				}
				if !q.stream {
					r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("1" + q.body)), nil }
				}
				if q.header != nil {
					r.Header = q.header.Clone()
				}
				before := len(base.keys)
				resp, err := tr.RoundTrip(r)
				if err == nil {
					_ = resp.Body.Close()
				}
				want := map[string]string{"mine": "mine", unnamed: a.EffectKey("")}[q.want]
				if want == "" && q.want != "" && q.want != "!" {
					want = a.EffectKey(q.step)
				}
				refused := errors.As(err, new(*edgehttp.StepError))
				switch {
				case refused != (q.want == "!"):
					t.Errorf("%s: request %d: %v", name, i, err)
				case refused && (len(base.keys) != before || !body.closed):
					t.Errorf("%s: request %d was refused, and sent %v, body closed %v", name, i, len(base.keys) != before, body.closed)
				case !refused && strings.Join(base.keys[before], ",") != want:
					t.Errorf("%s: request %d has key %q, want %q", name, i, base.keys[before], want)
				case len(r.Header[edgehttp.HeaderKey]) != len(q.header[edgehttp.HeaderKey]):
					t.Errorf("%s: the caller's request was changed: %v", name, r.Header)
				}
			}
		})
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// TestQuoted: the draft's spelling; and without an attempt nothing is put on.
func TestQuoted(t *testing.T) {
	base := &sent{}
	c := &http.Client{Transport: &edgehttp.Transport{Base: base, Quoted: true}}
	in(t, func(ctx context.Context, a *semel.Attempt) {
		if _, err := send(ctx, c, "POST", "http://bank/charges", "1"); err != nil {
			t.Error(err)
		}
		if want := `"` + a.EffectKey("") + `"`; base.keys[0][0] != want {
			t.Errorf("key %q, want %q", base.keys[0], want)
		}
	})
	if _, err := send(t.Context(), c, "POST", "http://bank/charges", "1"); err != nil || base.keys[1] != nil {
		t.Errorf("outside of a handler: key %q, %v", base.keys[1], err)
	}
}

// TestNoHeader: a request without a header map that http.Client did not see.
func TestNoHeader(t *testing.T) {
	s, srv := newStripe(t)
	_, _, err := semel.Do(t.Context(), memory.NewStore(), semel.Key{Raw: "order-1"},
		func(ctx context.Context, a *semel.Attempt) (any, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader("1"))
			if err != nil {
				return nil, err
			}
			r.Header = nil
			resp, err := (&edgehttp.Transport{}).RoundTrip(r)
			if err != nil {
				return nil, err
			}
			return nil, resp.Body.Close()
		})
	if err != nil || len(s.keys) != 1 || s.keys[0] == "" {
		t.Errorf("%v, keys %q", err, s.keys)
	}
}

func TestRedirects(t *testing.T) {
	s, srv := newStripe(t)
	var keys []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get(edgehttp.HeaderKey))
		status := http.StatusPermanentRedirect
		if r.URL.Path == "/see" {
			status = http.StatusSeeOther
		}
		http.Redirect(w, r, srv.URL+r.URL.Path, status)
	}))
	defer proxy.Close()
	c := client(srv.Client().Transport)
	in(t, func(ctx context.Context, a *semel.Attempt) {
		for range 2 {
			if status, err := send(ctx, c, "POST", proxy.URL+"/charges", "100"); status != 200 || err != nil {
				t.Errorf("redirected: %d, %v", status, err)
			}
		}
		if _, err := send(edgehttp.WithStep(ctx, "see"), c, "POST", proxy.URL+"/see", "100"); err != nil {
			t.Error(err)
		}
		see, key := a.EffectKey("see"), a.EffectKey("")
		if got, want := strings.Join(s.keys, " "), key+" "+key+" "; got != want { // the last is a GET
			t.Errorf("the target got the keys %q, want %q", got, want)
		}
		if got, want := strings.Join(keys, " "), key+" "+key+" "+see; got != want {
			t.Errorf("the proxy got the keys %q, want %q", got, want)
		}
	})
}

// TestConnectionBreaks: http.Transport itself repeats a request that has such a key, when the connection that it kept
// open turns out to be closed: with the same key.
func TestConnectionBreaks(t *testing.T) {
	s, srv := newStripe(t)
	in(t, func(ctx context.Context, _ *semel.Attempt) {
		c := client(srv.Client().Transport)
		if _, err := send(edgehttp.WithStep(ctx, "first"), c, "POST", srv.URL, "1"); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.cut = true
		s.mu.Unlock()
		status, err := send(edgehttp.WithStep(ctx, "second"), c, "POST", srv.URL, "2")
		s.mu.Lock()
		defer s.mu.Unlock()
		if status != 200 || err != nil || len(s.keys) != 3 || s.keys[1] != s.keys[2] || len(s.charges) != 2 {
			t.Errorf("%d, %v, keys %q, charges %v", status, err, s.keys, s.charges)
		}
	})
}
