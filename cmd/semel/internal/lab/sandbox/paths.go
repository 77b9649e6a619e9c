package sandbox

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/api"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// tokenHeader carries the token of the folder.
const tokenHeader = "Semel-Lab-Token"

// maxBody bounds the body of a message, in bytes: that of SQS.
const maxBody = 256 << 10

// Status is the response of GET /lab.
type Status struct {
	PID int `json:"pid"`
	// Visible, InFlight, Delayed and DeadLetters count messages; Summary is the worker's.
	Visible     int64          `json:"visible"`
	InFlight    int64          `json:"in_flight"`
	Delayed     int64          `json:"delayed"`
	DeadLetters int64          `json:"dead_letters"`
	Summary     *semel.Summary `json:"worker,omitempty"`
}

// paths are the routes of the sandbox.
func (s *sandbox) paths() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /lab", s.status)
	mux.HandleFunc("POST /lab/down", s.takeDown)
	mux.HandleFunc("POST /enqueue", s.enqueue)
	mux.HandleFunc("/", s.api)
	return mux
}

// api serves what semel serve does, except for the guard: the worker has one.
func (s *sandbox) api(w http.ResponseWriter, r *http.Request) {
	s.server().Handler().ServeHTTP(w, r)
}

func (s *sandbox) server() *api.Server {
	return &api.Server{Queue: s.queue, MaxBody: maxBody, Log: s.log, Hosts: s.hosts}
}

// enqueue takes {"id":"msg-1","sleep":8}: the id is the key, the sleep is for how long the worker works. Other fields are the
// sender's own.
func (s *sandbox) enqueue(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody+1))
	if err != nil && len(body) <= maxBody {
		refuse(w, "the body did not arrive whole: "+err.Error())
		return
	}
	if len(body) <= maxBody {
		id, problem := check(body)
		if problem != "" {
			refuse(w, problem)
			return
		}
		if r.Header.Get("Idempotency-Key") == "" {
			s.server().Enqueue(w, r, body, id)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.api(w, r)
}

// longestSleep is that of SQS's longest visibility, in seconds.
const longestSleep = 12 * 60 * 60

// check names the field that is wrong; "" = none.
func check(body []byte) (id, problem string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return "", `the body is no JSON object like {"id":"msg-1","sleep":8}`
	}
	if _, there := fields["id"]; !there {
		return "", `id is missing: want {"id":"msg-1","sleep":8}`
	}
	if err := json.Unmarshal(fields["id"], &id); err != nil || string(fields["id"]) == "null" {
		return "", "id: want a text, like \"msg-1\""
	}
	if err := key.Check(key.Tuple(id)); err != nil {
		return "", "id: " + err.Error()
	}
	if raw, there := fields["sleep"]; there {
		var seconds float64
		if err := json.Unmarshal(raw, &seconds); err != nil || string(raw) == "null" {
			return "", "sleep: want a number of seconds, like 8"
		}
		if seconds < 0 || seconds > longestSleep || math.IsNaN(seconds) {
			return "", fmt.Sprintf("sleep: want 0 to %d seconds", longestSleep)
		}
	}
	return id, ""
}

func refuse(w http.ResponseWriter, problem string) {
	respond(w, http.StatusBadRequest, map[string]any{"error": map[string]string{"code": "bad_body", "message": problem}})
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// owner reports whether the request has the token of the folder. Other requests get the response of an unknown path.
func (s *sandbox) owner(w http.ResponseWriter, r *http.Request) bool {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(s.state.Token)) == 1 {
		return true
	}
	respond(w, http.StatusNotFound, map[string]any{"error": map[string]string{"code": "not_found", "message": "not found"}})
	return false
}

func (s *sandbox) status(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(tokenHeader) != "" && !s.owner(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	st := Status{PID: os.Getpid()}
	if q, ok := driver.As[driver.QueueInspector](s.queue); ok {
		n, err := q.Stats(ctx)
		if err != nil { // it may name host and user, which are for the log
			s.log.Error("the queue was not counted", "err", err)
			respond(w, http.StatusServiceUnavailable, map[string]any{
				"error": map[string]string{"code": "unavailable", "message": "the queue did not respond; the log of the lab says why"},
			})
			return
		}
		st.Visible, st.InFlight, st.Delayed, st.DeadLetters = n.Visible, n.InFlight, n.Delayed, n.DeadLetters
	}
	if s.consumer != nil {
		sum := s.consumer.Summary()
		st.Summary = &sum
	}
	respond(w, http.StatusOK, st)
}

// identity is how Down checks that it talks to the right process, before it asks for anything.
type identity struct {
	PID int `json:"pid"`
}

// takeDown removes everything, and lists it.
func (s *sandbox) takeDown(w http.ResponseWriter, r *http.Request) {
	if !s.owner(w, r) {
		return
	}
	if r.URL.Query().Get("dry-run") != "" {
		respond(w, http.StatusOK, identity{os.Getpid()})
		return
	}
	s.downOnce.Do(func() { close(s.down) })
	<-s.removed
	respond(w, http.StatusOK, s.outcome)
}
