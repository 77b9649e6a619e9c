package watch

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

// side is one of the runs on the page.
type side struct {
	Guard    plan.Guard
	Says     string // what its consumer does
	scenario plan.Scenario
	began    time.Time // the page's zero
	faults   chan crew.Fault
	dir      string // of the events files; set before the run begins

	files     map[string]*os.File
	cut       map[string][]byte // the beginning of a line whose end is not written yet
	delivered int
	skipped   int

	mu      sync.Mutex
	charged int // effects that the page has
	seen    map[string]int
	fresh   []happening
	at      figures
}

// happening is one thing that happened, as the page draws it.
type happening struct {
	Side    string `json:"g"`
	AtMS    int64  `json:"t"`
	Kind    string `json:"k"`
	Worker  int    `json:"w,omitempty"`
	Life    int    `json:"l,omitempty"`
	PID     int    `json:"p,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"m,omitempty"`
	What    string `json:"a,omitempty"`
	// ForMS is how long it is invisible to others from here on.
	ForMS int64 `json:"v,omitempty"`
}

// maxFaults is how many faults may wait for the run.
const maxFaults = 16

func newSide(s plan.Scenario, g plan.Guard, began time.Time) *side {
	return &side{
		Guard: g, Says: s.Designs[g].Sentence(), scenario: s, began: began, faults: make(chan crew.Fault, maxFaults),
		files: map[string]*os.File{}, cut: map[string][]byte{}, seen: map[string]int{},
	}
}

// look takes the status of the run, and finds the charges that were one too many.
func (s *side) look(now crew.Status) {
	f := verdict.Stand(now.Sent, now.Effects, now.Aside, now.Stats)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range now.Effects[min(s.charged, len(now.Effects)):] {
		if s.seen[e.Key]++; s.seen[e.Key] > 1 && e.Version == 0 {
			s.fresh = append(s.fresh, happening{
				Side: string(s.Guard), AtMS: e.At.Sub(s.began).Milliseconds(), Kind: "doubled", Worker: e.Worker, Life: e.Life,
				Key: e.Key, Message: e.Message, What: money(e.Amount, s.scenario.Load.Currency),
			})
		}
	}
	s.charged = len(now.Effects)
	s.at = figures{
		Sent: len(now.Sent), Effects: len(now.Effects), Duplicated: f.Duplicated, Lost: f.Lost, Regressed: f.Regressed,
		Aside: now.Aside.Dead + now.Aside.Parked, Waiting: now.Stats.Visible, Kills: now.Kills,
		Money: money(f.Damage, s.scenario.Load.Currency), Finishing: now.Finishing,
	}
}

// in sets where the events files are.
func (s *side) in(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir = dir
}

func (s *side) figures() figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.at
	f.Delivered, f.Skipped = s.delivered, s.skipped
	if f.Money == "" {
		f.Money = money(0, s.scenario.Load.Currency)
	}
	return f
}

// read reads what the processes have written since the last time. Unreadable lines are dropped: the verdict does not depend
// on them.
func (s *side) read() []happening {
	s.mu.Lock()
	out := s.fresh
	s.fresh = nil
	dir := s.dir
	s.mu.Unlock()
	if dir == "" {
		return out
	}
	names, _ := filepath.Glob(filepath.Join(dir, "events-*.jsonl"))
	for _, name := range names {
		f := s.files[name]
		if f == nil {
			var err error
			if f, err = os.Open(name); err != nil {
				continue
			}
			s.files[name] = f
		}
		b, err := io.ReadAll(f)
		if err != nil || len(b) == 0 {
			continue
		}
		out = append(out, s.lines(name, b)...)
	}
	return out
}

func (s *side) lines(name string, b []byte) (out []happening) {
	b = append(s.cut[name], b...)
	for {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			s.cut[name] = bytes.Clone(b)
			return out
		}
		b = rest
		var e eventlog.Entry
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch {
		case e.Kind == "received":
			s.delivered++
		case e.Kind == "decided" && strings.HasPrefix(e.Decision, "replayed"):
			s.skipped++
		}
		if h, ok := s.happened(e); ok {
			out = append(out, h)
		}
	}
}

// happened is what the page gets of an entry; most entries stay as they are.
func (s *side) happened(e eventlog.Entry) (happening, bool) {
	h := happening{
		Side: string(s.Guard), AtMS: (e.At - s.began.UnixMicro()) / 1000, Kind: e.Kind, Worker: e.Worker, Life: e.Life,
		PID: e.PID, Key: e.Key, Message: e.Message,
	}
	switch e.Kind {
	case eventlog.Strike, eventlog.Struck:
		h.Kind, h.What = "strike", e.Action
	case eventlog.Exit:
		h.What = e.Reason
	case "decided":
		h.What = e.Decision
	case "settled":
		if h.What = e.Action; e.Reason != "" {
			h.What = "dropped"
		}
	case "ended", eventlog.Undone:
		h.What = e.Err
	case eventlog.Fault:
		h.What = e.Action
	case "received":
		h.ForMS = e.VisibleMS
	case "extended":
		if e.Lease || e.Outcome != "applied" {
			return h, false
		}
		h.ForMS = e.VisibleMS
	case "started", eventlog.Effect, eventlog.Spawn, eventlog.Thaw, eventlog.Down, eventlog.Up:
	default:
		return h, false
	}
	return h, true
}

func (s *side) close() {
	for _, f := range s.files {
		_ = f.Close()
	}
}
