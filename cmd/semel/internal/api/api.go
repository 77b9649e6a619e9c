// Package api is the HTTP API of semel serve: sending messages, and the guard for programs that only want that.
// docs/http-api.md is its contract.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/cmd/semel/internal/source"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/driver"
	edgehttp "github.com/semel-dev/semel/edge/http"
	"github.com/semel-dev/semel/key"
)

// Server serves the API. Without Queue or Store, the paths that need them do not exist.
type Server struct {
	Queue driver.Queue
	Store driver.Store
	// Consumer is the scope of keys of requests that name none.
	Consumer string
	// MaxBody bounds the body of a request, in bytes.
	MaxBody int64
	// Retention is how long records are kept; Released those of runs that are to be repeated, 0 = Retention.
	Retention, Released time.Duration
	// Metrics serves GET /metrics; nil: there are none.
	Metrics http.Handler
	// ReadOnly leaves out what changes anything: a worker's own port shows how it is.
	ReadOnly bool
	// Hosts are the names of the server; zero: those of the loopback interface.
	Hosts web.Hosts
	Log   *slog.Logger
}

// opTimeout bounds what one request waits for queue or store.
const opTimeout = 15 * time.Second

// Handler is the whole API. It has no password, and whoever can reach it may use it: requests that a browser sends from
// another site's page, or under a name that is not the server's, are refused.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", s.ready)
	if s.Queue != nil {
		mux.HandleFunc("GET /v1/scale", s.scale)
	}
	if s.Metrics != nil {
		mux.Handle("GET /metrics", s.Metrics)
	}
	if s.Queue != nil && !s.ReadOnly {
		mux.HandleFunc("POST /enqueue", s.enqueue)
	}
	if s.Store != nil && !s.ReadOnly {
		mux.HandleFunc("POST /v1/claim", s.claim)
		mux.HandleFunc("POST /v1/extend", s.extend)
		mux.HandleFunc("POST /v1/complete", s.complete)
		mux.HandleFunc("POST /v1/release", s.release)
	}
	mux.HandleFunc("/", s.unknown)
	return web.Guard(recoverer(s.Log, mux), s.Hosts, Refuse)
}

// Refuse responds to a request that the server's guard refused.
func Refuse(w http.ResponseWriter, _ *http.Request, r web.Refusal) {
	fail(w, r.Status, r.Code, r.Message)
}

// paths are what the API offers, with the method of each.
var paths = map[string]string{
	"/enqueue": "POST", "/v1/claim": "POST", "/v1/extend": "POST", "/v1/complete": "POST", "/v1/release": "POST",
	"/livez": "GET", "/readyz": "GET", "/metrics": "GET", "/v1/scale": "GET",
}

func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	if method, ok := paths[r.URL.Path]; ok && r.Method != method {
		w.Header().Set("Allow", method)
		fail(w, http.StatusMethodNotAllowed, "method_not_allowed", r.URL.Path+" takes "+method)
		return
	}
	fail(w, http.StatusNotFound, "not_found", "there is nothing at "+r.URL.Path)
}

// ready responds 200 when queue and store respond.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), opTimeout)
	defer cancel()
	var errs []error
	var silent []string
	if i, ok := driver.As[driver.QueueInspector](s.Queue); ok {
		if _, err := i.Stats(ctx); err != nil {
			silent, errs = append(silent, "queue"), append(errs, err)
		}
	}
	if i, ok := driver.As[driver.RecordInspector](s.Store); ok {
		if _, _, err := i.Record(ctx, driver.Key{Consumer: s.Consumer, Raw: "readyz"}); err != nil {
			silent, errs = append(silent, "store"), append(errs, err)
		}
	}
	if len(errs) > 0 {
		s.unavailable(w, "not ready ("+strings.Join(silent, ", ")+")", errors.Join(errs...))
		return
	}
	reply(w, http.StatusOK, map[string]string{"status": "ready"})
}

// body reads a JSON object into v. If it cannot, it writes the error response and returns false.
func (s *Server) body(w http.ResponseWriter, r *http.Request, v any) bool {
	b, ok := s.read(w, r)
	if !ok {
		return false
	}
	if err := decode(b, v); err != nil {
		fail(w, http.StatusBadRequest, "bad_json", err.Error())
		return false
	}
	return true
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		fail(w, http.StatusRequestEntityTooLarge, "too_large", "the body is larger than "+sizeText(s.MaxBody))
		return nil, false
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_body", "the body did not arrive whole: "+err.Error())
		return nil, false
	}
	return b, true
}

// unavailable responds that queue or store failed: the outcome is unknown, and the client may repeat the request. The error goes
// only to the log, because it may name host, port, user and database.
func (s *Server) unavailable(w http.ResponseWriter, what string, err error) {
	s.Log.Error("request failed", "what", what, "err", err)
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusServiceUnavailable, "unavailable", what+": queue or store did not respond; see the server's log")
}

type apiError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func fail(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, map[string]apiError{"error": {Code: code, Message: message}})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client is gone
}

func recoverer(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				log.Error("request panicked", "path", r.URL.Path, "panic", v)
				fail(w, http.StatusInternalServerError, "internal", "the server made a mistake; it is in its log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// The bounds of what requests name, in bytes. A worker's consumer is its queue, whose name has 200.
const (
	maxConsumer    = 200
	maxTenant      = 1 << 10
	maxDeliveryID  = 1 << 10
	maxReason      = 8 << 10
	maxFingerprint = 64 << 10
	maxHold        = 8 << 10
)

// checkJSON reports a body that is not exactly one JSON value, and one that two readers may understand differently: bytes
// that are not UTF-8, a lone surrogate, a member twice. Read leniently, different keys would become one.
func checkJSON(b []byte) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return errors.New("the body is empty: want JSON")
	}
	if _, err := key.CanonicalJSON(b); err != nil {
		return fmt.Errorf("the body is not JSON (RFC 7493): %w", err)
	}
	return nil
}

// decode reads exactly one JSON object into a struct. Members have to be written as in the struct's tags; others are refused.
func decode(b []byte, v any) error {
	if err := checkJSON(b); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || members == nil {
		return errors.New("the body is not a JSON object")
	}
	known := map[string]bool{}
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		known[name] = true
	}
	for name := range members {
		if !known[name] {
			return fmt.Errorf("unknown member %.80q", name)
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// checkText reports a text that is longer than a bound, not UTF-8, or that has control characters, which some stores cannot
// keep. It may be empty.
func checkText(name, text string, most int) error {
	if err := checkSize(name, text, most); err != nil {
		return err
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }); i >= 0 {
		return fmt.Errorf("%s: it has a control character (byte %d)", name, i)
	}
	return nil
}

func checkSize(name, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%s: it has %d bytes, and %d are the most", name, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s: it is not UTF-8", name)
	}
	return nil
}

// enqueue accepts a JSON body as a message. With an Idempotency-Key a repeated request is a second message of the same
// key: accepted, and without effect.
func (s *Server) enqueue(w http.ResponseWriter, r *http.Request) {
	body, ok := s.read(w, r)
	if !ok {
		return
	}
	key, _, err := edgehttp.RequestKey(r)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_key", err.Error())
		return
	}
	s.Enqueue(w, r, body, key)
}

// Enqueue sends a JSON body as a message under a key ("": none), and responds to the request.
func (s *Server) Enqueue(w http.ResponseWriter, r *http.Request, body []byte, key string) {
	if err := checkJSON(body); err != nil {
		fail(w, http.StatusBadRequest, "bad_json", err.Error())
		return
	}
	m := driver.Message{ID: key, Body: body, Headers: map[string]string{"content-type": "application/json"}}
	if key == "" {
		m.ID = source.NewID(time.Now())
	} else {
		m.Headers[strings.ToLower(edgehttp.HeaderKey)] = key
	}
	for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
		if v := r.Header.Get(name); v != "" && utf8.ValidString(v) {
			m.Headers[strings.ToLower(name)] = v
		}
	}
	sender, ok := driver.As[driver.Sender](s.Queue)
	if !ok {
		fail(w, http.StatusNotImplemented, "unsupported", "queue "+s.Queue.Features().Name+" takes no messages from here")
		return
	}
	// The message is sent even when the client goes: it then cannot know, and repeats with the same key.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), opTimeout)
	defer cancel()
	if err := sender.Send(ctx, m); err != nil {
		s.unavailable(w, "enqueue", err)
		return
	}
	reply(w, http.StatusAccepted, map[string]string{"id": m.ID, "queue": s.Queue.Features().Name})
}

func sizeText(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	if n >= 1<<10 && n%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
