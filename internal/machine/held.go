package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// Held is a key that this machine has claimed.
type Held struct {
	Hold    driver.Hold
	Attempt int
	Since   time.Duration // when its run began, or it arrived
}

// Held lists the keys that are claimed here, those that arrived first, most at most.
func (m *Machine) Held(most int) (out []Held) {
	for it := m.head; it != nil && len(out) < most; it = it.next {
		if it.leaseEnd != 0 && !it.lost && !it.ended {
			since := it.startedAt
			if since == 0 {
				since = it.arrivedAt
			}
			out = append(out, Held{it.hold, it.grant.Attempt, since})
		}
	}
	return out
}
