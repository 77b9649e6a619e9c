package semellambda

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/semel-dev/semel"
	edgehttp "github.com/semel-dev/semel/edge/http"
)

// HTTP makes requests through API Gateway or a function URL idempotent. Give [HTTP.V1] (REST), [HTTP.V2] (HTTP) or
// [HTTP.URL] to lambda.Start. It is the middleware of edge/http, with its rules: a request with an Idempotency-Key runs
// once, and a repetition gets the status, headers and body of the first. It gets 409 while the first runs, 422 with another
// payload, and 400 without a key if one is required.
//
// The request's context has the event: [EventFrom]. There Options.Tenant finds the caller that the gateway authenticated.
type HTTP struct {
	o    edgehttp.Options
	next http.Handler
}

// NewHTTP makes an HTTP of a handler and the options of edge/http. The context of a run ends 1 s before the invocation's
// deadline (a tenth of the time if that is less than 10 s), and no lease ends more than a second after it: each request sets
// Options.Until. Errors are those of edgehttp.New. It does no I/O.
func NewHTTP(o edgehttp.Options, next http.Handler) (*HTTP, error) {
	if _, err := edgehttp.New(o); err != nil {
		return nil, err
	}
	return &HTTP{o: o, next: next}, nil
}

type eventKey struct{}

// EventFrom returns the event of a request: an events.APIGatewayProxyRequest, an events.APIGatewayV2HTTPRequest or an
// events.LambdaFunctionURLRequest; nil outside of this package's handlers.
func EventFrom(ctx context.Context) any { return ctx.Value(eventKey{}) }

// V1 handles requests of a REST API, or of an HTTP API with payload format 1.0.
func (h *HTTP) V1(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	query := url.Values(maps.Clone(ev.MultiValueQueryStringParameters))
	if query == nil {
		query = url.Values{}
		for k, v := range ev.QueryStringParameters {
			query.Set(k, v)
		}
	}
	header := http.Header{}
	for k, vs := range ev.MultiValueHeaders {
		for _, v := range vs {
			header.Add(k, v)
		}
	}
	for k, v := range ev.Headers {
		if header.Values(k) == nil {
			header.Set(k, v)
		}
	}
	r := incoming{
		method: ev.HTTPMethod, path: ev.Path, query: query.Encode(), header: header, body: ev.Body,
		base64: ev.IsBase64Encoded, host: ev.RequestContext.DomainName, ip: ev.RequestContext.Identity.SourceIP,
	}
	a, err := h.serve(ctx, ev, r)
	if err != nil {
		return events.APIGatewayProxyResponse{}, err
	}
	body, encoded := a.text()
	return events.APIGatewayProxyResponse{StatusCode: a.status, MultiValueHeaders: a.header, Body: body, IsBase64Encoded: encoded}, nil
}

// V2 handles requests of an HTTP API with payload format 2.0.
func (h *HTTP) V2(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	a, err := h.serve(ctx, ev, incoming{
		method: ev.RequestContext.HTTP.Method, path: ev.RawPath, query: ev.RawQueryString, header: headerOf(ev.Headers, ev.Cookies),
		body: ev.Body, base64: ev.IsBase64Encoded, host: ev.RequestContext.DomainName, ip: ev.RequestContext.HTTP.SourceIP,
	})
	if err != nil {
		return events.APIGatewayV2HTTPResponse{}, err
	}
	body, encoded := a.text()
	headers, cookies := a.joined()
	return events.APIGatewayV2HTTPResponse{StatusCode: a.status, Headers: headers, Cookies: cookies, Body: body, IsBase64Encoded: encoded}, nil
}

// URL handles requests of a function URL.
func (h *HTTP) URL(ctx context.Context, ev events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	a, err := h.serve(ctx, ev, incoming{
		method: ev.RequestContext.HTTP.Method, path: ev.RawPath, query: ev.RawQueryString, header: headerOf(ev.Headers, ev.Cookies),
		body: ev.Body, base64: ev.IsBase64Encoded, host: ev.RequestContext.DomainName, ip: ev.RequestContext.HTTP.SourceIP,
	})
	if err != nil {
		return events.LambdaFunctionURLResponse{}, err
	}
	body, encoded := a.text()
	headers, cookies := a.joined()
	return events.LambdaFunctionURLResponse{StatusCode: a.status, Headers: headers, Cookies: cookies, Body: body, IsBase64Encoded: encoded}, nil
}

func headerOf(single map[string]string, cookies []string) http.Header {
	h := http.Header{}
	for k, v := range single {
		h.Set(k, v)
	}
	if len(cookies) > 0 && h.Get("Cookie") == "" {
		h.Set("Cookie", strings.Join(cookies, "; "))
	}
	return h
}

// incoming is what all formats of events have in common.
type incoming struct {
	method, path, query, body, host, ip string
	header                              http.Header
	base64                              bool
}

func (in *incoming) request(ctx context.Context) (*http.Request, error) {
	body := []byte(in.body)
	if in.base64 {
		var err error
		if body, err = base64.StdEncoding.DecodeString(in.body); err != nil {
			return nil, fmt.Errorf("semellambda: body of the request: %w", err)
		}
	}
	target := escaped(in.path)
	if in.query != "" {
		target += "?" + in.query
	}
	r, err := http.NewRequestWithContext(ctx, in.method, "/", bytes.NewReader(body))
	if err == nil {
		r.URL, err = url.ParseRequestURI(target) // as a server does: //name/x is a path, not a host
	}
	if err != nil {
		return nil, fmt.Errorf("semellambda: the event is no request: %w", err)
	}
	r.Header, r.RequestURI, r.RemoteAddr = in.header, target, in.ip
	if r.Host = in.header.Get("Host"); r.Host == "" {
		r.Host = in.host
	}
	return r, nil
}

// escaped returns a path as in a request. REST APIs and function URLs pass it on unchanged, HTTP APIs decode it first. Only
// characters that a request cannot contain are escaped, so that a handler gets the same path from all of them. If an HTTP
// API decoded a path into a valid escape (%2541), the original is lost.
//
// Source: https://github.com/middleapi/standard-server/pull/93 (captures of live gateways)
func escaped(path string) string {
	var b strings.Builder
	if !strings.HasPrefix(path, "/") {
		b.WriteByte('/')
	}
	for i := range len(path) {
		c := path[i]
		sound := c != '%' || i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2])
		if sound && c > ' ' && c < 0x7f && !strings.ContainsRune(`?#"<>\^`+"`{|}", rune(c)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

func (h *HTTP) serve(ctx context.Context, ev any, in incoming) (*recorder, error) {
	r, err := in.request(context.WithValue(ctx, eventKey{}, ev))
	if err != nil {
		return nil, err
	}
	o, next := h.o, h.next
	if end, ok := ctx.Deadline(); ok {
		o.Until = end.Add(beyond)
		next = endingAt(next, end.Add(-min(DefaultMargin, time.Until(end)/10)))
	}
	m, err := edgehttp.New(o)
	if err != nil {
		return nil, err
	}
	w := &recorder{header: http.Header{}}
	m.Wrap(next).ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	return w, nil
}

// endingAt ends the context of a handler at a given time, however long the claim took.
func endingAt(next http.Handler, at time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithDeadlineCause(r.Context(), at, semel.ErrTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// recorder keeps a response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status, w.header = status, w.header.Clone()
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// text returns the body as in an event: base64 if it is not text.
func (w *recorder) text() (body string, encoded bool) {
	if !utf8.Valid(w.body.Bytes()) || w.header.Get("Content-Encoding") != "" {
		return base64.StdEncoding.EncodeToString(w.body.Bytes()), true
	}
	return w.body.String(), false
}

// joined returns headers with one value each, and the cookies, which must not be joined.
func (w *recorder) joined() (headers map[string]string, cookies []string) {
	headers = map[string]string{}
	for k, vs := range w.header {
		if k == "Set-Cookie" {
			cookies = slices.Clone(vs)
			continue
		}
		headers[k] = strings.Join(vs, ", ")
	}
	return headers, cookies
}
