package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/cmd/semel/internal/source"
	"github.com/semel-dev/semel/driver"
	edgehttp "github.com/semel-dev/semel/edge/http"
)

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
