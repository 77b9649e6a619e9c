package edgehttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
)

// answer is a response as it is stored.
type answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// perConnection are headers of one connection or one moment (RFC 9110, section 7.6.1): they are not part of the answer.
var perConnection = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Date"}

// shared are headers to which everybody on the way adds their own: what a middleware around this one has added stays
// (a cookie of its session, the Vary without which a cache gives one client's answer to another).
var shared = []string{"Set-Cookie", "Vary"}

// send writes the answer to a client.
func (a *answer) send(w http.ResponseWriter, replayed bool) {
	h := w.Header()
	for name, values := range a.Header {
		if !slices.Contains(shared, name) {
			h[name] = slices.Clone(values)
			continue
		}
		for _, v := range values {
			if !slices.Contains(h[name], v) {
				h.Add(name, v)
			}
		}
	}
	if replayed {
		h.Set(HeaderReplayed, "true")
	}
	if bodyAllowed(a.Status) {
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the client may be gone: it gets the same with its next request
}

// bodyAllowed: RFC 9110, section 6.4.1.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// errTooLong is what a handler's Write answers beyond the limit.
var errTooLong = errors.New("edgehttp: the answer is longer than Options.MaxBody")

// catcher is the http.ResponseWriter of a handler whose answer is stored first. It cannot flush or hijack.
type catcher struct {
	header http.Header
	sent   http.Header // as they were when the status was written
	status int
	body   bytes.Buffer
	limit  int64
	over   bool
}

func (c *catcher) Header() http.Header { return c.header }

func (c *catcher) WriteHeader(status int) {
	if c.status != 0 || status < 200 { // informational answers are of the connection
		return
	}
	c.status, c.sent = status, c.header.Clone()
}

func (c *catcher) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if c.over || int64(c.body.Len()+len(b)) > c.limit {
		c.over = true
		return 0, errTooLong
	}
	return c.body.Write(b)
}

func (c *catcher) answer() *answer {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	for _, name := range perConnection {
		c.sent.Del(name)
	}
	c.sent.Del("Content-Length")
	a := &answer{Status: c.status, Header: c.sent}
	if bodyAllowed(c.status) {
		a.Body = c.body.Bytes()
		if c.sent.Get("Content-Type") == "" && len(a.Body) > 0 {
			c.sent.Set("Content-Type", http.DetectContentType(a.Body))
		}
	}
	return a
}

// problemAnswer is an error as problem details (RFC 9457).
func problemAnswer(status int, about, detail string) *answer {
	body, _ := json.Marshal(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail, "about": about,
	}) // strings always marshal
	return &answer{Status: status, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: body}
}

func problem(w http.ResponseWriter, status int, about, detail string) {
	problemAnswer(status, about, detail).send(w, false)
}
