package awstest

import (
	"io"
	"net/http"
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

// Local is a connection to a handler in the same process. A request whose context ends is abandoned: it is carried out or
// not, as with a connection that breaks, and the handler sees its context end.
func Local(h http.Handler) http.RoundTripper { return local{h} }

type local struct{ h http.Handler }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	w := &answer{head: http.Header{}, body: pw, ready: make(chan struct{})}
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RequestURI = r.URL.RequestURI()
	in.RemoteAddr = "fake"
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	go func() {
		l.h.ServeHTTP(w, in)
		w.WriteHeader(http.StatusOK)
		_ = pw.Close()
		if r.Body != nil {
			_ = r.Body.Close()
		}
	}()
	select {
	case <-w.ready:
	case <-r.Context().Done():
		_ = pr.CloseWithError(r.Context().Err())
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: pr, ContentLength: -1, Request: r,
	}, nil
}

// answer is the writer of one response.
type answer struct {
	head   http.Header
	sent   http.Header
	status int
	body   *io.PipeWriter
	once   sync.Once
	ready  chan struct{}
}

func (a *answer) Header() http.Header { return a.head }

func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.head.Clone()
		close(a.ready)
	})
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
