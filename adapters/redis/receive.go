package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

const (
	// maxWait is how long a receive waits for the stream until it looks for expired deliveries again.
	maxWait = time.Second
	// callTimeout bounds a receive's call of the server, also when its ctx has ended: what the server has handed out is
	// hidden from everybody until its visibility ends.
	callTimeout = 5 * time.Second
	// silence is after how long a consumer without messages is removed: those of processes that are gone.
	silence = time.Hour
)

// receipt is a delivery's handle: its address is the driver.Delivery's Receipt.
type receipt struct {
	q       *Queue
	entry   string
	times   int64 // how often the entry was delivered
	count   int   // how often the message was
	message string
}

// search is the search for expired deliveries and for delayed messages that are due. It goes on where it ended: the server looks
// at a bounded number of entries with each call, so one that always begins anew would not get past those that are in flight.
type search struct {
	mu     sync.Mutex
	cursor string    // "" = at the beginning
	next   time.Time // when the next one begins
	due    time.Time // when the next delayed message is due, as far as is known; zero = never
	tidy   time.Time // when consumers are removed again
	// silence is the constant but for tests.
	silence time.Duration
}

// from returns where to search now ("" = not now), which consumers to remove (0 = none), and whether to look for anything but
// new messages.
func (s *search) from(now time.Time) (cursor string, silent time.Duration, look bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cursor == "" && now.Before(s.next) {
		return "", 0, !s.due.IsZero() && !now.Before(s.due)
	}
	if !now.Before(s.tidy) {
		s.tidy, silent = now.Add(s.silence), s.silence
	}
	return cmp.Or(s.cursor, "0-0"), silent, true
}

// searched remembers where a search ended ("" = there was none), and when the next delayed message is due.
func (s *search) searched(cursor string, now time.Time, every, due time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due = (time.Time{}); due >= 0 {
		s.due = now.Add(due)
	}
	if cursor == "0-0" {
		s.cursor, s.next = "", now.Add(every)
	} else if cursor != "" {
		s.cursor = cursor
	}
}

// delayed remembers that a message is due after some time.
func (s *search) delayed(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if due := time.Now().Add(after); s.due.IsZero() || due.Before(s.due) {
		s.due = due
	}
}

// Receive delivers up to max messages, at most 250. It first takes delayed messages that are due and deliveries of others
// that have expired, then new messages. It waits until there is one.
//
// A message has the ID of the field semel-id, else redis|STREAM|ENTRY. Its body is the field body, and all other fields are
// its headers.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("receive from queue %q: max is %d, must be at least 1", q.name, limit)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wake := q.wake.C() // before the look
		out, last, wait, err := q.take(ctx, min(limit, maxItems))
		if err != nil {
			return nil, fmt.Errorf("receive from queue %q: %w", q.name, explain(err))
		}
		if len(out) > 0 {
			return out, nil
		}
		q.watch(last)
		_ = redeliver.Wait(ctx, wait, wake)
	}
}

// take returns what is deliverable now. If that is nothing, last is the last entry of the stream, and wait how long there may
// be nothing without another entry.
func (q *Queue) take(ctx context.Context, limit int) (out []driver.Delivery, last string, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	sent := time.Now()
	cursor, silent, look := q.search.from(sent)
	if !look {
		if out = q.fresh(ctx, limit, sent); len(out) > 0 {
			return out, "", 0, nil
		}
	}
	args := []any{q.consumer, limit, q.visible.Milliseconds(), cursor, silent.Milliseconds()}
	reply, err := receiveScript.Run(ctx, q.s.client, q.keys, args...).Slice()
	if err != nil {
		return nil, "", 0, err
	}
	back := time.Now()
	every, due := min(q.visible/10, maxWait), time.Duration(-1)
	if n, _ := reply[1].(int64); n >= 0 {
		due = time.Duration(n) * time.Microsecond
	}
	cursor, _ = reply[0].(string)
	q.search.searched(cursor, back, every, due)
	if trimmed, _ := reply[3].(int64); trimmed > 0 {
		slog.Error("somebody trims the stream: messages in flight are gone", "queue", q.name, "stream", q.keys[0], "messages", trimmed)
	}
	for _, v := range reply[4:] {
		entry := v.([]any)
		list, _ := entry[1].([]any)
		fields := make(map[string]any, len(list)/2)
		for i := 0; i+1 < len(list); i += 2 {
			name, _ := list[i].(string)
			fields[name] = list[i+1]
		}
		out = append(out, q.delivery(entry[0].(string), fields, entry[2].(int64), sent, back))
	}
	if wait = every; due >= 0 {
		wait = min(wait, due)
	}
	last, _ = reply[2].(string)
	return out, last, max(wait, time.Millisecond), nil
}

// fresh returns messages that nobody has received yet. It costs the server less than the script. If it fails, the script finds
// out why.
func (q *Queue) fresh(ctx context.Context, limit int, sent time.Time) (out []driver.Delivery) {
	args := &goredis.XReadGroupArgs{Group: Group, Consumer: q.consumer, Streams: []string{q.keys[0], ">"}, Count: int64(limit), Block: -1}
	found := q.s.client.XReadGroup(ctx, args).Val()
	back := time.Now()
	for _, stream := range found {
		for _, e := range stream.Messages {
			out = append(out, q.delivery(e.ID, e.Values, 1, sent, back))
		}
	}
	return out
}

// delivery makes a delivery of an entry; times counts its deliveries.
func (q *Queue) delivery(entry string, fields map[string]any, times int64, sent, back time.Time) driver.Delivery {
	m, before := q.unpack(entry, fields)
	rc := &receipt{q: q, entry: entry, times: times, count: before + int(times), message: m.ID}
	return driver.Delivery{
		Message: m, Receipt: rc, Count: rc.count, Visible: redeliver.Deadline(sent, back, 0, q.visible).Sub(back),
	}
}

// watch wakes receivers when the stream may have an entry behind last. One call waits for all of them. It delivers nothing, so a
// receiver that is cancelled leaves nothing behind.
func (q *Queue) watch(last string) {
	if !q.watching.CompareAndSwap(false, true) {
		return
	}
	go func() {
		args := &goredis.XReadArgs{Streams: []string{q.keys[0], last}, Count: 1, Block: maxWait}
		if err := q.s.client.XRead(context.Background(), args).Err(); err != nil && !errors.Is(err, goredis.Nil) {
			time.Sleep(maxWait / 10) // the next receive finds out why
		}
		q.watching.Store(false)
		q.wake.Signal()
	}()
}
