package attack

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/semeltest/verify"
)

// effect is one request to the service that was to change something. Its name is method and path, with what differs from
// message to message taken out.
type effect struct {
	verify.Effect
	trial *scope
	// applied: it took effect. repeat: it did earlier, and this one got the same response.
	applied, repeat bool
	// gone: its client went before it was applied.
	gone bool
}

// fault is what the service does to one request of a trial.
type fault struct {
	// at counts the requests of the trial from 1; 0 = those that repeat one that was applied.
	at int
	// hold keeps the request before anything happens, holdResponse keeps the response: both until release, or until the
	// client has gone. A request whose client went before it was applied is not applied.
	hold, holdResponse bool
	// skip does not apply it.
	skip bool
	// cut closes the connection without a response; status is returned instead of 200.
	cut    bool
	status int
}

// scope is what belongs to one trial: what its requests are recognized by, the pending fault, and its requests.
type scope struct {
	name string // path prefix
	keys map[string]string
	// texts are what the keys are found by in requests: keys, message ids, effect keys; longest first.
	texts []string

	faults   []fault
	seen     int
	struck   chan struct{} // gets one element when the fault strikes
	released chan struct{}
	effects  []*effect
}

// service is the recording service. It treats Idempotency-Key as payment services do: a repeat with the key of an applied
// request, at the same method and path, gets the same response and is not applied.
type service struct {
	url       string
	keyHeader string
	server    *http.Server
	gone      chan struct{} // closed when the service ends

	mu      sync.Mutex
	scopes  map[string]*scope
	current *scope
	applied map[string]*effect
}

// listen starts the service on addr ("127.0.0.1:0" for a free port).
func listen(addr, keyHeader string) (*service, error) {
	l, err := web.Listen(context.Background(), addr)
	if err != nil {
		return nil, err
	}
	s := &service{
		url: "http://" + l.Addr().String(), keyHeader: keyHeader, gone: make(chan struct{}),
		scopes: map[string]*scope{}, applied: map[string]*effect{},
	}
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

// Close ends the service; held requests end.
func (s *service) Close() error {
	close(s.gone)
	return s.server.Close()
}

// open makes a scope, and the current one: requests that say nothing belong to it.
func (s *service) open(name string, keys map[string]string) *scope {
	c := &scope{name: name, keys: keys, struck: make(chan struct{}, 1), released: make(chan struct{})}
	for text := range keys {
		c.texts = append(c.texts, text)
	}
	slices.SortFunc(c.texts, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes[name], s.current = c, c
	return c
}

// plan sets the faults of a scope.
func (s *service) plan(c *scope, f ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.faults = f
}

// got copies what came for a scope.
func (s *service) got(c *scope) []effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]effect, len(c.effects))
	for i, e := range c.effects {
		out[i] = *e
	}
	return out
}

const longBody = 4 << 20

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	c, path := s.scopeOf(r, body)
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		s.question(w, r, path)
		return
	}
	if c == nil {
		http.Error(w, "no attack is under way", http.StatusServiceUnavailable)
		return
	}
	e, f := s.arrive(c, r, path, body)
	if f != nil && f.hold && !c.wait(r.Context(), s.gone) {
		s.mu.Lock()
		e.gone = true
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.apply(e, f, r, path)
	if f != nil && f.holdResponse {
		c.wait(r.Context(), s.gone)
	}
	respond(w, e, f)
}

// arrive counts a request and finds the fault that strikes it.
func (s *service) arrive(c *scope, r *http.Request, path string, body []byte) (*effect, *fault) {
	sum := sha256.Sum256(body)
	e := &effect{trial: c}
	e.Effect = verify.Request(r.Method, c.general(path), r.Header.Get(s.keyHeader), hex.EncodeToString(sum[:]))
	// The key of another message may be in the header, by mistake.
	e.Message = cmp.Or(c.keyIn(path+"\n"+string(body)), c.keyIn(r.Header.Get(s.keyHeader)))
	s.mu.Lock()
	defer s.mu.Unlock()
	c.seen++
	c.effects = append(c.effects, e)
	_, again := s.applied[identity(r.Method, path, e)]
	again = again && e.Key != ""
	for i, f := range c.faults {
		if f.at != c.seen && (f.at != 0 || !again) {
			continue
		}
		if f.at != 0 {
			c.faults = slices.Delete(c.faults, i, i+1)
		}
		if !f.holdResponse { // that strikes when it has been applied
			c.strike()
		}
		return e, &f
	}
	return e, nil
}

// identity is what a service remembers an applied request by.
func identity(method, path string, e *effect) string { return method + " " + path + "\n" + e.Key }

// apply lets a request take effect, unless it is a repeat.
func (s *service) apply(e *effect, f *fault, r *http.Request, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == nil || !f.skip {
		id := identity(r.Method, path, e)
		e.repeat = e.Key != "" && s.applied[id] != nil
		e.applied = !e.repeat
		if e.Key != "" && e.applied {
			s.applied[id] = e
		}
	}
	if f != nil && f.holdResponse {
		e.trial.strike()
	}
}

func (c *scope) strike() {
	select {
	case c.struck <- struct{}{}:
	default:
	}
}

// wait holds until the scope is released; false when the client went before.
func (c *scope) wait(ctx context.Context, gone chan struct{}) bool {
	select {
	case <-c.released:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-gone:
	}
	return false
}

func respond(w http.ResponseWriter, e *effect, f *fault) {
	status := http.StatusOK
	if f != nil {
		if f.cut {
			panic(http.ErrAbortHandler)
		}
		if f.status != 0 {
			status = f.status
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"status":`+strconv.Itoa(status)+`,"repeat":`+strconv.FormatBool(e.repeat)+"}\n")
}

// question reports whether an effect happened, by Idempotency-Key or by the last element of the path.
func (s *service) question(w http.ResponseWriter, r *http.Request, path string) {
	asked := r.Header.Get(s.keyHeader)
	if asked == "" {
		p, _, _ := strings.Cut(path, "?")
		last, err := url.PathUnescape(p[strings.LastIndexByte(p, '/')+1:])
		if err != nil || last == "" {
			http.NotFound(w, r)
			return
		}
		asked = last
	}
	s.mu.Lock()
	found := false
	for _, e := range s.applied {
		found = found || e.Key == asked
	}
	for _, c := range s.scopes {
		for _, e := range c.effects {
			found = found || e.applied && e.Message != "" && e.Message == asked
		}
	}
	s.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, `{"status":200,"applied":true}`+"\n")
}

// scopeOf finds whose request it is: by the prefix of its path, by a key in it, or else that of the attack under way.
func (s *service) scopeOf(r *http.Request, body []byte) (*scope, string) {
	path := r.URL.RequestURI()
	s.mu.Lock()
	defer s.mu.Unlock()
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if c, ok := s.scopes[first]; ok {
		return c, "/" + rest
	}
	text := r.Header.Get(s.keyHeader) + "\n" + path + "\n" + string(body)
	for _, c := range s.scopes {
		if c.keyIn(text) != "" {
			return c, path
		}
	}
	return s.current, path
}

// keyIn finds the key in a request.
func (c *scope) keyIn(text string) string {
	for _, t := range c.texts {
		if strings.Contains(text, t) {
			return c.keys[t]
		}
	}
	return ""
}

// anID is what differs from request to request: UUIDs, long hex, numbers.
var anID = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|[0-9a-fA-F]{16,}|\b[0-9]+\b`)

// general is the path without what differs from message to message.
func (c *scope) general(path string) string {
	path, _, _ = strings.Cut(path, "?")
	for _, t := range c.texts {
		path = strings.ReplaceAll(path, t, "{key}")
	}
	return words.Printable(anID.ReplaceAllString(path, "{id}"), 200)
}
