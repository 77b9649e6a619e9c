package edgehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/semel-dev/semel"
)

// The defaults of [Options].
const (
	DefaultScope      = "http"
	DefaultMaxBody    = 1 << 20
	DefaultMaxRuntime = 30 * time.Second
	// storeWait bounds how long a request waits for a store that does not answer, before the handler has begun.
	storeWait = 5 * time.Second
)

// Options of [New]. Store and Tenant are needed; the zero value of everything else is the documented default.
type Options struct {
	// Store keeps the records and the answers.
	Store semel.Store
	// Tenant says whose key it is: the account that the request was authenticated for. One tenant's key never finds
	// another's answer. An error refuses the request with 401. Use SingleTenant where there is only one.
	Tenant func(r *http.Request) (string, error)
	// Scope keeps the keys of one API from another's in the same store. Defaults to DefaultScope.
	Scope string
	// Methods need a key; requests with others pass by. Defaults to POST and PATCH, which HTTP does not define as
	// idempotent.
	Methods []string
	// Optional lets requests without a key pass, unprotected. Defaults to false: they get 400.
	Optional bool
	// Stored says which answers are kept and replayed. An answer that is not kept says that nothing happened: the next
	// request with the key runs the handler again. Defaults to all but 409, 425, 429 and 503.
	Stored func(status int) bool
	// MaxBody bounds the body of a request and of an answer, in bytes: both are held in memory, the answer until it is
	// stored. A larger request gets 413. Of a larger answer only that it was given is kept; see [Middleware].
	// Defaults to 1 MiB.
	MaxBody int64
	// MaxRuntime bounds the handler. It goes on without its client, because the effect has to be recorded. Defaults to
	// 30 s.
	MaxRuntime time.Duration
	// Retention is how long a key is remembered. Defaults to semel's 14 days (Stripe: 24 h at least).
	Retention time.Duration
	// Takeover says what happens to a key whose first request was interrupted: Resume runs the handler again with the same
	// effect key (semel.Attempt.EffectKey, see [Attempt]); Once parks it for a person and answers 409. Defaults to Resume.
	Takeover semel.Takeover
	// Logger gets what a person may have to look at. Defaults to a logger that discards.
	Logger *slog.Logger
}

// SingleTenant is for APIs whose clients all share one space of keys.
func SingleTenant(*http.Request) (string, error) { return "", nil }

// notApplied are the statuses with which a handler says that it did nothing: conflict, too early, too many requests,
// unavailable.
var notApplied = []int{http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// Middleware makes handlers idempotent. The answer is sent when it is stored, and not before: a client never sees an
// answer that a retry would not see again. It is therefore held in memory up to Options.MaxBody; a handler that writes
// more gets an error from Write, and the client 500; the key then answers 500 for good, because the effect happened.
type Middleware struct{ o Options }

// New makes the middleware.
func New(o Options) (*Middleware, error) {
	switch {
	case o.Store == nil:
		return nil, errors.New("edgehttp: Options.Store is nil; give the store that keeps the records")
	case o.Tenant == nil:
		return nil, errors.New("edgehttp: Options.Tenant is nil; tell whose key a request's is, or use SingleTenant")
	case o.MaxBody < 0 || o.MaxRuntime < 0 || o.Retention < 0:
		return nil, errors.New("edgehttp: Options.MaxBody, MaxRuntime and Retention must not be negative")
	case o.Takeover == semel.Probe:
		return nil, errors.New("edgehttp: Options.Takeover is Probe, and there is nothing to ask; use Resume or Once")
	}
	if o.Scope == "" {
		o.Scope = DefaultScope
	}
	if o.Methods == nil {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
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
	if o.Retention == 0 {
		o.Retention = semel.DefaultRetention
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Middleware{o: o}, nil
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
	key, err := keyOf(r)
	switch {
	case errors.Is(err, errNoKey) && m.o.Optional:
		next.ServeHTTP(w, r)
		return
	case err != nil:
		problem(w, http.StatusBadRequest, "idempotency-key", err.Error())
		return
	}
	tenant, err := m.o.Tenant(r)
	if err != nil {
		problem(w, http.StatusUnauthorized, "tenant", "the request names no account that its key could belong to")
		m.o.Logger.Warn("request without a tenant", "path", r.URL.Path, "err", err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, m.o.MaxBody))
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			problem(w, http.StatusRequestEntityTooLarge, "body", fmt.Sprintf("the body is longer than %d bytes", m.o.MaxBody))
		} else {
			problem(w, http.StatusBadRequest, "body", "the body could not be read")
		}
		return
	}
	m.once(w, r, next, semel.Key{Consumer: m.o.Scope, Tenant: tenant, Raw: semel.Tuple(key)}, body)
}

// once runs the handler for the first request of a key, and answers all of them.
func (m *Middleware) once(w http.ResponseWriter, r *http.Request, next http.Handler, k semel.Key, body []byte) {
	// The handler goes on when its client hangs up: a half-done effect that nobody recorded helps nobody.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	waiting := time.AfterFunc(storeWait, func() { cancel(errStore) })
	defer waiting.Stop()
	got, decision, err := semel.Do(ctx, m.o.Store, k, func(ctx context.Context, a *semel.Attempt) (*answer, error) {
		if !waiting.Stop() {
			return nil, semel.NotApplied(errStore)
		}
		return m.run(ctx, a, r, next, body)
	}, semel.WithFingerprint(fingerprint(r, body)), semel.WithRetention(m.o.Retention), semel.WithTakeover(m.o.Takeover))
	var refused *notStoredError
	switch {
	case err == nil && got == nil:
		problem(w, http.StatusInternalServerError, "answer", "the answer of this key was not kept")
	case err == nil:
		got.send(w, decision == semel.Replayed)
	case errors.As(err, &refused):
		refused.answer.send(w, false)
	default:
		m.refuse(w, r, err)
	}
}

var errStore = errors.New("the store did not answer in time")

// notStoredError is an answer that says that nothing happened.
type notStoredError struct{ answer *answer }

func (e *notStoredError) Error() string { return fmt.Sprintf("answered %d", e.answer.Status) }

// run calls the handler and catches its answer.
func (m *Middleware) run(ctx context.Context, a *semel.Attempt, r *http.Request, next http.Handler, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.o.MaxRuntime, semel.ErrTimeout)
	defer cancel()
	r = r.WithContext(withAttempt(ctx, a))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	c := &catcher{header: http.Header{}, limit: m.o.MaxBody}
	next.ServeHTTP(c, r)
	got := c.answer()
	if c.over {
		m.o.Logger.Error("answer not kept: it is too long", "key", a.Key.Raw, "limit", m.o.MaxBody)
		return problemAnswer(http.StatusInternalServerError, "answer",
			fmt.Sprintf("the request was processed, and its answer is longer than %d bytes", m.o.MaxBody)), nil
	}
	if !m.o.Stored(got.Status) {
		return nil, semel.NotApplied(&notStoredError{answer: got})
	}
	return got, nil
}

// refuse answers a request that did not run, or whose end is not recorded.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var panicked *semel.PanicError
	switch {
	case errors.Is(err, semel.ErrMismatch):
		problem(w, http.StatusUnprocessableEntity, "idempotency-key", "the key was used with another request")
	case errors.Is(err, semel.ErrBusy):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusConflict, "idempotency-key", "a request with this key is in progress")
	case errors.Is(err, semel.ErrFailed), errors.Is(err, semel.ErrUncertain):
		problem(w, http.StatusConflict, "idempotency-key", "the outcome of an earlier request with this key is being looked into")
	case errors.As(err, &panicked):
		m.o.Logger.Error("handler panicked", "path", r.URL.Path, "panic", panicked.Value, "stack", string(panicked.Stack))
		problem(w, http.StatusInternalServerError, "handler", "the request failed; repeat it with the same key")
	default:
		// The store is out of reach, or the end could not be recorded: fail closed, and let the client ask again.
		m.o.Logger.Error("idempotent request not answered", "path", r.URL.Path, "err", err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "store", "the request could not be recorded; repeat it with the same key")
	}
}

type attemptKey struct{}

func withAttempt(ctx context.Context, a *semel.Attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// Attempt answers the attempt that a request runs in, for its EffectKey and Token, and nil outside of a [Middleware].
func Attempt(ctx context.Context) *semel.Attempt {
	a, _ := ctx.Value(attemptKey{}).(*semel.Attempt)
	return a
}
