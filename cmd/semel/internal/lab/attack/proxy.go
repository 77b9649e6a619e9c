package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// proxy sits between the worker and a handler that is an HTTP endpoint. It counts the runs, and can hold a request
// before the handler gets it, or the response before the worker does; what is held is cut or passed on.
type proxy struct {
	url    string
	target *url.URL
	server *http.Server
	client *http.Client
	gone   chan struct{}

	mu          sync.Mutex
	hold        point
	runs, ended int
	held        chan struct{} // gets one element when something is held
	let         chan bool     // true: pass on, false: cut
}

func newProxy(target string) (*proxy, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen before the handler: %w", err)
	}
	f := &proxy{
		url: "http://" + l.Addr().String() + u.RequestURI(), target: u, gone: make(chan struct{}),
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		held:   make(chan struct{}, 1), let: make(chan bool, 1),
	}
	f.server = &http.Server{Handler: http.HandlerFunc(f.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = f.server.Serve(l) }()
	return f, nil
}

// Close ends it; what is held is cut.
func (f *proxy) Close() error {
	close(f.gone)
	f.client.CloseIdleConnections()
	return f.server.Close()
}

// begin begins a trial.
func (f *proxy) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold, f.runs, f.ended = atNone, 0, 0
	f.held, f.let = make(chan struct{}, 1), make(chan bool, 1)
}

// count is how many runs there were in this trial, and how many of them have ended.
func (f *proxy) count() (runs, ended int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.runs, f.ended
}

// arm holds the next run at p.
func (f *proxy) arm(p point) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = p
}

// pass ends the hold: the request or response goes on, or its connection is cut.
func (f *proxy) pass(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.let <- on:
	default:
	}
}

// strikes reports whether this run is the one to be held at p.
func (f *proxy) strikes(p point) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hold != p {
		return false
	}
	f.hold = atNone
	return true
}

// wait holds; false = cut.
func (f *proxy) wait(ctx context.Context, p point) bool {
	if !f.strikes(p) {
		return true
	}
	f.mu.Lock()
	held, let := f.held, f.let
	f.mu.Unlock()
	held <- struct{}{}
	select {
	case pass := <-let:
		return pass
	case <-ctx.Done():
	case <-f.gone:
	}
	return false
}

func (f *proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !f.wait(r.Context(), atStart) {
		panic(http.ErrAbortHandler)
	}
	f.mu.Lock()
	f.runs++
	f.mu.Unlock()
	out, err := http.NewRequestWithContext(r.Context(), r.Method, f.target.String(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	response, err := f.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	f.mu.Lock()
	f.ended++
	f.mu.Unlock()
	if err != nil || !f.wait(r.Context(), atEnd) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(all)
}
