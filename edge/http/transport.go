package edgehttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/semel-dev/semel"
)

// Transport is an http.RoundTripper for what handlers call. It finds the attempt in the request's context
// ([semel.AttemptFrom]) and does two things.
//
// Requests that change something get the header Idempotency-Key with the attempt's effect key: the same in every
// attempt, redelivery and redrive, so that the other side can tell a repetition. The step's name comes from [WithStep].
// One request of an attempt may go without a name, as often as it is repeated; a second, different one is refused with
// a *[StepError], because both would have one key. Repetitions by http.Client (a redirect with 307 or 308) and by
// http.Transport (which repeats requests that have such a key when a connection breaks) keep the key. A key that the
// caller set stays, also an empty list, which sends none.
//
// No request is sent when the lease of the attempt has ended: somebody else may run the key by then, and a process that
// stood still would be the second to act (FM2). Nothing is sent then, and the error matches semel.ErrFenced, as it does
// when the lease ends while an answer is awaited or read; the lease is what it is at that time, however often it was
// extended meanwhile. A request that was on its way when the lease ended may still arrive: it is the key that makes it
// harmless. Without a lease (an open transaction holds the key) only the key is put on.
//
// Requests without an attempt in their context pass unchanged. The zero value is ready to use; use one Transport for
// all requests to a host, because each knows only what it sent itself. It must not be copied.
type Transport struct {
	// Base sends. Defaults to http.DefaultTransport.
	Base http.RoundTripper
	// Methods get a key. Defaults to POST, PUT, PATCH and DELETE.
	Methods []string
	// Quoted sends the key as a string of structured fields, "key", which the draft wants. Defaults to false: the bare
	// key, which Stripe and most others want.
	Quoted bool

	mu    sync.Mutex
	calls map[weak.Pointer[semel.Attempt]]map[string]call
}

var changing = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// RoundTrip sends a request as the contract of http.RoundTripper says: it changes no request, and closes its body.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	a, ok := semel.AttemptFrom(r.Context())
	if !ok {
		return t.base().RoundTrip(r)
	}
	key, err := t.key(r, a)
	if err != nil {
		return nil, refuse(r, err)
	}
	l, err := leashed(r.Context(), a)
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

// CloseIdleConnections closes those of Base.
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

// key is what a request has to carry; "" = nothing, or what it carries already.
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

// leash ends a context when the lease of an attempt has ended, whatever became of it meanwhile.
type leash struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	a      *semel.Attempt

	mu    sync.Mutex
	timer *time.Timer // nil: there is no lease
	done  bool
}

// leashed refuses when the run has ended, or its lease.
func leashed(ctx context.Context, a *semel.Attempt) (*leash, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	until := a.LeaseUntil()
	left := time.Until(until)
	if !until.IsZero() && left <= 0 {
		return nil, semel.ErrFenced
	}
	l := &leash{a: a}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	if !until.IsZero() {
		l.mu.Lock() // check waits for the timer to be there
		defer l.mu.Unlock()
		l.timer = time.AfterFunc(left, l.check)
	}
	return l, nil
}

func (l *leash) check() {
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

// end lets go, and tells what an error was.
func (l *leash) end(err error) error {
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
