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

// answer is a response as it is stored: its JSON is kept for as long as records are.
type answer struct {
	Status  int         `json:"status"`
	Header  http.Header `json:"header,omitempty"`
	Body    []byte      `json:"body,omitempty"`
	Trailer http.Header `json:"trailer,omitempty"`
	// Raw and RawTrailer are the headers with bytes that are no UTF-8, which JSON cannot carry.
	Raw        map[string][][]byte `json:"raw,omitempty"`
	RawTrailer map[string][][]byte `json:"rawTrailer,omitempty"`
}

// encode makes what is stored. It takes the answer apart.
func (a *answer) encode() ([]byte, error) {
	a.Raw, a.RawTrailer = takeRaw(a.Header), takeRaw(a.Trailer)
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err) // headers, status and bytes: it cannot be
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

// perConnection are headers of one connection or one moment (RFC 9110, section 7.6.1): they are not part of the answer.
var perConnection = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Date"}

// shared are headers to which everybody on the way adds their own: what a middleware around this one has added stays
// (a cookie of its session, the Vary without which a cache gives one client's answer to another).
var shared = []string{"Set-Cookie", "Vary"}

// send writes the answer to a client.
func (a *answer) send(w http.ResponseWriter, r *http.Request, replayed bool) {
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
	// What has trailers is sent in chunks; and a HEAD may tell the length of a body that it has not.
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

// bodyAllowed: RFC 9110, section 6.4.1.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// decode reads a stored answer. What cannot be read or sent is an error: it must not become a run (FM59), nor a panic
// of the server.
func decode(raw []byte) (*answer, error) {
	if len(raw) == 0 {
		return nil, errors.New("there is no stored answer")
	}
	a := &answer{}
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("decode stored answer: %w", err)
	}
	if a.Status < 200 || a.Status > 999 {
		return nil, fmt.Errorf("stored answer has status %d", a.Status)
	}
	giveRaw(&a.Header, a.Raw)
	giveRaw(&a.Trailer, a.RawTrailer)
	return a, nil
}

// errTooLong is what a handler's Write answers beyond the limit.
var errTooLong = errors.New("edgehttp: the answer is longer than Options.MaxBody")

// catcher is the http.ResponseWriter of a handler whose answer is stored first. It cannot flush or hijack, and says so:
// it is neither http.Flusher nor http.Hijacker, and http.ResponseController answers http.ErrNotSupported.
type catcher struct {
	header http.Header
	sent   http.Header // as they were when the status was written
	status int
	body   bytes.Buffer
	limit  int64
	over   bool
}

func (c *catcher) Header() http.Header { return c.header }

// WriteHeader panics for what is no status, as net/http's does: stored, it would panic with every replay.
func (c *catcher) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("edgehttp: invalid WriteHeader code %d", status))
	}
	if c.status != 0 || status < 200 { // informational answers are of the connection
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

func (c *catcher) answer(method string) *answer {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	a := &answer{Status: c.status, Header: c.sent, Body: c.body.Bytes(), Trailer: c.trailer()}
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

// trailer is what the handler set behind the body: headers that it declared before in a Trailer header, and those with
// http.TrailerPrefix.
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

// problemAnswer is an error as problem details (RFC 9457).
func problemAnswer(status int, about, detail string) *answer {
	body, _ := json.Marshal(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail, "about": about,
	}) // strings always marshal
	return &answer{Status: status, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: body}
}

func problem(w http.ResponseWriter, r *http.Request, status int, about, detail string) {
	problemAnswer(status, about, detail).send(w, r, false)
}
