package edgehttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/semel-dev/semel"
)

// Transport is an http.RoundTripper for the requests of handlers. It finds the attempt in the request's context
// ([semel.AttemptFrom]) and does two things.
//
// Requests that change something get the header Idempotency-Key with the attempt's effect key. The key is the same in
// every attempt, redelivery and redrive, so the other side recognizes a repetition. The step's name comes from
// [WithStep]. One request of an attempt may go without a name, as often as it is repeated; a second, different one is
// refused with a *[StepError], because both would have one key. Repetitions by http.Client (a redirect with 307 or 308)
// and by http.Transport (which repeats requests that have such a key when a connection breaks) keep the key. A key that
// the caller set stays, also an empty list, which sends none.
//
// No request is sent when the lease of the attempt has ended: another worker may run the key by then, and a stalled
// process would do the effect a second time (FM2). The error then matches semel.ErrFenced, as it does when the lease ends
// while the transport waits for a response or reads it. Extensions of the lease count. A request that was on its way when
// the lease ended may still arrive; its key makes it harmless. Without a lease (an open transaction holds the key) the
// transport only adds the key.
//
// Requests without an attempt in their context pass unchanged. The zero value is ready to use. Use one Transport for all
// requests to a host, because each knows only the requests that it sent itself. It must not be copied.
type Transport struct {
	// Base sends. Defaults to http.DefaultTransport.
	Base http.RoundTripper
	// Methods get a key. Defaults to POST, PUT, PATCH and DELETE.
	Methods []string
	// Quoted sends the key as a string of structured fields, "key", as in the draft. Defaults to false: the bare key, which
	// Stripe and most others expect.
	Quoted bool

	mu    sync.Mutex
	calls map[weak.Pointer[semel.Attempt]]map[string]call
}

var changing = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// RoundTrip sends a request. It follows the contract of http.RoundTripper: it changes no request, and closes its body.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	a, ok := semel.AttemptFrom(r.Context())
	if !ok {
		return t.base().RoundTrip(r)
	}
	key, err := t.key(r, a)
	if err != nil {
		return nil, refuse(r, err)
	}
	l, err := bindLease(r.Context(), a)
	if err != nil {
		return nil, refuse(r, fmt.Errorf("edgehttp: %s %s was not sent: %w", r.Method, r.URL.Host, err))
	}
	r = r.Clone(l.ctx)
	if key != "" {
		if r.Header == nil { // a request that http.Client did not see
			r.Header = http.Header{}
		}
		r.Header.Set(HeaderKey, key)
	}
	resp, err := t.base().RoundTrip(r)
	if err != nil {
		return nil, l.end(err)
	}
	resp.Body = l.hold(resp.Body)
	return resp, nil
}

// CloseIdleConnections closes the idle connections of Base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// key returns the key to set on a request; "" = none, or the request has one already.
func (t *Transport) key(r *http.Request, a *semel.Attempt) (string, error) {
	methods := t.Methods
	if methods == nil {
		methods = changing
	}
	if _, own := r.Header[HeaderKey]; own || !slices.Contains(methods, r.Method) {
		return "", nil
	}
	c, err := describe(r)
	if err != nil {
		return "", err
	}
	step, _ := r.Context().Value(stepKey{}).(string)
	if err := t.register(a, step, c); err != nil {
		return "", err
	}
	if key := a.EffectKey(step); !t.Quoted {
		return key, nil
	}
	return `"` + a.EffectKey(step) + `"`, nil // hex digits: nothing to escape
}

func refuse(r *http.Request, err error) error {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return err
}

// leaseContext ends a context when the lease of an attempt has ended, extensions included.
type leaseContext struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	a      *semel.Attempt

	mu    sync.Mutex
	timer *time.Timer // nil: there is no lease
	done  bool
}

// bindLease returns an error if the run or its lease has ended.
func bindLease(ctx context.Context, a *semel.Attempt) (*leaseContext, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	until := a.LeaseUntil()
	left := time.Until(until)
	if !until.IsZero() && left <= 0 {
		return nil, semel.ErrFenced
	}
	l := &leaseContext{a: a}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	if !until.IsZero() {
		l.mu.Lock() // check waits for the timer to be there
		defer l.mu.Unlock()
		l.timer = time.AfterFunc(left, l.check)
	}
	return l, nil
}

func (l *leaseContext) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	if left := time.Until(l.a.LeaseUntil()); left > 0 {
		l.timer.Reset(left)
	} else {
		l.cancel(semel.ErrFenced)
	}
}

// end stops the timer, and adds semel.ErrFenced to an error that the end of the lease caused.
func (l *leaseContext) end(err error) error {
	cause := context.Cause(l.ctx)
	l.mu.Lock()
	l.done = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.cancel(context.Canceled)
	if err != nil && errors.Is(cause, semel.ErrFenced) && !errors.Is(err, semel.ErrFenced) {
		return errors.Join(semel.ErrFenced, err)
	}
	return err
}

// body is the body of a response. Its end stops the leaseContext.
type body struct {
	io.ReadCloser
	l *leaseContext
}

// hold binds a body to the lease until it was read or closed.
func (l *leaseContext) hold(b io.ReadCloser) io.ReadCloser {
	if b == nil || b == http.NoBody {
		_ = l.end(nil)
		return b
	}
	held := &body{ReadCloser: b, l: l}
	if w, ok := b.(io.Writer); ok { // the connection itself, after 101 Switching Protocols
		return &duplex{body: held, Writer: w}
	}
	return held
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.l.end(nil)
	case err != nil:
		err = b.l.end(err)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	_ = b.l.end(nil)
	return err
}

type duplex struct {
	*body
	io.Writer
}
