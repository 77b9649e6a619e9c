package verify

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

// Client returns a client of a fake server that runs in this process, without a socket; nil responds to everything with
// 200 and {}. Every request is an effect, except safe methods (GET, HEAD, OPTIONS, TRACE: RFC 9110, section 9.2.1). It
// has happened when the response's status is below 300; any other status means that the server refused it. PUT and
// DELETE are idempotent (section 9.2.2): the same request again changes nothing. Others count once for each key, see
// Options.HTTPKey.
func (p *Process) Client(server http.Handler) *http.Client {
	if server == nil {
		server = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	}
	return &http.Client{Transport: p.Transport(local{server})}
}

// Transport does the same as [Process.Client] around any transport, such as one to an httptest.Server.
func (p *Process) Transport(next http.RoundTripper) http.RoundTripper {
	return &transport{p: p, next: next}
}

type transport struct {
	p    *Process
	next http.RoundTripper
}

// RoundTrip sends a request as one effect.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close() // a RoundTripper closes it; what it holds is read
		if err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
	}
	sent := r.Clone(r.Context())
	if r.Body != nil {
		sent.Body = io.NopCloser(bytes.NewReader(body))
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "":
		t.p.alive()
		return t.next.RoundTrip(sent)
	}
	content := r.URL.RawQuery + "\x00"
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") { // its boundary is another every time
		content += string(body)
	}
	e := Request(r.Method, place(r.URL), t.p.w.opts.HTTPKey(r, body), content)
	var resp *http.Response
	err := t.p.effect(e, func() (happened bool, err error) {
		resp, err = t.next.RoundTrip(sent) //nolint:bodyclose // the caller closes it
		return err == nil && resp.StatusCode < 300, err
	})
	if err != nil && resp != nil {
		_ = resp.Body.Close() // the response is lost
		resp = nil
	}
	return resp, err
}

// place is a URL without what may differ from request to request.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// local is a server without a socket.
type local struct{ server http.Handler }

// RoundTrip serves a request, unless its context has ended, as any transport does.
func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := r.Clone(r.Context())
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "192.0.2.1:1234"
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	l.server.ServeHTTP(rec, in)
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}
