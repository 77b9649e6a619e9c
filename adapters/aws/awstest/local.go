package awstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Region is the region of the fakes.
const Region = "us-east-1"

// Account is the account id of the fakes.
const Account = "000000000000"

// Config configures clients of the SDK for a fake that is not behind a socket: requests are carried to h inside of the
// process, through the round trippers in wrap, the first of them outermost. It needs no network and works inside of
// testing/synctest.
func Config(h http.Handler, wrap ...func(http.RoundTripper) http.RoundTripper) aws.Config {
	rt := Local(h)
	for i := len(wrap) - 1; i >= 0; i-- {
		rt = wrap[i](rt)
	}
	return aws.Config{
		Region:       Region,
		Credentials:  credentials.NewStaticCredentialsProvider("semel", "semel", ""),
		BaseEndpoint: aws.String("http://fake.test"),
		HTTPClient:   &http.Client{Transport: rt},
	}
}

// Local is a connection to a handler in the same process. A request whose context ends is abandoned, as when a connection
// breaks: it is carried out or not, its response is lost even if it is ready, and the context of the handler ends. The
// request is read to its end before the handler starts, so that no handler reads a body that its sender uses again.
func Local(h http.Handler) http.RoundTripper { return local{h} }

type local struct{ h http.Handler }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	pr, pw := io.Pipe()
	w := &response{head: http.Header{}, body: pw, ready: make(chan struct{})}
	in := r.Clone(r.Context())
	in.Body, in.ContentLength, in.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	in.RequestURI = r.URL.RequestURI()
	in.RemoteAddr = "fake"
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	go func() {
		l.h.ServeHTTP(w, in)
		w.WriteHeader(http.StatusOK)
		_ = pw.Close()
	}()
	select {
	case <-w.ready:
	case <-r.Context().Done():
	}
	if err := r.Context().Err(); err != nil {
		_ = pr.CloseWithError(err)
		return nil, err
	}
	return &http.Response{
		Status: statusLine(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: pr, ContentLength: -1, Request: r,
	}, nil
}

// statusLine returns a status as in a response ("200 OK").
func statusLine(status int) string { return strconv.Itoa(status) + " " + http.StatusText(status) }

// response is the writer of one response.
type response struct {
	head   http.Header
	sent   http.Header
	status int
	body   *io.PipeWriter
	once   sync.Once
	ready  chan struct{}
}

func (a *response) Header() http.Header { return a.head }

func (a *response) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.head.Clone()
		close(a.ready)
	})
}

func (a *response) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
