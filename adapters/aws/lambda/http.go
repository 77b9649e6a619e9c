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

	edgehttp "github.com/semel-dev/semel/edge/http"
)

// HTTP makes requests idempotent that come through API Gateway or a function URL: [HTTP.V1] (REST), [HTTP.V2] (HTTP) and
// [HTTP.URL] are what lambda.Start takes. The rules are those of edge/http, whose middleware it is: a request with an
// Idempotency-Key runs once, a repetition gets status, headers and body of the first; 409 while that runs, 422 with
// another payload, 400 without a key where one is needed.
//
// The request's context has the event: [EventFrom]. Options.Tenant finds the caller there that the gateway authenticated.
type HTTP struct {
	o    edgehttp.Options
	next http.Handler
}

// NewHTTP makes it of a handler and the options of edge/http. Options.MaxRuntime is lowered to what is left of each
// invocation, less a margin of 1 s (a tenth of less than 10 s). Errors are those of edgehttp.New. It does no I/O.
func NewHTTP(o edgehttp.Options, next http.Handler) (*HTTP, error) {
	if _, err := edgehttp.New(o); err != nil {
		return nil, err
	}
	return &HTTP{o: o, next: next}, nil
}

type eventKey struct{}

// EventFrom is the event that a request was made of: an events.APIGatewayProxyRequest, an events.APIGatewayV2HTTPRequest or
// an events.LambdaFunctionURLRequest; nil outside of this package's handlers.
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
		method: ev.HTTPMethod, path: (&url.URL{Path: ev.Path}).EscapedPath(), query: query.Encode(), header: header, body: ev.Body,
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

// incoming is what the formats of events have in common.
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
	target := in.path
	if target == "" {
		target = "/"
	}
	if in.query != "" {
		target += "?" + in.query
	}
	r, err := http.NewRequestWithContext(ctx, in.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("semellambda: the event is no request: %w", err)
	}
	r.Header, r.RequestURI, r.RemoteAddr = in.header, target, in.ip
	if r.Host = in.header.Get("Host"); r.Host == "" {
		r.Host = in.host
	}
	return r, nil
}

func (h *HTTP) serve(ctx context.Context, ev any, in incoming) (*recorder, error) {
	r, err := in.request(context.WithValue(ctx, eventKey{}, ev))
	if err != nil {
		return nil, err
	}
	o := h.o
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if o.MaxRuntime == 0 {
			o.MaxRuntime = edgehttp.DefaultMaxRuntime
		}
		o.MaxRuntime = min(o.MaxRuntime, max(left-min(DefaultMargin, left/10), time.Millisecond))
	}
	m, err := edgehttp.New(o)
	if err != nil {
		return nil, err
	}
	w := &recorder{header: http.Header{}}
	m.Wrap(h.next).ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	return w, nil
}

// recorder keeps an answer.
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

// text is the body as an event carries it: base64 where it is no text.
func (w *recorder) text() (body string, encoded bool) {
	if !utf8.Valid(w.body.Bytes()) || w.header.Get("Content-Encoding") != "" {
		return base64.StdEncoding.EncodeToString(w.body.Bytes()), true
	}
	return w.body.String(), false
}

// joined are headers of one value each, and the cookies that must not be joined.
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
