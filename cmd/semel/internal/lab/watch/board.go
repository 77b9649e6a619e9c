package watch

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/report"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

const (
	// tick is how often the pages get an update.
	tick = 150 * time.Millisecond
	// memory is how many events a page that joins later gets.
	memory = 3000
	// maxPages bounds the connected pages, backlog the unread updates of a page.
	maxPages = 16
	backlog  = 64
)

// board is what all pages see.
type board struct {
	sides []*side
	began time.Time

	mu    sync.Mutex
	past  []happening
	pages map[chan []byte]bool
	last  *Last
	gone  sync.WaitGroup // the pages
	quit  chan struct{}
	over  chan struct{}
}

// Last is what the pages get when the run has ended.
type Last struct {
	// Runs is nil when there is no verdict: Problem says why.
	Runs    []verdict.Run `json:"runs,omitempty"`
	Problem string        `json:"problem,omitempty"`
}

// batch is one message to the pages.
type batch struct {
	NowMS   int64              `json:"now"`
	Events  []happening        `json:"events,omitempty"`
	Figures map[string]figures `json:"figures,omitempty"`
	Last    *Last              `json:"last,omitempty"`
}

// figures are a side's counters.
type figures struct {
	Sent       int    `json:"sent"`
	Delivered  int    `json:"delivered"`
	Effects    int    `json:"effects"`
	Duplicated int    `json:"duplicated"`
	Lost       int    `json:"lost"`
	Regressed  int    `json:"regressed"`
	Skipped    int    `json:"skipped"`
	Aside      int    `json:"aside"`
	Waiting    int64  `json:"waiting"`
	Kills      int    `json:"kills"`
	Money      string `json:"money"`
	Finishing  bool   `json:"finishing,omitempty"`
}

func newBoard(s plan.Scenario, guards []plan.Guard) *board {
	b := &board{began: time.Now(), pages: map[chan []byte]bool{}, quit: make(chan struct{}), over: make(chan struct{})}
	for _, g := range guards {
		b.sides = append(b.sides, newSide(s, g, b.began))
	}
	go b.run()
	return b
}

// workers are the numbers of the lanes.
func (b *board) workers() (out []int) {
	for i := range b.sides[0].scenario.Workers.Count {
		out = append(out, i+1)
	}
	return out
}

func (b *board) side(g plan.Guard) *side {
	for _, s := range b.sides {
		if s.Guard == g {
			return s
		}
	}
	return nil
}

// inject hands a fault to every side, or to none of them.
func (b *board) inject(a crew.Fault) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sides {
		if len(s.faults) == cap(s.faults) {
			return false
		}
	}
	for _, s := range b.sides {
		s.faults <- a
	}
	return true
}

// run sends the pages what is new.
func (b *board) run() {
	defer close(b.over)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-b.quit:
			return
		case <-t.C:
			b.update()
		}
	}
}

// update reads what is new, and sends it.
func (b *board) update() {
	m := batch{NowMS: b.now(), Figures: map[string]figures{}}
	for _, s := range b.sides {
		m.Events = append(m.Events, s.read()...)
		m.Figures[string(s.Guard)] = s.figures()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.past = append(b.past, m.Events...)
	if over := len(b.past) - memory; over > 0 {
		b.past = append([]happening(nil), b.past[over:]...)
	}
	b.send(m)
}

func (b *board) now() int64 { return time.Since(b.began).Milliseconds() }

// send sends to all pages; a page that does not read is disconnected, and connects again by itself. The lock is held.
func (b *board) send(m batch) {
	line, err := json.Marshal(m)
	if err != nil {
		return
	}
	for c := range b.pages {
		select {
		case c <- line:
		default:
			delete(b.pages, c)
			close(c)
		}
	}
}

// join adds a page, which gets the past first.
func (b *board) join() (chan []byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pages) >= maxPages {
		return nil, false
	}
	c := make(chan []byte, backlog)
	line, err := json.Marshal(batch{NowMS: b.now(), Events: b.past, Last: b.last})
	if err != nil {
		return nil, false
	}
	c <- line
	b.gone.Add(1)
	if b.last != nil {
		close(c)
		return c, true
	}
	b.pages[c] = true
	return c, true
}

func (b *board) leave(c chan []byte) {
	b.mu.Lock()
	delete(b.pages, c)
	b.mu.Unlock()
	b.gone.Done()
}

// end sends the last message, and disconnects every page.
func (b *board) end(last Last) {
	close(b.quit)
	<-b.over
	b.update()
	for _, s := range b.sides {
		s.close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = &last
	b.send(batch{NowMS: b.now(), Last: b.last})
	for c := range b.pages {
		delete(b.pages, c)
		close(c)
	}
}

func money(minor int64, currency string) string { return report.Money(minor, currency) }
