package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/driver"
)

// Stats counts what the consumer has left. The numbers are approximate: the server counts a returned message as in flight
// until it is delivered again, so messages that wait for their time are among those.
func (q *Queue) Stats(ctx context.Context) (s driver.QueueStats, err error) {
	s.Approximate = true
	stream, info, err := q.look(ctx)
	if err != nil {
		return s, err
	}
	s.InFlight = int64(info.NumAckPending)
	// The consumer's own count of what it has not delivered yet follows the stream a moment later.
	waiting, err := q.next(ctx, stream, info.Delivered.Stream+1)
	if err != nil {
		return s, err
	}
	if waiting != nil {
		s.Visible = max(int64(info.NumPending), 1)
		if q.is.Load().filters()[0] == ">" {
			s.Visible = max(int64(stream.CachedInfo().State.LastSeq)-int64(waiting.Sequence)+1, 1)
		}
	}
	if !s.Empty() {
		oldest, err := q.next(ctx, stream, info.AckFloor.Stream+1)
		if err != nil {
			return s, err
		}
		if oldest != nil {
			s.Oldest = max(time.Since(oldest.Time), time.Nanosecond)
		}
	}
	return s, nil
}

// next returns the first message of the consumer at a sequence or behind it; nil if there is none.
func (q *Queue) next(ctx context.Context, stream jetstream.Stream, seq uint64) (first *jetstream.RawStreamMsg, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	for _, filter := range q.is.Load().filters() {
		m, err := stream.GetMsg(ctx, max(seq, 1), jetstream.WithGetMsgSubject(filter))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return nil, q.explain("read a message of", err)
		case first == nil || m.Sequence < first.Sequence:
			first = m
		}
	}
	return first, nil
}

// Peek shows up to limit messages without receiving them, the oldest first, from the first that is not acknowledged on. It
// shows those in flight as well, and of a stream that keeps acknowledged messages those that were acknowledged out of order.
func (q *Queue) Peek(ctx context.Context, limit int) (out []driver.Delivery, err error) {
	stream, info, err := q.look(ctx)
	if err != nil {
		return nil, err
	}
	for seq := info.AckFloor.Stream + 1; len(out) < limit; {
		m, err := q.next(ctx, stream, seq)
		if err != nil || m == nil {
			return out, err
		}
		for _, name := range [...]string{jetstream.StreamHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer} {
			m.Header.Del(name) // the server adds them to what it shows
		}
		msg, _ := q.unpack(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, m.Time, m.Sequence)
		out, seq = append(out, driver.Delivery{Message: msg}), m.Sequence+1
	}
	return out, nil
}

// Purge removes every message of the consumer, those in flight too. It refuses where other consumers of the stream would
// lose theirs. It returns by how many messages the stream has become smaller.
func (q *Queue) Purge(ctx context.Context) (n int64, err error) {
	is := q.is.Load()
	if is.stream.Retention != jetstream.WorkQueuePolicy {
		return 0, fmt.Errorf("nats: purge %s: other consumers of stream %q would lose its messages, because its retention is not work queue: "+
			"acknowledge them by a worker, or nats stream purge: %w", q.name(), q.stream, driver.ErrUnsupported)
	}
	before, _, err := q.look(ctx)
	if err != nil {
		return 0, err
	}
	for _, filter := range is.filters() {
		if err := before.Purge(ctx, jetstream.WithPurgeSubject(filter)); err != nil {
			return 0, q.explain("purge", err)
		}
	}
	after, _, err := q.look(ctx)
	if err != nil {
		return 0, err
	}
	return max(int64(before.CachedInfo().State.Msgs)-int64(after.CachedInfo().State.Msgs), 0), nil
}
