package postgres

import (
	"math"
	"sync"
	"time"
)

// place is one in the index semel_message_due.
type place struct {
	at  time.Time
	pos int64
}

func (p place) less(q place) bool { return p.at.Before(q.at) || p.at.Equal(q.at) && p.pos < q.pos }

// front is what this process knows of the beginning of a queue's index. Entries of messages that are gone stay there
// until a vacuum, and those in flight are there too: passing by them at every look would cost more than handing out. So
// most looks begin behind the last message that was handed out, and some at the beginning: for messages that came back,
// and for those whose transaction committed late. A front only says where to look first; nothing is ever skipped for
// good.
type front struct {
	mu sync.Mutex
	// behind is the place behind which to look; known false = from the beginning.
	behind place
	known  bool
	// whole is when the latest look from the beginning began, took how long it took.
	whole time.Time
	took  time.Duration
	// clock is the server's time at the moment seen of our own clock; mend: holds may be longer than they should.
	clock, seen time.Time
	sound       bool
}

const (
	// wholeShare bounds the time that is spent on looks from the beginning to one part in so many.
	wholeShare = 20
	// wholeMax bounds how late such a look may come.
	wholeMax = 5 * time.Second
	// commitSlack is how long before now a look for everything expects late commits.
	commitSlack = 100 * time.Millisecond
	// clockStep is how far the server's clock may fall behind ours between two looks.
	clockStep = time.Second
)

func (db *DB) front(queue int32) *front {
	f, _ := db.wake.fronts.LoadOrStore(queue, &front{})
	return f.(*front)
}

// mends reports that holds have to be looked at: before the first look of this process, and after the server's clock
// stepped back.
func (f *front) mends() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.sound
}

func (f *front) mended() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sound, f.known, f.seen = true, false, time.Time{}
}

// begin answers behind which place to look; nil = from the beginning.
func (f *front) begin() (at *time.Time, pos int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known || f.rest() == 0 {
		return nil, 0
	}
	p := f.behind
	return &p.at, p.pos
}

// rest is how long until the next look from the beginning is due.
func (f *front) rest() time.Duration {
	return max(min(wholeShare*f.took, wholeMax)-time.Since(f.whole), 0)
}

// look notes what a look found. It answers how long until another one may find something by itself; negative: not known.
func (f *front) look(t *taking) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	whole := t.at == nil
	if whole {
		f.whole, f.took = t.began, time.Since(t.began)
	}
	// From the answer before to the beginning of this look: less has not passed between the server's two readings. The time
	// that this answer took is no step back.
	if !f.seen.IsZero() && t.clock.Before(f.clock.Add(t.began.Sub(f.seen)-clockStep)) {
		f.sound, f.known = false, false
		return 0
	}
	f.clock, f.seen = t.clock, time.Now()
	behind := t.last
	if len(t.out) == 0 {
		// There is nothing left before now but what commits late.
		if now := (place{t.clock.Add(-commitSlack), math.MaxInt64}); behind.less(now) {
			behind = now
		}
	}
	if whole || f.behind.less(behind) {
		f.behind = behind
	}
	f.known = true
	switch {
	case !whole:
		return f.rest()
	case t.next == nil:
		return -1
	}
	return max(t.next.Sub(t.clock), 0)
}
