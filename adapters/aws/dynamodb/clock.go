package dynamodb

import (
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// leased returns a record as a claim with nonce n must see it: the lease of another worker has ended only when that is
// certain (law 7). DynamoDB has no clock that all processes share.
func (s *Store) leased(r row, n driver.Nonce, now time.Time) driver.Record {
	rec := r.Record
	if rec.State != driver.InProgress || rec.Nonce == n {
		return rec
	}
	if s.o.Observe {
		// The lease ends when this process has seen the record unchanged for its whole length.
		rec.LeaseUntil = now.Add(rec.Lease - s.seen.unchanged(s, &r))
		return rec
	}
	// A lease that ends later than L + skew from now shows that this clock stepped back. An earlier end may come from a
	// clock that is ahead within the skew. Rewriting such a lease would cost its holder a failed write each time.
	rec.LeaseUntil = rec.LeaseUntil.Add(s.o.skew())
	rec.Lease += 2 * s.o.skew()
	return rec
}

// unleased undoes leased in a record that DecideClaim returned for it.
func (s *Store) unleased(before row, view, after driver.Record) driver.Record {
	switch {
	case view.LeaseUntil.Equal(before.LeaseUntil) && view.Lease == before.Lease: // leased did nothing
	case after.Token != view.Token || after.Nonce != view.Nonce: // a new run, with a lease of its own
	case after.LeaseUntil.Equal(view.LeaseUntil):
		after.LeaseUntil, after.Lease = before.LeaseUntil, before.Lease
	default: // rewritten, because the clock stepped back: to now + view.Lease
		after.LeaseUntil, after.Lease = after.LeaseUntil.Add(before.Lease-view.Lease), before.Lease
	}
	return after
}

// observations are the times at which this process first saw the current revisions of other workers' records.
type observations struct {
	mu    sync.Mutex
	of    map[driver.Key]observation
	limit int
}

type observation struct {
	rev   uint64
	token uint64
	nonce driver.Nonce
	since time.Time // with the monotonic clock
}

// saw records a row that was just read or written.
func (o *observations) saw(s *Store, r *row) {
	if !s.o.Observe {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.State != driver.InProgress {
		delete(o.of, r.Key)
		return
	}
	now := observation{r.rev, r.Token, r.Nonce, s.o.Clock()}
	if old, ok := o.of[r.Key]; ok {
		if old.rev == now.rev && old.token == now.token && old.nonce == now.nonce {
			return
		}
	} else if len(o.of) >= o.limit {
		for k := range o.of { // any will do: its observation starts again
			delete(o.of, k)
			break
		}
	}
	if o.of == nil {
		o.of = map[driver.Key]observation{}
	}
	o.of[r.Key] = now
}

// unchanged returns for how long a row is known not to have changed.
func (o *observations) unchanged(s *Store, r *row) time.Duration {
	o.saw(s, r)
	now := s.o.Clock()
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.of[r.Key]
	if !ok {
		return 0
	}
	return max(0, now.Sub(w.since))
}
