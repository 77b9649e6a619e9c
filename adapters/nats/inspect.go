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
	is := q.now()
	stream, info, err := q.look(ctx)
	if err != nil {
		return s, err
	}
	s.InFlight = int64(info.NumAckPending)
	// The consumer's own count of what it has not delivered yet follows the stream a moment later.
	waiting, err := q.next(ctx, stream, &is, info.Delivered.Stream+1)
	switch {
	case err != nil:
		return s, err
	case waiting != nil && len(is.filters()) == 0:
		s.Visible = max(int64(stream.CachedInfo().State.LastSeq)-int64(waiting.Sequence)+1, 1)
	case waiting != nil:
		s.Visible = max(int64(info.NumPending), 1)
	}
	if !s.Empty() {
		oldest, err := q.next(ctx, stream, &is, info.AckFloor.Stream+1)
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
func (q *Queue) look(ctx context.Context) (jetstream.Stream, *jetstream.ConsumerInfo, error) {
	stream, err := q.js.Stream(ctx, q.stream)
	if err != nil {
		return nil, nil, q.explain("read", err)
	}
	c, err := stream.Consumer(ctx, q.o.Consumer)
	if err != nil {
		return nil, nil, q.explain("read", err)
	}
	return stream, c.CachedInfo(), nil
}

// next is the first message of the consumer at a sequence or behind it; nil if there is none.
func (q *Queue) next(ctx context.Context, stream jetstream.Stream, is *settings, seq uint64) (*jetstream.RawStreamMsg, error) {
	filters := is.filters()
	if len(filters) == 0 {
		filters = []string{">"}
	}
	var first *jetstream.RawStreamMsg
	for _, f := range filters {
		m, err := stream.GetMsg(ctx, max(seq, 1), jetstream.WithGetMsgSubject(f))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, q.explain("read a message of", err)
		}
		if first == nil || m.Sequence < first.Sequence {
			first = m
		}
	}
	return first, nil
}

// Peek shows up to limit messages without receiving them, the oldest first, from the first that is not acknowledged on. It
// shows those in flight as well, and of a stream that keeps acknowledged messages those that were acknowledged out of order.
func (q *Queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	is := q.now()
	stream, info, err := q.look(ctx)
	if err != nil {
		return nil, err
	}
	seq := info.AckFloor.Stream + 1
	var out []driver.Delivery
	for len(out) < limit {
		m, err := q.next(ctx, stream, &is, seq)
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
func (q *Queue) Purge(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	is := q.now()
	filters := is.filters()
	if is.stream.Retention != jetstream.WorkQueuePolicy {
		return 0, fmt.Errorf("nats: purge %s: other consumers of stream %q would lose its messages, because its retention is not work queue: "+
			"acknowledge them by a worker, or nats stream purge: %w", q.name(), q.stream, driver.ErrUnsupported)
	}
	if len(filters) == 0 {
		filters = []string{""}
	}
	var n int64
	for _, f := range filters {
		req, _ := json.Marshal(map[string]string{"filter": f}) // never fails
		m, err := q.nc.RequestWithContext(ctx, q.api+"STREAM.PURGE."+q.stream, req)
		if err != nil {
			return n, q.explain("purge", err)
		}
		var res struct {
			Error  *jetstream.APIError `json:"error"`
			Purged int64               `json:"purged"`
		}
		if err := json.Unmarshal(m.Data, &res); err != nil {
			return n, q.explain("purge", err)
		}
		if res.Error != nil {
			return n, q.explain("purge", res.Error)
		}
		n += res.Purged
	}
	return n, nil
}
