package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/semel-dev/semel/driver/rowqueue"
)

// watcher wakes blocked receivers. Writes of this process signal it. Writes of other processes show in PRAGMA data_version,
// which it reads every Options.PollInterval while a receiver waits. It knows when the next delayed message is due.
type watcher struct {
	db *DB
	s  *session

	waiters rowqueue.Waiters
	kick    chan struct{}
}

func (w *watcher) init(db *DB, s *session) {
	w.db, w.s, w.kick = db, s, make(chan struct{}, 1)
}

func (w *watcher) close() error {
	if w.s == nil {
		return nil
	}
	return w.s.close()
}

// sleep makes the watcher look for a waiter that has found nothing, and waits until it is signalled.
func (w *watcher) sleep(ctx context.Context, x *rowqueue.Waiter, _ int, _ time.Duration) (woken bool, err error) {
	select {
	case w.kick <- struct{}{}:
	default:
	}
	return x.Sleep(ctx, math.MaxInt64, w.db.closing, ErrClosed)
}

func (w *watcher) loop() {
	defer w.db.done.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	version, due := int64(0), int64(0)
	for {
		kicked := false
		select {
		case <-w.db.closing:
			return
		case <-w.kick:
			kicked = true
		case <-timer.C:
		}
		names := w.waiters.Queues()
		if len(names) == 0 {
			continue // the next wait kicks
		}
		var v int64
		_, err := w.s.one([]*int64{&v}, "PRAGMA data_version")
		now := w.db.now().UnixMicro()
		if err != nil || kicked || v != version || now >= due {
			version = v
			due = w.look(names, now)
		}
		timer.Reset(min(w.db.o.PollInterval, max(time.Duration(min(due-now, math.MaxInt32))*time.Microsecond, 0)+time.Microsecond))
	}
}

// look signals the queues that have something deliverable, and returns when the next of the others will. Receive reports a
// database that cannot be read.
func (w *watcher) look(names []string, now int64) (due int64) {
	due = math.MaxInt64
	for _, name := range names {
		at, err := w.next(name)
		switch {
		case err != nil || at <= now:
			w.waiters.WakeQueue(name)
		default:
			due = min(due, at)
		}
	}
	return due
}

const (
	sqlNextStream = "SELECT 1 FROM semel_stream WHERE pos > ? AND pos <= ? LIMIT 1"
	sqlNextTimed  = `SELECT until FROM semel_timed INDEXED BY semel_timed_due WHERE queue = ? AND waits = 0
  ORDER BY until LIMIT 1`
	sqlNextFlight = "SELECT min(until) FROM semel_flight WHERE hand BETWEEN ? AND ? HAVING count(*) > 0"
)

// next returns when a queue has something deliverable: 0 = now, MaxInt64 = not by itself.
func (w *watcher) next(name string) (int64, error) {
	t := &txn{db: w.db, s: w.s}
	row, err := t.queue(name, false)
	if row == nil || err != nil {
		return math.MaxInt64, err
	}
	first := func(sql string, args ...any) int64 {
		at := int64(math.MaxInt64)
		if err == nil {
			_, err = w.s.one([]*int64{&at}, sql, args...)
		}
		return at
	}
	return min(first(sqlNextStream, row.low()|row.taken, row.high()), first(sqlNextTimed, row.id),
		first(sqlNextFlight, row.low(), row.high())), err
}
