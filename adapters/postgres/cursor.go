package postgres

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver/rowqueue"
)

// place is a position in the index semel_message_due.
type place struct {
	at  time.Time
	pos int64
}

func (p place) less(q place) bool { return p.at.Before(q.at) || p.at.Equal(q.at) && p.pos < q.pos }

// cursor is the place in the index of a queue where receivers look next. Entries of removed messages stay there until a
// vacuum, and those in flight are there too: passing by them at every look would cost more than receiving. So most looks
// begin behind the last delivered message, and some at the beginning, for returned messages and late commits. A cursor
// never skips anything for good.
type cursor struct {
	mu sync.Mutex
	// behind is the place to look behind. known false: look from the beginning.
	behind place
	known  bool
	// whole is when the latest look from the beginning began, took how long it took.
	whole time.Time
	took  time.Duration
	// clock is the server's time at the moment seen of our clock.
	clock, seen time.Time
	// history is that of the server when all of this was learned.
	history uint64
	// sound: no hold is longer than it should be. shortening: they are being shortened; again: not before then. stepped:
	// the clock stepped back meanwhile.
	sound, shortening, stepped bool
	again                      time.Time
}

const (
	// wholeShare: looks from the beginning take at most one part in 20 of the time.
	wholeShare = 20
	// wholeMax bounds how late such a look may come.
	wholeMax = 5 * time.Second
	// commitSlack is how late a commit may come for a look.
	commitSlack = 100 * time.Millisecond
	// clockStep is how far the server's clock may fall behind ours between two looks.
	clockStep = time.Second
	// shortenStep is how many messages one statement looks at, shortenRest the pause after one that failed.
	shortenStep = 1000
	shortenRest = time.Minute
)

// sqlShorten does one step. 1 queue name 2 flying 3, 4 behind which place of the index 5 how many
const sqlShorten = "SELECT * FROM semel_shorten($1, $2, $3, $4, $5)"

func (db *DB) cursor(queue string) *cursor {
	f, _ := db.wake.cursors.LoadOrStore(queue, &cursor{})
	return f.(*cursor)
}

// shorten shortens holds that a clock made longer when it stepped back: with the first look of this process, and after such
// a step. It runs in the background. If it fails, some messages come later.
func (w *waker) shorten(queue string, f *cursor) {
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
		w.waiters.WakeQueue(queue)
	}()
}

// shortenAll goes through a part of the index in steps, and rests as long as a step took.
func (w *waker) shortenAll(queue string, flying bool) error {
	var after *time.Time
	for pos, more := int64(0), true; more; {
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, rowqueue.LookWait)
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

// begin returns the place to look behind, nil = from the beginning. It forgets what was learned in another history of the
// server.
func (f *cursor) begin(history uint64) (at *time.Time, pos int64) {
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
func (f *cursor) rest() time.Duration {
	return max(min(wholeShare*f.took, wholeMax)-time.Since(f.whole), 0)
}

// look updates the cursor after a look. It returns how long until another look may find something by itself; negative:
// unknown.
func (f *cursor) look(t *taking) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	whole := t.at == nil
	if whole {
		f.whole, f.took = t.began, time.Since(t.began)
	}
	// At least the time from the previous response to the beginning of this look has passed between the server's two
	// readings. A slow response is no step back.
	if !f.seen.IsZero() && t.clock.Before(f.clock.Add(t.began.Sub(f.seen)-clockStep)) {
		f.clock, f.seen = t.clock, time.Now()
		f.sound, f.known, f.stepped, f.again = false, false, f.shortening, time.Time{}
		return 0
	}
	f.clock, f.seen = t.clock, time.Now()
	behind := t.last
	if len(t.out) == 0 {
		// Only late commits are left before now.
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
