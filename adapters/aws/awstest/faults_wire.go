package awstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing/iotest"
	"time"
)

// faulty is a connection with faults.
type faulty struct {
	f    *Faults
	next http.RoundTripper
}

// call is one request, read to its end, so that it can still be sent when its sender is gone.
type call struct {
	*faulty
	request *http.Request
	service string // "AmazonSQS", "DynamoDB_20120810"
	op      string
	body    []byte
	fate    fate
}

// reply is one response, read to its end.
type reply struct {
	status int
	head   http.Header
	body   []byte
	torn   error // the error of reading the second half of the body
}

// RoundTrip sends a request with its faults.
func (t *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	c := &call{faulty: t, request: r}
	if r.Body != nil {
		var err error
		c.body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
	c.service, c.op, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if t.f.cut() {
		return nil, c.broken("outage")
	}
	c.fate = t.f.draw(c.op)
	if err := c.wait(!c.fate.behind); err != nil {
		return nil, err
	}
	a, err := c.response()
	if err != nil {
		return nil, err
	}
	if err := c.wait(c.fate.behind); err != nil {
		return nil, err
	}
	if t.f.cut() {
		return nil, c.broken("outage")
	}
	return a.response(r), nil
}

func (c *call) broken(why Kind) error { return fmt.Errorf("%s (%s): %w", c.op, why, ErrFault) }

// wait delays a request or its response.
func (c *call) wait(now bool) error {
	if c.fate.delay == 0 || !now {
		return nil
	}
	c.f.count(Delay)
	timer := time.NewTimer(c.fate.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.request.Context().Done():
		return c.request.Context().Err()
	}
}

// response returns what the sender gets.
func (c *call) response() (*reply, error) {
	ctx := c.request.Context()
	switch c.fate.kind {
	case Before:
		c.f.count(Before)
		return nil, c.broken(Before)
	case After:
		return c.lose(After)
	case Late:
		if c.op == "ReceiveMessage" {
			return c.lose(Late)
		}
		c.f.count(Late)
		c.f.late.Go(func() {
			time.Sleep(c.fate.late)
			_, _ = c.send(context.WithoutCancel(ctx), c.body) // the response is dropped
		})
		return nil, c.broken(Late)
	case Hang:
		c.f.count(Hang)
		if c.fate.done {
			_, _ = c.send(ctx, c.body)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	case Internal:
		c.f.count(Internal)
		if c.fate.done {
			_, _ = c.send(ctx, c.body)
		}
		return c.internal(), nil
	case Unavailable:
		c.f.count(Unavailable)
		return c.unavailable(), nil
	case Throttled:
		c.f.count(Throttled)
		return c.throttled(), nil
	case Conflict:
		return c.conflict(ctx)
	case Partial:
		return c.partial(ctx)
	case Torn:
		a, err := c.send(ctx, c.body)
		if err != nil {
			return nil, err
		}
		c.f.count(Torn)
		a.torn = fmt.Errorf("%w: %w", c.broken(Torn), io.ErrUnexpectedEOF)
		return a, nil
	}
	return c.read(ctx)
}

// lose carries out a request and drops its response.
func (c *call) lose(why Kind) (*reply, error) {
	c.f.count(why)
	_, _ = c.send(c.request.Context(), c.body)
	return nil, c.broken(why)
}

// send carries out a request. It waits for the whole response: then the service has finished.
func (c *call) send(ctx context.Context, body []byte) (*reply, error) {
	r := c.request.Clone(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.GetBody = nil
	c.sending()
	got, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(got.Body)
	if err = errors.Join(err, got.Body.Close()); err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return &reply{status: got.StatusCode, head: got.Header, body: b}, nil
}

// response makes a response for net/http.
func (a *reply) response(r *http.Request) *http.Response {
	var body io.Reader = bytes.NewReader(a.body)
	if a.torn != nil {
		body = io.MultiReader(bytes.NewReader(a.body[:len(a.body)/2]), iotest.ErrReader(a.torn))
	}
	return &http.Response{
		Status: statusLine(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.head.Clone(), Body: io.NopCloser(body), ContentLength: int64(len(a.body)), Request: r,
	}
}
