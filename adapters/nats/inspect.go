package nats

import (
	"context"
	"encoding/json"
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
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	s.Approximate = true
	stream, info, err := q.look(ctx)
	if err != nil {
		return s, err
	}
	s.InFlight = int64(info.NumAckPending)
	// The consumer's own count of what it has not delivered yet follows the stream a moment later.
	waiting, err := q.next(ctx, stream, info.Delivered.Stream+1)
	switch {
	case err != nil:
		return s, err
	case waiting != nil && len(q.is.Load().filters()) == 0:
		s.Visible = max(int64(stream.CachedInfo().State.LastSeq)-int64(waiting.Sequence)+1, 1)
	case waiting != nil:
		s.Visible = max(int64(info.NumPending), 1)
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
	if box, ok := q.box.(*deadLetters); ok {
		s.DeadLetters, err = box.count(ctx)
	}
	return s, err
}

// look reads the states of stream and consumer.
func (q *Queue) look(ctx context.Context) (stream jetstream.Stream, info *jetstream.ConsumerInfo, err error) {
	if stream, err = q.js.Stream(ctx, q.stream); err == nil {
		var c jetstream.Consumer
		if c, err = stream.Consumer(ctx, q.o.Consumer); err == nil {
			return stream, c.CachedInfo(), nil
		}
	}
	return nil, nil, q.explain("read", err)
}

// each calls f with every filter of the consumer; all of the stream is one filter.
func (q *Queue) each(f func(filter string) error) error {
	filters := q.is.Load().filters()
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, filter := range filters {
		if err := f(filter); err != nil {
			return err
		}
	}
	return nil
}

// next returns the first message of the consumer at a sequence or behind it; nil if there is none.
func (q *Queue) next(ctx context.Context, stream jetstream.Stream, seq uint64) (first *jetstream.RawStreamMsg, err error) {
	err = q.each(func(filter string) error {
		m, err := stream.GetMsg(ctx, max(seq, 1), jetstream.WithGetMsgSubject(filter))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return q.explain("read a message of", err)
		case first == nil || m.Sequence < first.Sequence:
			first = m
		}
		return nil
	})
	return first, err
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
		seq = m.Sequence + 1
		for _, name := range [...]string{jetstream.StreamHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer} {
			m.Header.Del(name) // the server adds them to what it shows
		}
		msg, _ := q.unpack(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, m.Time)
		msg.ID = q.idOf(&msg, m.Sequence)
		out = append(out, driver.Delivery{Message: msg})
	}
	return out, nil
}

// Purge removes every message of the consumer, those in flight too. It refuses where other consumers of the stream would
// lose theirs.
func (q *Queue) Purge(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	if q.is.Load().stream.Retention != jetstream.WorkQueuePolicy {
		return 0, fmt.Errorf("nats: purge %s: other consumers of stream %q would lose its messages, because its retention is not work queue: "+
			"acknowledge them by a worker, or nats stream purge: %w", q.name(), q.stream, driver.ErrUnsupported)
	}
	return n, q.each(func(filter string) error { // the client's own Purge does not return how many
		req, _ := json.Marshal(jetstream.StreamPurgeRequest{Subject: filter}) // never fails
		var res struct {
			Error  *jetstream.APIError `json:"error"`
			Purged int64               `json:"purged"`
		}
		m, err := q.nc.RequestWithContext(ctx, q.api+"STREAM.PURGE."+q.stream, req)
		if err == nil {
			err = json.Unmarshal(m.Data, &res)
		}
		if err == nil && res.Error != nil {
			err = res.Error
		}
		if err != nil {
			return q.explain("purge", err)
		}
		n += res.Purged
		return nil
	})
}
