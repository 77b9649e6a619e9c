package watch

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/internal/look"
)

//go:embed watch.css
var pageCSS string

//go:embed watch.js
var pageJS string

// Server serves one scenario. Its methods may be called from any goroutine.
type Server struct {
	listener net.Listener
	token    string
	scenario plan.Scenario
	http     *http.Server
	board    *board

	finish       chan struct{}
	finishMu, up sync.Once
}

// Listen listens on addr, which must be of the loopback interface: "127.0.0.1:8080", "localhost:0", or ":0" and "" for a
// free port. It serves as soon as it returns; Close ends it.
func Listen(addr string, s plan.Scenario, guards []plan.Guard) (*Server, error) {
	addr, err := loopback(addr)
	if err != nil {
		return nil, err
	}
	l, err := web.Listen(context.Background(), addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the live view: %w", err)
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // it never fails
	v := &Server{
		listener: l, token: hex.EncodeToString(secret), scenario: s, board: newBoard(s, guards), finish: make(chan struct{}),
	}
	v.http = web.Server(v.guarded(), nil)
	go func() { _ = v.http.Serve(web.Limit(l)) }()
	return v, nil
}

// ErrAddress says why an address cannot be listened on.
var ErrAddress = errors.New("the live view listens on the loopback interface alone")

func loopback(addr string) (string, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%w: %q is no HOST:PORT", ErrAddress, addr)
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return "", fmt.Errorf("%w: %s is elsewhere", ErrAddress, host)
	}
	return net.JoinHostPort(host, port), nil
}

// URL is where the page is. Who has it may disturb the run.
func (v *Server) URL() string { return "http://" + v.listener.Addr().String() + "/" + v.token + "/" }

// Finish ends the load, as the button does. It may be called again.
func (v *Server) Finish() { v.finishMu.Do(func() { close(v.finish) }) }

// Side is the one guard's part in a run: what to hand to the player. dir is the folder of its events files.
func (v *Server) Side(g plan.Guard, dir string) *crew.Watch {
	s := v.board.side(g)
	s.in(dir)
	return &crew.Watch{Faults: s.faults, Finish: v.finish, Look: s.look}
}

// Close sends the pages the last message, and stops serving. A second call does nothing.
func (v *Server) Close(last Last) { v.up.Do(func() { v.end(last) }) }

func (v *Server) end(last Last) {
	v.board.end(last)
	ended := make(chan struct{})
	go func() { v.board.gone.Wait(); close(ended) }()
	select { // the pages have the last message, or do not read
	case <-ended:
	case <-time.After(2 * time.Second):
	}
	_ = v.http.Close()
}

// guarded refuses requests without the token, and pages of other sites.
func (v *Server) guarded() http.Handler {
	inside := http.NewServeMux()
	inside.HandleFunc("GET /{$}", v.page)
	inside.HandleFunc("GET /watch.js", v.file("text/javascript; charset=utf-8", pageJS))
	inside.HandleFunc("GET /watch.css", v.file("text/css; charset=utf-8", look.CSS+pageCSS))
	inside.HandleFunc("GET /events", v.events)
	inside.HandleFunc("POST /faults", v.inject)
	guard := web.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, rest, slash := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if !slash || subtle.ConstantTimeCompare([]byte(token), []byte(v.token)) != 1 {
			http.Error(w, "no such page: the address has a token in it, which was printed at the start", http.StatusNotFound)
			return
		}
		r.URL.Path, r.URL.RawPath = "/"+rest, ""
		inside.ServeHTTP(w, r)
	}), web.Hosts{}, func(w http.ResponseWriter, _ *http.Request, why web.Refusal) { http.Error(w, why.Message, why.Status) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look.Headers(w.Header(), "'none'")
		guard.ServeHTTP(w, r)
	})
}

func (v *Server) file(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}
}

// request is what a page sends.
type request struct {
	Do     plan.Action `json:"do"`
	Worker int         `json:"worker"`
	ForMS  int64       `json:"for_ms"`
}

// finish is the button that ends the load.
const finish = plan.Action("finish")

// maxFor bounds what lasts: a store that is paused for longer than an hour looks like a broken lab.
const maxFor = time.Minute

// inject takes a fault that a person injects. It wants JSON, which a form of another site cannot send.
func (v *Server) inject(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "send application/json", http.StatusUnsupportedMediaType)
		return
	}
	var q request
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		http.Error(w, "read what to do: "+err.Error(), http.StatusBadRequest)
		return
	}
	if problem := v.do(q); problem != "" {
		http.Error(w, problem, http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (v *Server) do(q request) (problem string) {
	lasts := time.Duration(q.ForMS) * time.Millisecond
	switch q.Do {
	case finish:
		v.Finish()
		return ""
	case plan.Freeze, plan.Outage, crew.FailHeartbeats:
		if lasts <= 0 || lasts > maxFor {
			return fmt.Sprintf("for_ms: give 1 to %d", maxFor.Milliseconds())
		}
	case plan.Kill, crew.DropAck, crew.Duplicate:
	default:
		return fmt.Sprintf("do: unknown fault %q", q.Do)
	}
	if q.Worker < 0 || q.Worker > v.scenario.Workers.Count {
		return fmt.Sprintf("worker: there are %d", v.scenario.Workers.Count)
	}
	// The same for both sides: what strikes one strikes the other.
	if !v.board.inject(crew.Fault{Do: q.Do, Worker: q.Worker, For: lasts}) {
		return "too much at once: the run has not yet done what was asked before"
	}
	return ""
}

// maxWrite is how long a page may take to read what was sent to it.
const maxWrite = 30 * time.Second

// events streams what happens, as server-sent events: first what was, then what comes.
func (v *Server) events(w http.ResponseWriter, r *http.Request) {
	flush, ok := w.(http.Flusher)
	if !ok {
		http.Error(w, "this connection cannot stream", http.StatusInternalServerError)
		return
	}
	c, ok := v.board.join()
	if !ok {
		http.Error(w, "too many pages", http.StatusServiceUnavailable)
		return
	}
	defer v.board.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Time{}) // the stream lasts for as long as the run does
	for {
		select {
		case <-r.Context().Done():
			return
		case b, open := <-c:
			if !open {
				return
			}
			_ = conn.SetWriteDeadline(time.Now().Add(maxWrite))
			if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil {
				return
			}
			flush.Flush()
		}
	}
}
