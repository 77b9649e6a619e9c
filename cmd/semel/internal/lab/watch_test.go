package lab

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/watch"
)

// TestWatch runs both guards while a page injects faults: kills, a dropped ack, a duplicate, lost heartbeats, a paused store.
// Then it finishes. semel holds, and every fault is in the event logs of both sides.
func TestWatch(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := scenarios.Find("happy")
	server, err := watch.Listen("", s, []plan.Guard{plan.GuardOff, plan.GuardOn})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(watch.Last{})
	type end struct {
		v   verdict.Verdict
		err error
	}
	over := make(chan end, 1)
	go func() {
		v, err := Run(t.Context(), s, Options{Seed: 1, Command: []string{exe}, Env: []string{workerEnv + "=1"}, Watch: server}, nil)
		over <- end{v, err}
	}()
	p := hands(t, server.URL())
	p.until("worker 1 works on both sides", func() bool { return p.has("off", "effect", 1) && p.has("on", "effect", 1) })
	p.do(`{"do":"drop-ack"}`)
	p.until("an ack is dropped on both sides", func() bool { return p.did("off", "dropped") && p.did("on", "dropped") })
	p.do(`{"do":"duplicate"}`)
	p.do(`{"do":"fail-heartbeats","for_ms":200}`)
	p.do(`{"do":"pause-store","for_ms":300}`)
	p.until("the store is back on both sides", func() bool { return p.has("off", "up", 0) && p.has("on", "up", 0) })
	p.do(`{"do":"freeze","worker":2,"for_ms":300}`)
	p.until("worker 2 goes on", func() bool { return p.has("off", "thaw", 2) && p.has("on", "thaw", 2) })
	p.do(`{"do":"kill","worker":1}`)
	p.until("worker 1 is dead", func() bool { return p.did("off", "killed") && p.did("on", "killed") })
	p.do(`{"do":"finish"}`)
	e := <-over
	if e.err != nil {
		t.Fatal(e.err)
	}
	if !e.v.OK() || len(e.v.Runs) != 2 {
		t.Errorf("%+v", e.v.Runs)
	}
	off, on := e.v.Runs[0], e.v.Runs[1]
	if on.Verdict != plan.Held || on.Kills != 1 || off.Kills != 1 || on.Replayed < 2 {
		t.Errorf("guard on: %+v", on)
	}
	if off.Verdict != plan.Broken || off.Duplicated < 2 {
		t.Errorf("a dropped ack and a duplicate, and the plain consumer holds: %+v", off)
	}
	if !p.ended {
		p.until("the page gets the end", func() bool { return p.ended })
	}
}

// watcher is a person who watches and clicks.
type watcher struct {
	t     *testing.T
	url   string
	in    *bufio.Scanner
	seen  []event
	ended bool
}

type event struct {
	Side   string `json:"g"`
	Kind   string `json:"k"`
	Worker int    `json:"w"`
	What   string `json:"a"`
}

func hands(t *testing.T, url string) *watcher {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	w := &watcher{t: t, url: url, in: bufio.NewScanner(res.Body)}
	w.in.Buffer(nil, 4<<20)
	return w
}

func (w *watcher) do(fault string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"faults", strings.NewReader(fault))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		w.t.Fatalf("%s: %s", fault, res.Status)
	}
}

func (w *watcher) has(side, kind string, worker int) bool {
	return slices.ContainsFunc(w.seen, func(e event) bool { return e.Side == side && e.Kind == kind && e.Worker == worker })
}

func (w *watcher) did(side, what string) bool {
	return slices.ContainsFunc(w.seen, func(e event) bool { return e.Side == side && e.What == what })
}

// until reads what the page gets until it is true.
func (w *watcher) until(what string, yes func() bool) {
	w.t.Helper()
	late := time.Now().Add(2 * time.Minute)
	for !yes() {
		if time.Now().After(late) || !w.in.Scan() {
			w.t.Fatalf("never: %s", what)
		}
		line, is := strings.CutPrefix(w.in.Text(), "data: ")
		if !is {
			continue
		}
		var b struct {
			Events []event         `json:"events"`
			Last   json.RawMessage `json:"last"`
		}
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			w.t.Fatal(err)
		}
		w.seen, w.ended = append(w.seen, b.Events...), w.ended || b.Last != nil
	}
}
