package semel

import (
	"time"

	"github.com/semel-dev/semel/internal/machine"
)

// Load tells how busy a consumer is: what to scale by, and why it stands still.
type Load struct {
	// Slots are those of Concurrency, in open transactions the Committers; Busy of them are taken.
	Slots int `json:"slots"`
	Busy  int `json:"busy"`
	// Utilisation is Busy in Slots, 0 to 1.
	Utilisation float64 `json:"utilisation"`
	// Running counts handlers, InFlight the deliveries in flight, Waiting those of them that wait for PerGroup.
	Running  int `json:"running"`
	InFlight int `json:"in_hand"`
	Waiting  int `json:"waiting"`
	// Paused: nothing is started or fetched for now. Reason says why; StoreDown tells that the store does not answer, else it
	// is the breaker.
	Paused    bool   `json:"paused"`
	StoreDown bool   `json:"store_down,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Breaker is closed, open or half-open; OpenUntil is set when it is open.
	Breaker   string    `json:"breaker"`
	OpenUntil time.Time `json:"open_until,omitzero"`
	// PerSecond is how many deliveries reached their end in a second, over the last five to ten seconds: effects, dead letters,
	// replays, not those that come again.
	PerSecond float64 `json:"per_second"`
}

// Load tells how busy this consumer is. It may be called at any time, costs a lock and no I/O, and is zero before Run.
func (c *Consumer) Load() Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.load
	if c.running {
		l.PerSecond = c.speed.perSecond(time.Now(), handled(&c.summary))
	}
	return l
}

// handled counts the deliveries that do not come again.
func handled(s *Summary) int64 {
	return s.Effects + s.Dropped + s.Dead + s.Uncertain + s.Replayed + s.Stale + s.Mismatched + s.Rejected + s.Unprotected
}

// loadOf gives the machine's figures their public names.
func (r *runner) loadOf(m *machine.Load) Load {
	l := Load{
		Slots: m.Slots, Busy: m.Busy, Utilisation: min(float64(m.Busy)/float64(m.Slots), 1), Running: m.Running,
		InFlight: m.InFlight, Waiting: m.Waiting, Breaker: m.Breaker, Paused: m.Down || m.Open, StoreDown: m.Down,
		Reason: m.Reason,
	}
	if m.Open {
		l.OpenUntil = r.began.Add(m.Until)
	}
	return l
}

// speedometer measures over a window that is between one and two spans long.
type speedometer struct{ from, to sample }

type sample struct {
	at time.Time
	n  int64
}

const speedSpan = 5 * time.Second

func (s *speedometer) start(now time.Time, n int64) { s.from, s.to = sample{now, n}, sample{now, n} }

func (s *speedometer) note(now time.Time, n int64) {
	if now.Sub(s.to.at) >= speedSpan {
		if s.from = s.to; now.Sub(s.from.at) >= 2*speedSpan {
			s.from.at = now.Add(-speedSpan) // nobody looked for so long because nothing came
		}
		s.to = sample{now, n}
	}
}

func (s *speedometer) perSecond(now time.Time, n int64) float64 {
	s.note(now, n)
	took := now.Sub(s.from.at).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(n-s.from.n) / max(took, 0.1)
}
