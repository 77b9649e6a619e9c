package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/api/asltest"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/memory"
)

// room is the API on a store in memory, the function that the machines call, and what it did.
type room struct {
	t       *testing.T
	m       *asltest.Machine
	handler http.Handler
	store   *memory.Store
	// takes is how long the function works; fails makes its n-th run fail, from 1; hit is called with each request and may
	// break the connection before it, or after it; gateway stands in front of the API and may respond itself, with a status.
	takes time.Duration
	fails func(run int, payload map[string]any) error
	hit   func(path string, call int) (before, after bool)

	gateway func(path string, call int) (status int)

	working sync.WaitGroup
	mu      sync.Mutex
	calls   map[string]int
	runs    []map[string]any
	at      map[string]int // how many work on an object
	overlap bool
	fence   map[string]json.Number
	stale   int
	effects map[string]int // by effect key: a service that honours it does each once
}

func newRoom(t *testing.T, name string) *room {
	store := memory.NewStore()
	s := &Server{Store: store, Consumer: "any", MaxBody: 1 << 20, Retention: 14 * 24 * time.Hour, Log: slog.New(slog.DiscardHandler),
		Hosts: web.NewHosts("127.0.0.1:8080", "semel.example.com"), // as the state machines have it
	}
	return &room{
		t: t, m: load(t, name), handler: s.Handler(), store: store, takes: time.Minute,
		calls: map[string]int{}, at: map[string]int{}, fence: map[string]json.Number{}, effects: map[string]int{},
	}
}

// api carries a request to the server, on a connection that may break.
func (r *room) api(req *http.Request) (int, []byte, error) {
	r.mu.Lock()
	r.calls[req.URL.Path]++
	n := r.calls[req.URL.Path]
	r.mu.Unlock()
	before, after := false, false
	if r.hit != nil {
		before, after = r.hit(req.URL.Path, n)
	}
	if before {
		return 0, nil, errors.New("connection refused")
	}
	if r.gateway != nil {
		if status := r.gateway(req.URL.Path, n); status != 0 {
			return status, []byte(`{"message":"Too Many Requests"}`), nil
		}
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	if after {
		return 0, nil, errors.New("connection reset")
	}
	b, err := io.ReadAll(w.Body)
	return w.Code, b, err
}

// work is the function: it writes to a resource that compares the fence, and has an effect under the effect key.
func (r *room) work(payload map[string]any) (any, error) {
	// The job of heartbeat.asl.json gets its names in another form.
	object, effect := "job", ""
	if in, ok := payload["input"].(map[string]any); ok {
		object = in["detail"].(map[string]any)["object"].(map[string]any)["key"].(string)
		effect = payload["effect_key"].(string)
	}
	r.working.Add(1)
	defer r.working.Done()
	r.mu.Lock()
	r.runs = append(r.runs, payload)
	run := len(r.runs)
	r.at[object]++
	r.overlap = r.overlap || r.at[object] > 1
	r.mu.Unlock()
	time.Sleep(r.takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[object]--
	if r.fails != nil {
		if err := r.fails(run, payload); err != nil {
			return nil, err
		}
	}
	if fence, ok := payload["fence"].(json.Number); ok {
		seen, _ := r.fence[object].Int64()
		if n, _ := fence.Int64(); n < seen {
			r.stale++
			return nil, &asltest.StateError{Name: "StaleFence", Cause: "the resource has seen a newer token"}
		}
		r.fence[object] = fence
	}
	r.effects[effect]++
	return map[string]any{"rows": json.Number("3")}, nil
}

// execution is one that runs.
type execution struct {
	end    string
	output any
	err    error
	stop   context.CancelFunc
	done   chan struct{}
	visits []string
}

// start starts an execution with an event.
func (r *room) start(name, event string) *execution {
	e := &execution{done: make(chan struct{})}
	ctx, stop := context.WithCancel(r.t.Context())
	e.stop = stop
	var mu sync.Mutex
	visit := func(s string) { mu.Lock(); e.visits = append(e.visits, s); mu.Unlock() }
	go func() {
		defer close(e.done)
		e.end, e.output, e.err = r.m.Run(ctx, asltest.World{API: r.api, Work: r.work, Name: name, Visit: visit}, []byte(event))
	}()
	return e
}

// ends checks where executions ended.
func (r *room) ends(es []*execution, want ...string) {
	r.t.Helper()
	var got []string
	for _, e := range es {
		<-e.done
		got = append(got, e.end)
		if fail := (*asltest.StateError)(nil); e.err != nil && !errors.As(e.err, &fail) && !errors.Is(e.err, context.Canceled) {
			r.t.Errorf("an execution is broken: %v, after %v", e.err, e.visits)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("executions ended in %v, want %v", got, want)
	}
}

func (r *room) ran(want int) {
	r.t.Helper()
	if len(r.runs) != want {
		r.t.Errorf("the function ran %d times, want %d: %v", len(r.runs), want, r.runs)
	}
}

// each runs a test on machines, in virtual time.
func each(t *testing.T, names []string, test func(*room)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom(t, name)
				test(r)
				synctest.Wait()
				r.working.Wait()
			})
		})
	}
}
