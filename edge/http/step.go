package edgehttp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"weak"

	"github.com/semel-dev/semel"
)

type stepKey struct{}

// WithStep names the step of a handler that the requests with this context belong to: their key is
// semel.Attempt.EffectKey(step). The name is part of the key, so it must be the same in every attempt. It names one
// request: a request that is sent for each of several items needs a name for each ("charge/" + id).
func WithStep(ctx context.Context, step string) context.Context {
	return context.WithValue(ctx, stepKey{}, step)
}

// StepError reports a second, different request under one key. The other side would refuse it, or return the response to
// the first, and its effect would never happen. Nothing was sent.
type StepError struct {
	// Step is the name of the step; "" = the request had none.
	Step string
	// Sent is the request that has the key, Refused the other one: method and host.
	Sent, Refused string
}

func (e *StepError) Error() string {
	if e.Step == "" {
		return fmt.Sprintf("edgehttp: %s was not sent: the attempt sent %s without a name before; name the requests of one "+
			"handler with edgehttp.WithStep(ctx, \"…\")", e.Refused, e.Sent)
	}
	return fmt.Sprintf("edgehttp: %s was not sent: the attempt sent another request (%s) as step %q before; give each a name "+
		"of its own with edgehttp.WithStep", e.Refused, e.Sent, e.Step)
}

// call is a request that was sent under a key.
type call struct {
	sum [sha256.Size]byte
	// unread: the body can be read only once, so it cannot be compared with another one.
	unread bool
	what   string
}

// describe returns the identity of a request. A redirect and its first request have the same: they are one operation in
// two places.
func describe(r *http.Request) (c call, err error) {
	first := r
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	c.what = r.Method + " " + r.URL.Host
	h := sha256.New()
	for _, part := range [...]string{r.Method, first.URL.String()} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
	case r.GetBody == nil:
		c.unread = true
	default:
		body, err := r.GetBody()
		if err != nil {
			return c, fmt.Errorf("edgehttp: read the body of %s: %w", c.what, err)
		}
		_, err = io.Copy(h, body)
		_ = body.Close()
		if err != nil {
			return c, fmt.Errorf("edgehttp: read the body of %s: %w", c.what, err)
		}
	}
	h.Sum(c.sum[:0])
	return c, nil
}

// register remembers that an attempt sends a request as a step, or returns a *StepError if the attempt sent another one
// before. An identical request is a repetition. Requests whose bodies can be read only once cannot be compared: with a
// name they are taken for repetitions.
func (t *Transport) register(a *semel.Attempt, step string, c call) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := weak.Make(a)
	calls := t.calls[p]
	if calls == nil {
		calls = map[string]call{}
		if t.calls == nil {
			t.calls = map[weak.Pointer[semel.Attempt]]map[string]call{}
		}
		t.calls[p] = calls
		runtime.AddCleanup(a, t.forget, p)
	}
	sent, again := calls[step]
	if !again {
		calls[step] = c
		return nil
	}
	if sent.sum != c.sum || step == "" && (sent.unread || c.unread) {
		return &StepError{Step: step, Sent: sent.what, Refused: c.what}
	}
	return nil
}

func (t *Transport) forget(p weak.Pointer[semel.Attempt]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, p)
}
