package edgehttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// response is a response as it is stored: its JSON is kept for as long as records are.
type response struct {
	Status  int         `json:"status"`
	Header  http.Header `json:"header,omitempty"`
	Body    []byte      `json:"body,omitempty"`
	Trailer http.Header `json:"trailer,omitempty"`
	// Raw and RawTrailer are the headers that are not valid UTF-8, which JSON cannot carry.
	Raw        map[string][][]byte `json:"raw,omitempty"`
	RawTrailer map[string][][]byte `json:"raw_trailer,omitempty"`
}

// encode returns the stored form. It moves headers out of the response.
func (a *response) encode() ([]byte, error) {
	a.Raw, a.RawTrailer = takeRaw(a.Header), takeRaw(a.Trailer)
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode response: %w", err) // headers, status and bytes always marshal
	}
	return raw, nil
}

func takeRaw(h http.Header) map[string][][]byte {
	raw := map[string][][]byte{}
	for name, values := range h {
		if !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			continue
		}
		for _, v := range values {
			raw[name] = append(raw[name], []byte(v))
		}
		delete(h, name)
	}
	return raw
}

func giveRaw(h *http.Header, raw map[string][][]byte) {
	for name, values := range raw {
		if *h == nil {
			*h = http.Header{}
		}
		for _, v := range values {
			(*h)[name] = append((*h)[name], string(v))
		}
	}
}

// perConnection are headers of one connection or one moment (RFC 9110, section 7.6.1): they are not part of the response.
var perConnection = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Date"}

// shared are headers to which several handlers add values. Values that an outer middleware has added stay: a cookie of
// its session, or the Vary without which a cache gives one client's response to another.
var shared = []string{"Set-Cookie", "Vary"}

// send writes the response to a client.
func (a *response) send(w http.ResponseWriter, r *http.Request, replayed bool) {
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
	for _, name := range slices.Sorted(maps.Keys(a.Trailer)) {
		h.Add("Trailer", name)
	}
	head := r.Method == http.MethodHead
	// A response with trailers is sent in chunks. The response to a HEAD may give the length of a body that it does not have.
	if bodyAllowed(a.Status) && len(a.Trailer) == 0 && (!head || h.Get("Content-Length") == "") {
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	if !head && bodyAllowed(a.Status) {
		_, _ = w.Write(a.Body) // the client may be gone: it gets the same with its next request
	}
	for name, values := range a.Trailer {
		h[name] = slices.Clone(values)
	}
}

// bodyAllowed reports whether a response may have a body (RFC 9110, section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// decode reads a stored response. If it cannot be read or sent, decode returns an error: it must not become a run (FM59),
// nor a panic of the server.
func decode(raw []byte) (*response, error) {
	if len(raw) == 0 {
		return nil, errors.New("there is no stored response")
	}
	a := &response{}
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("decode stored response: %w", err)
	}
	if a.Status < 200 || a.Status > 999 {
		return nil, fmt.Errorf("stored response has status %d", a.Status)
	}
	giveRaw(&a.Header, a.Raw)
	giveRaw(&a.Trailer, a.RawTrailer)
	return a, nil
}

// errTooLong is what a handler's Write returns beyond the limit.
var errTooLong = errors.New("edgehttp: the response is longer than Options.MaxBody")

// catcher is the http.ResponseWriter of a handler whose response is stored first. It cannot flush or hijack: it is
// neither http.Flusher nor http.Hijacker, and http.ResponseController returns http.ErrNotSupported.
type catcher struct {
	header http.Header
	sent   http.Header // as they were when the status was written
	status int
	body   bytes.Buffer
	limit  int64
	over   bool
}

func (c *catcher) Header() http.Header { return c.header }

// WriteHeader panics if the status is invalid, as net/http's does: once stored, it would panic with every replay.
func (c *catcher) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("edgehttp: invalid WriteHeader code %d", status))
	}
	if c.status != 0 || status < 200 { // informational responses belong to the connection
		return
	}
	c.status, c.sent = status, c.header.Clone()
}

func (c *catcher) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(c.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if c.over || int64(c.body.Len()+len(b)) > c.limit {
		c.over = true
		return 0, errTooLong
	}
	return c.body.Write(b)
}

func (c *catcher) response(method string) *response {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	a := &response{Status: c.status, Header: c.sent, Body: c.body.Bytes(), Trailer: c.trailer()}
	for name := range a.Header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(a.Header, name)
		}
	}
	for _, name := range perConnection {
		a.Header.Del(name)
	}
	if method != http.MethodHead {
		a.Header.Del("Content-Length")
	}
	_, typed := a.Header["Content-Type"]
	if !typed && len(a.Body) > 0 && a.Header.Get("Content-Encoding") == "" {
		a.Header.Set("Content-Type", http.DetectContentType(a.Body))
	}
	return a
}

// trailer returns the headers that the handler set after the body: those that it declared in a Trailer header, and those
// with http.TrailerPrefix.
func (c *catcher) trailer() http.Header {
	t := http.Header{}
	if !bodyAllowed(c.status) {
		return t
	}
	for _, list := range c.sent["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if v := c.header[name]; len(v) > 0 {
				t[name] = v
			}
		}
	}
	for name, v := range c.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && len(v) > 0 {
			t[textproto.CanonicalMIMEHeaderKey(rest)] = v
		}
	}
	for _, name := range append(slices.Clone(perConnection), "Content-Length") {
		t.Del(name)
	}
	return t
}

// problemResponse returns an error as problem details (RFC 9457).
func problemResponse(status int, about, detail string) *response {
	body, _ := json.Marshal(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail, "about": about,
	}) // strings always marshal
	return &response{Status: status, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: body}
}

func problem(w http.ResponseWriter, r *http.Request, status int, about, detail string) {
	problemResponse(status, about, detail).send(w, r, false)
}
