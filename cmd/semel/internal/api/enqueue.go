package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/source"
	"github.com/semel-dev/semel/driver"
)

// enqueue accepts a JSON body as a message. With an Idempotency-Key a repeated request is a second message of the same
// key: accepted, and without effect.
func (s *Server) enqueue(w http.ResponseWriter, r *http.Request) {
	body, ok := s.read(w, r)
	if !ok {
		return
	}
	if !json.Valid(body) {
		fail(w, http.StatusBadRequest, "bad_json", "the body is not JSON"+where(body))
		return
	}
	m := driver.Message{Body: body, Headers: map[string]string{"content-type": "application/json"}}
	key := r.Header.Get("Idempotency-Key")
	if len(r.Header.Values("Idempotency-Key")) > 1 {
		fail(w, http.StatusBadRequest, "bad_key", "Idempotency-Key is given more than once")
		return
	}
	if key != "" {
		// The draft of the IETF writes the key as a quoted string; both forms are one key.
		if q, err := strconv.Unquote(key); err == nil && strings.HasPrefix(key, `"`) {
			key = q
		}
		if !utf8.ValidString(key) { // it travels in a header, and not every queue keeps other bytes there
			fail(w, http.StatusBadRequest, "bad_key", "Idempotency-Key: it is not UTF-8")
			return
		}
		if err := semel.CheckKey(semel.Tuple(key)); err != nil {
			fail(w, http.StatusBadRequest, "bad_key", "Idempotency-Key: "+err.Error())
			return
		}
		m.ID, m.Headers["idempotency-key"] = key, key
	} else {
		m.ID = source.NewID(time.Now())
	}
	for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
		if v := r.Header.Get(name); v != "" && utf8.ValidString(v) {
			m.Headers[strings.ToLower(name)] = v
		}
	}
	sender, ok := s.Queue.(driver.Sender)
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

// decode reads exactly one JSON object without unknown members.
func decode(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the body is empty: want a JSON object")
		}
		return fmt.Errorf("%s%s", strings.TrimPrefix(err.Error(), "json: "), where(b))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the JSON object")
	}
	return nil
}

// where names the place of a syntax error; "" when there is none.
func where(b []byte) string {
	var v any
	if e := (*json.SyntaxError)(nil); errors.As(json.Unmarshal(b, &v), &e) {
		return fmt.Sprintf(" (byte %d)", e.Offset)
	}
	return ""
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
