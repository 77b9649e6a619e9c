package machine

import "time"

// Load is how busy the machine is.
type Load struct {
	Slots, Busy, Running, InFlight, Waiting int
	// Down: the store does not answer. Open: the breaker is, until then.
	Down, Open bool
	Until      time.Duration
	Breaker    string
	Reason     string
}

// Open tells that the breaker is open.
func (m *Machine) Open() bool { return m.brk.state == brkOpen }

// Load tells how busy the machine is.
func (m *Machine) Load() Load {
	l := Load{
		Slots: m.cfg.Concurrency, Busy: m.busy, Running: m.running, InFlight: m.inFlight, Waiting: m.waiting, Down: m.down,
		Breaker: [...]string{"closed", "open", "half-open"}[m.brk.state],
	}
	if m.cfg.Mode == Open {
		l.Slots, l.Busy = m.cfg.Lanes, 0
		for i := range m.lanes {
			l.Busy += b2i(m.lanes[i].tx.state != txIdle)
		}
	}
	if l.Open = m.brk.state == brkOpen; l.Open {
		l.Until = m.brk.until
	}
	switch {
	case m.down:
		l.Reason = "the store does not answer"
	case m.brk.state != brkClosed:
		l.Reason = m.brk.reason
	}
	return l
}
