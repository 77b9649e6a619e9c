package verdict

import (
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// Span is one delivery as one worker process saw it. Times are milliseconds from the start of the run; -1 = never.
type Span struct {
	Worker, Life, PID int
	Key, Message      string
	Count             int // the broker's count of deliveries
	// From is the receipt; To is the settlement, the end of the process, or its last event.
	From, To float64
	// VisibleUntil is when the queue would deliver it again, extensions included.
	VisibleUntil float64
	// RunFrom and RunTo are the handler's.
	RunFrom, RunTo float64
	Beats          []float64
	Attempt        int
	Takeover       bool
	Decision       string
	Reason         string // why, as the worker reported it
	Cause          string
	Action         string
	Outcome        string
	Trouble        string
	Settled        bool
	// Charge numbers the charge of this key that this delivery made: 1 = the right one, more = doubled, 0 = none.
	Charge int
	// Version is the version that it applied, where keys have versions; Back: over a newer one.
	Version int
	Back    bool
	// Cut: the process was killed with it in flight.
	Cut bool
	// Row is its place in the lane.
	Row int
}

// Ran reports whether the handler was called.
func (s *Span) Ran() bool { return s.RunFrom >= 0 }

// RunEnd is when the handler ended, or the delivery if it did not.
func (s *Span) RunEnd() float64 {
	if s.RunTo < 0 {
		return s.To
	}
	return s.RunTo
}

// Process is one life of a worker: a segment of its lane.
type Process struct {
	Worker, Life, PID int
	From, To          float64
	Killed            bool
	// Step, Key and Message are where the kill was, as far as it was at a step.
	Step         plan.Step
	Key, Message string
	// Replaced: a deployment asked it to end. Asked is when it was asked to; 0 = never.
	Replaced bool
	Asked    float64
	// Frozen are the times in which it was stopped.
	Frozen []Frozen
	Spans  []*Span
	Rows   int
}

// Frozen is a time in which a process was stopped, or the database out of reach; To is -1 when it never went on.
type Frozen struct{ From, To float64 }

// Lane is a worker with all its lives.
type Lane struct {
	Worker    int
	Processes []*Process
	Rows      int
}

// history is the content of the events files, put in order.
type history struct {
	lanes []*Lane
	spans []*Span // by From
	byKey map[string][]*Span
	sent  map[string][]sentAt // by key
	end   float64
	// frozen are the stops of each process, by its id; outages those of the database.
	frozen  map[int][]Frozen
	outages []Frozen
}

// sentAt is one message that the queue accepted.
type sentAt struct {
	Message string
	AtMS    float64
	Copy    int
}

// readHistory puts the entries of a run into lanes and spans.
func readHistory(res crew.Result) *history {
	h := &history{sent: map[string][]sentAt{}, byKey: map[string][]*Span{}, frozen: map[int][]Frozen{}}
	ms := func(at int64) float64 { return float64(at-res.Began.UnixMicro()) / 1000 }
	type life struct{ worker, life int }
	processes := map[life]*Process{}
	open := map[life]map[string]*Span{}
	for _, e := range res.Entries {
		id := life{e.Worker, e.Life}
		at := max(0, ms(e.At))
		h.end = max(h.end, at)
		p := processes[id]
		switch e.Kind {
		case eventlog.Sent:
			h.sent[e.Key] = append(h.sent[e.Key], sentAt{Message: e.Message, AtMS: at, Copy: e.Count})
		case eventlog.Spawn:
			if p == nil {
				p = h.process(e.Worker, e.Life)
				processes[id], open[id] = p, map[string]*Span{}
			}
			p.PID, p.From, p.To = e.PID, at, -1
		case eventlog.Exit:
			if p != nil {
				p.To, p.Killed, p.Replaced = at, e.Reason == "killed", e.Reason == "replaced"
				p.cut(at)
			}
		case eventlog.Strike, eventlog.Struck:
			if p != nil {
				p.struck(e, at)
			}
		case eventlog.Down:
			h.outages = append(h.outages, Frozen{From: at, To: -1})
		case eventlog.Up:
			if n := len(h.outages); n > 0 {
				h.outages[n-1].To = at
			}
		case eventlog.Thaw:
			if p != nil && len(p.Frozen) > 0 {
				p.Frozen[len(p.Frozen)-1].To = at
			}
		default:
			if p != nil {
				h.apply(p, open[id], e, at)
			}
		}
	}
	h.finish(res)
	return h
}

func (h *history) process(worker, life int) *Process {
	i := slices.IndexFunc(h.lanes, func(l *Lane) bool { return l.Worker == worker })
	if i < 0 {
		h.lanes = append(h.lanes, &Lane{Worker: worker})
		i = len(h.lanes) - 1
	}
	p := &Process{Worker: worker, Life: life, To: -1}
	h.lanes[i].Processes = append(h.lanes[i].Processes, p)
	return p
}

// struck notes what happens to the process. The first kill is its last.
func (p *Process) struck(e eventlog.Entry, at float64) {
	switch {
	case e.Action == string(plan.Freeze):
		p.Frozen = append(p.Frozen, Frozen{From: at, To: -1})
	case e.Action == string(plan.Deploy):
		p.Asked = at
	case p.Step == "":
		p.Step, p.Key, p.Message = e.Step, e.Key, e.Message
	}
}

// cut ends what a process had in flight. A kill right after the commit of a message cuts it too: the worker never saw the
// response.
func (p *Process) cut(at float64) {
	for _, s := range p.Spans {
		if !s.Settled || (p.Killed && p.Key != "" && s.Message == p.Message && s.To > at-100) {
			s.To, s.Cut = at, p.Killed
		}
	}
}

// apply adds one event of a worker to the span that it belongs to.
func (h *history) apply(p *Process, open map[string]*Span, e eventlog.Entry, at float64) {
	s := open[e.Message]
	if e.Kind == "received" {
		s = &Span{
			Worker: e.Worker, Life: e.Life, PID: p.PID, Key: e.Key, Message: e.Message, Count: e.Count,
			From: at, To: at, VisibleUntil: at + float64(e.VisibleMS), RunFrom: -1, RunTo: -1,
		}
		open[e.Message] = s
		p.Spans = append(p.Spans, s)
		return
	}
	if s == nil {
		return
	}
	s.To = max(s.To, at)
	switch e.Kind {
	case "started":
		s.RunFrom, s.Attempt, s.Takeover = at, e.Attempt, e.Takeover
	case "ended":
		s.RunTo, s.Trouble = at, e.Err
	case "extended":
		if !e.Lease && e.Outcome == "applied" {
			s.VisibleUntil = at + float64(e.VisibleMS)
		}
		if len(s.Beats) == 0 || at-s.Beats[len(s.Beats)-1] > 5 {
			s.Beats = append(s.Beats, at) // lease and visibility are extended together: one beat
		}
	case "decided":
		if e.Decision != "taken_over" {
			s.Decision, s.Cause, s.Reason = e.Decision, e.Cause, e.Reason
		}
	case "settled":
		s.Settled, s.Action, s.Outcome = true, e.Action, e.Outcome
	}
}

// finish numbers the charges, closes what is open and packs the rows.
func (h *history) finish(res crew.Result) {
	for _, l := range h.lanes {
		for _, p := range l.Processes {
			if p.To < 0 {
				p.To = h.end
			}
			h.spans = append(h.spans, p.Spans...)
			h.frozen[p.PID] = append(h.frozen[p.PID], p.Frozen...)
			p.Rows = pack(p.Spans)
			l.Rows = max(l.Rows, p.Rows)
		}
	}
	slices.SortFunc(h.lanes, func(a, b *Lane) int { return a.Worker - b.Worker })
	slices.SortStableFunc(h.spans, func(a, b *Span) int {
		switch {
		case a.From < b.From:
			return -1
		case a.From > b.From:
			return 1
		}
		return 0
	})
	for _, s := range h.spans {
		h.byKey[s.Key] = append(h.byKey[s.Key], s)
	}
	charges, newest := map[string]int{}, map[string]int{}
	for _, e := range res.Effects {
		charges[e.Key]++
		at := float64(e.At.Sub(res.Began)) / float64(time.Millisecond)
		if s := h.charged(e, at); s != nil {
			s.Charge, s.Version, s.Back = charges[e.Key], e.Version, e.Version > 0 && e.Version <= newest[e.Key]
		}
		newest[e.Key] = max(newest[e.Key], e.Version)
	}
}

// orderOf is the order that an effect belongs to: that of an item is in front of its slash.
func orderOf(key string) string {
	order, _, _ := strings.Cut(key, "/")
	return order
}

// charged finds the delivery that made an effect: the last one of this process and message whose handler had begun.
func (h *history) charged(e place.Effect, at float64) (best *Span) {
	for _, s := range h.byKey[orderOf(e.Key)] {
		if s.PID == e.PID && s.Life == e.Life && s.Worker == e.Worker && s.Message == e.Message &&
			s.Ran() && s.RunFrom <= at+1 {
			best = s
		}
	}
	return best
}

// maxRows bounds the height of a lane; what does not fit shares the last row.
const maxRows = 8

// pack gives each span the first row that is free for as long as the delivery is in flight.
func pack(spans []*Span) int {
	var free []float64
	for _, s := range spans {
		row := slices.IndexFunc(free, func(until float64) bool { return until <= s.From })
		switch {
		case row >= 0:
		case len(free) < maxRows:
			free = append(free, 0)
			row = len(free) - 1
		default:
			row = maxRows - 1
		}
		s.Row = row
		free[row] = max(free[row], s.To+2)
	}
	return max(1, len(free))
}
