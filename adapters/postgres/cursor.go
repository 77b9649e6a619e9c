package postgres

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
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
	// clock is the server's time at the moment seen of our own clock.
	clock, seen time.Time
	// history is that of the server when all of this was learned.
	history uint64
	// sound: no hold is longer than it should be. shortening: they are being shortened; again: not before then. stepped: the
	// clock stepped back meanwhile.
	sound, shortening, stepped bool
	again                      time.Time
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
	// shortenStep is how many messages one statement looks at that shortens holds, shortenRest how long it rests after one
	// that failed.
	shortenStep = 1000
	shortenRest = time.Minute
)

// sqlShorten does one step. 1 queue name 2 flying 3, 4 behind which place of the index 5 how many
const sqlShorten = "SELECT * FROM semel_shorten($1, $2, $3, $4, $5)"

func (db *DB) front(queue string) *front {
	f, _ := db.wake.fronts.LoadOrStore(queue, &front{})
	return f.(*front)
}

// shorten shortens holds that a clock that stepped back made longer: with the first look of this process, and after such a
// step. It is done beside receiving, and need not succeed: without it some messages come later.
func (w *waker) shorten(queue string, f *front) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.sound || f.shortening || w.closed || time.Now().Before(f.again) {
		return
	}
	f.shortening = true
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		err := w.shortenAll(queue, false)
		if err == nil {
			err = w.shortenAll(queue, true)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.shortening, f.known, f.sound = false, false, err == nil && !f.stepped
		if f.again = time.Now().Add(shortenRest); f.stepped {
			f.stepped, f.again = false, time.Time{}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wakeLocal(queue)
	}()
}

// shortenAll goes through a part of the index in steps, and rests between two of them for as long as one took.
func (w *waker) shortenAll(queue string, flying bool) error {
	var after *time.Time
	for pos, more := int64(0), true; more; {
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, receiveWait)
		more = false
		err := w.db.once(ctx, func(p *pipeline) error {
			p.query("shorten holds", func(rows pgx.Rows) error {
				for rows.Next() {
					more = true
					if err := rows.Scan(&after, &pos); err != nil {
						return err
					}
				}
				return nil
			}, sqlShorten, queue, flying, after, pos, shortenStep)
			return nil
		})
		cancel()
		if err != nil || more && !w.pause(time.Since(began)) {
			return err
		}
	}
	return nil
}

// begin answers behind which place to look; nil = from the beginning. What was learned in another history of the server
// does not count.
func (f *front) begin(history uint64) (at *time.Time, pos int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.history != history {
		f.history, f.known, f.seen, f.took = history, false, time.Time{}, 0
	}
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
		f.clock, f.seen = t.clock, time.Now()
		f.sound, f.known, f.stepped, f.again = false, false, f.shortening, time.Time{}
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
