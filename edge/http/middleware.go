package edgehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
)

// The defaults of [Options].
const (
	DefaultScope      = "http"
	DefaultMaxBody    = 1 << 20
	DefaultMaxRuntime = 30 * time.Second
	// DefaultStoreTimeout and DefaultLease are those of Options.
	DefaultStoreTimeout = 5 * time.Second
	DefaultLease        = semel.DefaultVisibility / 10 * 9
)

// Options of [New]. Store and Tenant are required; the zero value of everything else is the documented default.
type Options struct {
	// Store keeps the records and the responses.
	Store semel.Store
	// Tenant returns the owner of the key: the account that the request was authenticated for. One tenant's key never
	// finds another's response. An error refuses the request with 401. Use SingleTenant if there is only one.
	Tenant func(r *http.Request) (string, error)
	// Scope separates the keys of one API from another's in the same store. Defaults to DefaultScope.
	Scope string
	// Methods need a key; requests with others pass by. Defaults to POST and PATCH, which HTTP does not define as
	// idempotent.
	Methods []string
	// Optional lets requests without a key pass, unprotected. Defaults to false: they get 400.
	Optional bool
	// Fingerprint identifies the request; another request with the same key gets 422. Leave out parts that a client may
	// change when it repeats a request: a time, a trace id, the boundary of a multipart body. key.FingerprintJSON chooses
	// fields of a body. Defaults to method, target, content type and body, byte for byte.
	Fingerprint func(r *http.Request, body []byte) semel.Fingerprint
	// Stored reports which responses are kept and replayed. A response that is not kept means that nothing happened: the
	// next request with the key runs the handler again. Defaults to all but 409, 425, 429 and 503. A 500 is kept, as with
	// Stripe, because only the handler knows whether its effect happened before the failure. A handler that is sure that it
	// did not happen responds with 503. If it may have happened, the handler may panic; see [Middleware].
	Stored func(status int) bool
	// MaxBody bounds the body of a request and of a response, in bytes: both are held in memory, the response until it is
	// stored. A larger request gets 413 before anything is claimed. A larger response is stored as 500; see [Middleware].
	// Defaults to 1 MiB.
	MaxBody int64
	// MaxRuntime bounds the handler: its context ends (cause semel.ErrTimeout), and its claim is no longer extended, so
	// that a handler that hangs does not keep the key forever. A client that disconnects does not end it, because the
	// effect has to be recorded. Defaults to 30 s.
	MaxRuntime time.Duration
	// Lease is how long a key stays claimed when the process that runs its request dies; it is extended while the handler
	// runs. Defaults to 27 s.
	Lease time.Duration
	// StoreTimeout bounds how long a client waits for a store that does not respond: before the handler, which then does
	// not run, and after it, while the response is recorded. The client gets 503 with Retry-After. The write goes on until
	// the lease ends, and decides what the next request with the key gets. Defaults to 5 s.
	StoreTimeout time.Duration
	// Until is when this process is certain to be stopped or frozen, see semel.WithUntil: the deadline of a Lambda
	// invocation. Defaults to none.
	Until time.Time
	// Retention is how long a key is remembered. Defaults to semel's 14 days (Stripe: at least 24 h).
	Retention time.Duration
	// Takeover decides what happens to a key whose first request was interrupted: Resume runs the handler again with the
	// same effect key (see [Transport]); Once parks it for a person and responds with 409. Defaults to Resume.
	Takeover semel.Takeover
	// Logger gets errors and warnings. Defaults to slog.Default().
	Logger *slog.Logger
}

// SingleTenant is for APIs whose clients all share one space of keys.
func SingleTenant(*http.Request) (string, error) { return "", nil }

// notApplied are the statuses that mean that the handler did nothing: conflict, too early, too many requests,
// unavailable.
var notApplied = []int{http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// Middleware makes handlers idempotent. The response is stored before it is sent: a client never sees a response that a
// retry would not see again. It is therefore held in memory up to Options.MaxBody. A handler that writes more gets an
// error from Write, and the client gets 500. The 500 is stored for the key, because the effect happened.
//
// This limits the http.ResponseWriter of a handler. Status, headers, body and trailers are kept, for the first response
// and for replays alike. Informational responses (1xx) are not sent. The writer cannot be flushed, hijacked or given
// deadlines (http.ErrNotSupported): do not use it for event streams and upgrades.
//
// A panic responds with 500, which is not stored: the next request with the key runs the handler again with the same
// effect key, and Attempt.Unknown is true because an earlier run may have had its effect. With Options.Takeover Once the
// key is parked for a person instead. http.ErrAbortHandler goes on to the server, which cuts the connection.
//
// The handler finds its semel.Attempt in the request's context ([semel.AttemptFrom]).
type Middleware struct{ o Options }

// New makes the middleware. It does no I/O. Errors name the field and the fix.
func New(o Options) (*Middleware, error) {
	if field, problem := o.check(); field != "" {
		return nil, fmt.Errorf("edgehttp: Options.%s %s", field, problem)
	}
	if o.Scope == "" {
		o.Scope = DefaultScope
	}
	if o.Methods == nil {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if o.Fingerprint == nil {
		o.Fingerprint = fingerprint
	}
	if o.Stored == nil {
		o.Stored = func(status int) bool { return !slices.Contains(notApplied, status) }
	}
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.MaxRuntime == 0 {
		o.MaxRuntime = DefaultMaxRuntime
	}
	if o.StoreTimeout == 0 {
		o.StoreTimeout = DefaultStoreTimeout
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Retention == 0 {
		o.Retention = semel.DefaultRetention
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Middleware{o: o}, nil
}

// check returns the field that is invalid, and why; "" = none is.
func (o *Options) check() (field, problem string) {
	switch {
	case o.Store == nil:
		return "Store", "is nil; give the store that keeps the records"
	case o.Tenant == nil:
		return "Tenant", "is nil; return the owner of a request's key, or use SingleTenant"
	case o.MaxBody < 0:
		return "MaxBody", fmt.Sprintf("is %d; use a positive number of bytes", o.MaxBody)
	case o.MaxRuntime < 0:
		return "MaxRuntime", fmt.Sprintf("is %v; use a positive duration", o.MaxRuntime)
	case o.StoreTimeout < 0:
		return "StoreTimeout", fmt.Sprintf("is %v; use a positive duration", o.StoreTimeout)
	case o.Lease < 0:
		return "Lease", fmt.Sprintf("is %v; use a positive duration", o.Lease)
	case o.Retention < 0:
		return "Retention", fmt.Sprintf("is %v; use a positive duration", o.Retention)
	case o.Takeover != semel.Resume && o.Takeover != semel.Once:
		return "Takeover", "is neither Resume nor Once, and there is nothing to probe; use one of these"
	case o.Methods != nil && len(o.Methods) == 0:
		return "Methods", "is empty, which protects nothing; name the methods that need a key, or leave it nil"
	}
	for _, m := range o.Methods {
		if m == "" || m != strings.ToUpper(m) {
			return "Methods", fmt.Sprintf("has %q, and methods are compared as they are; write them in capitals", m)
		}
	}
	return "", ""
}

// Wrap makes a handler idempotent.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !slices.Contains(m.o.Methods, r.Method) {
		next.ServeHTTP(w, r)
		return
	}
	raw, err := keyOf(r)
	switch {
	case errors.Is(err, errNoKey) && m.o.Optional:
		next.ServeHTTP(w, r)
		return
	case err != nil:
		problem(w, r, http.StatusBadRequest, "idempotency-key", err.Error())
		return
	}
	var tenant string
	if failed := m.call("Tenant", func() { tenant, err = m.o.Tenant(r) }); failed != nil {
		m.refuse(w, r, failed)
		return
	}
	if err != nil {
		problem(w, r, http.StatusUnauthorized, "tenant", "the request names no account that its key could belong to")
		m.o.Logger.Warn("request without a tenant", "path", r.URL.Path, "err", err)
		return
	}
	body, err := m.read(w, r)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		problem(w, r, http.StatusRequestEntityTooLarge, "body", fmt.Sprintf("the body is longer than %d bytes", m.o.MaxBody))
	case err != nil:
		problem(w, r, http.StatusBadRequest, "body", "the body could not be read")
	default:
		m.once(w, r, next, semel.Key{Consumer: m.o.Scope, Tenant: tenant, Raw: key.Tuple(raw)}, body)
	}
}

// read reads the body: the fingerprint is of all of it, and a handler that runs again needs it again.
func (m *Middleware) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > m.o.MaxBody {
		return nil, &http.MaxBytesError{Limit: m.o.MaxBody} // a client that waits for 100 Continue sends nothing then
	}
	if r.Body == nil {
		return nil, nil
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, m.o.MaxBody))
}

// result is what semel.Do returned.
type result struct {
	raw      []byte
	decision semel.Decision
	err      error
}

// errExited is the end of a handler that never returned.
var errExited = errors.New("the handler ended its goroutine")

// once runs the handler for the first request of a key, and responds to all of them.
func (m *Middleware) once(w http.ResponseWriter, r *http.Request, next http.Handler, k semel.Key, body []byte) {
	var fp semel.Fingerprint
	if err := m.call("Fingerprint", func() { fp = m.o.Fingerprint(r, body) }); err != nil {
		m.refuse(w, r, err)
		return
	}
	ran, done := make(chan struct{}), make(chan result, 1)
	go func() {
		got := result{err: errExited}
		defer func() { done <- got }()
		// The handler goes on when its client disconnects, so that its effect is recorded.
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
		defer cancel(nil)
		got.raw, got.decision, got.err = semel.Do(ctx, m.o.Store, k, func(ctx context.Context, a *semel.Attempt) ([]byte, error) {
			defer close(ran)
			// The end of this context also ends the heartbeat: the lease of a handler that hangs ends by itself (FM8).
			defer time.AfterFunc(m.o.MaxRuntime, func() { cancel(semel.ErrTimeout) }).Stop()
			return m.run(ctx, a, r, next, body)
		}, semel.WithFingerprint(fp), semel.WithRetention(m.o.Retention), semel.WithTakeover(m.o.Takeover),
			semel.WithClaimTimeout(m.o.StoreTimeout), semel.WithLease(m.o.Lease), semel.WithUntil(m.o.Until))
	}()
	var got result
	select {
	case got = <-done:
	case <-ran:
		late := time.NewTimer(m.o.StoreTimeout)
		defer late.Stop()
		select {
		case got = <-done:
		case <-late.C:
			got.err = fmt.Errorf("record the response of key %q: %w in %v: it is still being written",
				k.Raw, semel.ErrNoResponse, m.o.StoreTimeout)
		}
	}
	m.respond(w, r, k, got)
}

// respond sends the response for a result.
func (m *Middleware) respond(w http.ResponseWriter, r *http.Request, k semel.Key, got result) {
	var refused *notStoredError
	switch {
	case errors.As(got.err, &refused):
		refused.response.send(w, r, false)
		return
	case got.err != nil:
		m.refuse(w, r, got.err)
		return
	}
	stored, err := decode(got.raw)
	if err != nil {
		m.notKept(w, r, fmt.Errorf("key %q: %w", k.Raw, err))
		return
	}
	stored.send(w, r, got.decision == semel.Replayed)
}

// optionError is the panic of a function of Options.
type optionError struct {
	option string
	*semel.PanicError
}

func (e *optionError) Error() string { return "Options." + e.option + " panicked" }

func (e *optionError) Unwrap() error { return e.PanicError }

// call calls a function of Options; its panic is an error that names it.
func (m *Middleware) call(option string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &optionError{option, &semel.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	f()
	return nil
}

// notKept responds to a request that was processed but whose response is lost.
func (m *Middleware) notKept(w http.ResponseWriter, r *http.Request, err error) {
	m.o.Logger.Error("stored response cannot be sent", "err", err)
	problem(w, r, http.StatusInternalServerError, "response", "the request was processed, and its response was not kept")
}

// notStoredError is a response that means that nothing happened.
type notStoredError struct{ response *response }

func (e *notStoredError) Error() string { return fmt.Sprintf("responded with %d", e.response.Status) }

// run calls the handler, and returns the result to store.
func (m *Middleware) run(
	ctx context.Context, a *semel.Attempt, r *http.Request, next http.Handler, body []byte,
) ([]byte, error) {
	method := r.Method
	r = r.WithContext(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	c := &catcher{header: http.Header{}, limit: m.o.MaxBody}
	next.ServeHTTP(c, r)
	got := c.response(method)
	keep := true
	if err := m.call("Stored", func() { keep = c.over || m.o.Stored(got.Status) }); err != nil {
		return nil, err
	}
	if !keep {
		return nil, semel.NotApplied(&notStoredError{response: got})
	}
	raw, err := got.encode()
	if err != nil {
		return nil, err
	}
	if limit := m.o.Store.Features().MaxResult; c.over || limit > 0 && len(raw) > limit {
		m.o.Logger.Error("response not kept: it is too long", "key", a.Key.Raw, "limit", m.o.MaxBody, "store", limit)
		return problemResponse(http.StatusInternalServerError, "response",
			"the request was processed, and its response is too long to be kept").encode()
	}
	return raw, nil
}

// refuse responds to a request that did not run, or whose end is not recorded.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var panicked *semel.PanicError
	var busy *semel.BusyError
	switch {
	case errors.Is(err, semel.ErrMismatch):
		problem(w, r, http.StatusUnprocessableEntity, "idempotency-key", "the key was used with another request")
	case errors.As(err, &busy):
		// The handler most likely returns long before its lease ends: the end of the lease is only the latest moment.
		w.Header().Set("Retry-After", "1")
		problem(w, r, http.StatusConflict, "idempotency-key", fmt.Sprintf("a request with this key is in progress; if its server died, "+
			"the key is free in %d s", max(int64((busy.Wait+time.Second-1)/time.Second), 1)))
	case errors.Is(err, semel.ErrResultNotStored):
		m.notKept(w, r, err)
	case errors.Is(err, semel.ErrFailed), errors.Is(err, semel.ErrUncertain):
		problem(w, r, http.StatusConflict, "idempotency-key", "an earlier request with this key failed or is in doubt; an operator has to resolve it")
	case errors.As(err, &panicked):
		if panicked.Value == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
			panic(http.ErrAbortHandler)
		}
		text := "handler panicked"
		if option := (*optionError)(nil); errors.As(err, &option) {
			text = option.Error()
		}
		m.o.Logger.Error(text, "path", r.URL.Path, "panic", panicked.Value, "stack", string(panicked.Stack))
		problem(w, r, http.StatusInternalServerError, "handler", "the request failed; repeat it with the same key")
	default:
		// The store is unreachable, or the end could not be recorded: fail closed, and let the client retry.
		m.o.Logger.Error("idempotent request failed", "path", r.URL.Path, "err", err)
		w.Header().Set("Retry-After", "1")
		problem(w, r, http.StatusServiceUnavailable, "store", "the request could not be recorded; repeat it with the same key")
	}
}
