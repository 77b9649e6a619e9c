// Package api is the HTTP API of semel serve: sending messages, and the guard for programs that only want that.
// docs/http-api.md is its contract.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/driver"
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
