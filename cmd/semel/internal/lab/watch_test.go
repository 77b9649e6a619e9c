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
	over := make(chan error, 1)
	var v verdict.Verdict
	go func() {
		var err error
		v, err = Run(t.Context(), s, Options{Seed: 1, Command: []string{exe}, Env: []string{workerEnv + "=1"}, Watch: server}, nil)
		over <- err
	}()
	p := &watcher{t: t, url: server.URL(), over: over}
	p.until("worker 1 works on both sides", func() bool { return p.has("off", "effect", 1) && p.has("on", "effect", 1) })
	p.do(`{"do":"drop-ack"}`)
	p.until("an ack is dropped on both sides", func() bool { return p.did("off", "dropped") && p.did("on", "dropped") })
	p.do(`{"do":"duplicate"}`)
	p.do(`{"do":"fail-heartbeats","for_ms":200}`)
	p.do(`{"do":"outage","for_ms":300}`)
	p.until("the store is back on both sides", func() bool { return p.has("off", "up", 0) && p.has("on", "up", 0) })
	p.do(`{"do":"freeze","worker":2,"for_ms":300}`)
	p.until("worker 2 goes on", func() bool { return p.has("off", "thaw", 2) && p.has("on", "thaw", 2) })
	p.do(`{"do":"kill","worker":1}`)
	p.until("worker 1 is dead", func() bool { return p.did("off", "killed") && p.did("on", "killed") })
	p.do(`{"do":"finish"}`)
	p.until("the page gets the end", func() bool { return p.ended })
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if !v.OK() || len(v.Runs) != 2 {
		t.Fatalf("%+v", v.Runs)
	}
	off, on := v.Runs[0], v.Runs[1]
	if on.Verdict != plan.Held || on.Kills != 1 || off.Kills != 1 || on.Replayed < 2 {
		t.Errorf("guard on: %+v", on)
	}
	if off.Verdict != plan.Broken || off.Duplicated < 2 {
		t.Errorf("a dropped ack and a duplicate, and the plain consumer holds: %+v", off)
	}
}

// watcher is a person who watches and clicks.
type watcher struct {
	t     *testing.T
	url   string
	over  chan error // the end of the run
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

// connect opens the page. It gets everything that has happened, once more.
func (w *watcher) connect() {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+"events", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatalf("%v; the run: %v", err, <-w.over)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	w.in, w.seen = bufio.NewScanner(res.Body), nil
	w.in.Buffer(nil, 4<<20)
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

// until reads what the page gets until it is true. A page that reads too slowly is disconnected, and connects again.
func (w *watcher) until(what string, yes func() bool) {
	w.t.Helper()
	for late := time.Now().Add(5 * time.Minute); !yes(); {
		switch {
		case time.Now().After(late):
			w.t.Fatalf("never: %s", what)
		case w.in == nil || !w.in.Scan():
			w.connect()
			continue
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
		if w.ended && !yes() {
			w.t.Fatalf("the run ended before: %s (%s)", what, b.Last)
		}
	}
}
